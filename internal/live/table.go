package live

import (
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// shards is the number of copy-on-write maps of a table. A change copies one of them: with a million keys, about a
// thousand entries.
const shards = 1024

// A table is a concurrent map, sharded and copy-on-write: a change copies one shard, and reading takes no lock.
type table[K comparable, V any] struct {
	seed   maphash.Seed
	shards *[shards]shard[K, V]
}

type shard[K comparable, V any] struct {
	mu   sync.Mutex // held by writers
	live atomic.Pointer[map[K]V]
}

func newTable[K comparable, V any]() table[K, V] {
	return table[K, V]{seed: maphash.MakeSeed(), shards: new([shards]shard[K, V])}
}

func (t *table[K, V]) slot(k K) uint64 { return maphash.Comparable(t.seed, k) % shards }

func (t *table[K, V]) get(k K) (V, bool) {
	v, ok := (*t.shards[t.slot(k)].live.Load())[k]
	return v, ok
}

func (t *table[K, V]) put(k K, v V) {
	t.shards[t.slot(k)].change(func(m map[K]V) { m[k] = v })
}

// update replaces the value of k, which may be none yet, by what edit returns, or removes it if edit returns false.
func (t *table[K, V]) update(k K, edit func(V) (V, bool)) {
	t.shards[t.slot(k)].change(func(m map[K]V) {
		if v, ok := edit(m[k]); ok {
			m[k] = v
		} else {
			delete(m, k)
		}
	})
}

func (t *table[K, V]) drop(k K) {
	t.shards[t.slot(k)].change(func(m map[K]V) { delete(m, k) })
}

// sweep removes the values for which gone is true, and returns how many. A shard without one is not copied. gone is
// called under the lock of a shard: a value that is put meanwhile stays.
func (t *table[K, V]) sweep(gone func(V) bool) (n int) {
	for i := range t.shards {
		s := &t.shards[i]
		if !s.any(gone) {
			continue
		}
		s.change(func(m map[K]V) {
			for k, v := range m {
				if gone(v) {
					delete(m, k)
					n++
				}
			}
		})
	}
	return n
}

func (s *shard[K, V]) any(is func(V) bool) bool {
	for _, v := range *s.live.Load() {
		if is(v) {
			return true
		}
	}
	return false
}

func (t *table[K, V]) replace(all map[K]V) {
	var parts [shards]map[K]V
	for i := range parts {
		parts[i] = map[K]V{}
	}
	for k, v := range all {
		parts[t.slot(k)][k] = v
	}
	for i := range parts {
		s := &t.shards[i]
		s.mu.Lock()
		s.live.Store(&parts[i])
		s.mu.Unlock()
	}
}

func (t *table[K, V]) keys() (all []K) {
	for i := range t.shards {
		all = slices.AppendSeq(all, maps.Keys(*t.shards[i].live.Load()))
	}
	return all
}

func (t *table[K, V]) len() int {
	n := 0
	for i := range t.shards {
		n += len(*t.shards[i].live.Load())
	}
	return n
}

func (s *shard[K, V]) change(edit func(map[K]V)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := maps.Clone(*s.live.Load())
	edit(next)
	s.live.Store(&next)
}
