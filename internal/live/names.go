package live

import (
	"cmp"
	"maps"
	"slices"

	"sovereign/internal/base/tenant"
)

// names holds what workspaces have by name. Reading takes no lock.
type names[V any] struct {
	all    table[tenant.ID, map[string]V]
	nameOf func(V) string
}

func newNames[V any](nameOf func(V) string) names[V] {
	n := names[V]{all: newTable[tenant.ID, map[string]V](), nameOf: nameOf}
	n.all.replace(nil)
	return n
}

// Find returns what a workspace has by that name.
func (n *names[V]) Find(ws tenant.ID, name string) (V, bool) {
	own, _ := n.all.get(ws)
	v, ok := own[name]
	return v, ok
}

// Of returns all that a workspace has, sorted by name.
func (n *names[V]) Of(ws tenant.ID) []V {
	own, _ := n.all.get(ws)
	return slices.SortedFunc(maps.Values(own), func(x, y V) int { return cmp.Compare(n.nameOf(x), n.nameOf(y)) })
}

// Put adds or replaces one.
func (n *names[V]) Put(ws tenant.ID, v V) {
	n.change(ws, func(own map[string]V) { own[n.nameOf(v)] = v })
}

// Drop removes one.
func (n *names[V]) Drop(ws tenant.ID, name string) {
	n.change(ws, func(own map[string]V) { delete(own, name) })
}

// change edits a copy of what a workspace has, and puts it in its place.
func (n *names[V]) change(ws tenant.ID, edit func(map[string]V)) {
	n.all.update(ws, func(own map[string]V) (map[string]V, bool) {
		next := maps.Clone(own)
		if next == nil {
			next = map[string]V{}
		}
		edit(next)
		return next, len(next) > 0
	})
}
