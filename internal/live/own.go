package live

import (
	"cmp"
	"maps"
	"slices"

	"sovereign/internal/base/tenant"
)

// TrainedPrefix begins the ids of trained models, which are their workspace's alone.
const TrainedPrefix = "ft/"

// Engines is the provider of own models: engines that the server runs. Each model names its group of them.
var Engines = &Provider{Name: "engine", Protocol: Engine, Configured: true}

// OwnModels holds the models that are a workspace's alone: trained models (ft/…) and dedicated endpoints (dedicated/…).
// Engines of the operator serve them. Reading takes no lock.
type OwnModels struct {
	all table[tenant.ID, map[string]*Model]
}

// NewOwnModels returns an empty set.
func NewOwnModels() *OwnModels {
	o := &OwnModels{all: newTable[tenant.ID, map[string]*Model]()}
	o.all.replace(nil)
	return o
}

// Find returns a workspace's own model of that id.
func (o *OwnModels) Find(ws tenant.ID, id string) (*Model, bool) {
	own, _ := o.all.get(ws)
	m, ok := own[id]
	return m, ok
}

// Of returns a workspace's own models, sorted by id.
func (o *OwnModels) Of(ws tenant.ID) []*Model {
	own, _ := o.all.get(ws)
	return slices.SortedFunc(maps.Values(own), func(x, y *Model) int { return cmp.Compare(x.ID, y.ID) })
}

// Put adds or replaces a model.
func (o *OwnModels) Put(ws tenant.ID, m *Model) {
	o.change(ws, func(own map[string]*Model) { own[m.ID] = m })
}

// Drop removes a model.
func (o *OwnModels) Drop(ws tenant.ID, id string) {
	o.change(ws, func(own map[string]*Model) { delete(own, id) })
}

func (o *OwnModels) change(ws tenant.ID, edit func(map[string]*Model)) {
	o.all.update(ws, func(own map[string]*Model) (map[string]*Model, bool) {
		next := maps.Clone(own)
		if next == nil {
			next = map[string]*Model{}
		}
		edit(next)
		return next, len(next) > 0
	})
}
