// Package memo remembers what was made for a key, for keys of which there are few: metrics by their labels, say. To look one up
// takes no lock and no memory.
package memo

import (
	"maps"
	"sync"
	"sync/atomic"
)

// A Memo makes a value once for each key, with Make, and keeps it for good.
type Memo[K comparable, V any] struct {
	Make func(K) V

	mutex sync.Mutex
	known atomic.Pointer[map[K]V]
}

// Get is the key's value. Make is called at most once for it.
func (m *Memo[K, V]) Get(key K) V {
	if known := m.known.Load(); known != nil {
		if v, ok := (*known)[key]; ok {
			return v
		}
	}
	return m.add(key)
}

func (m *Memo[K, V]) add(key K) V {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	next := map[K]V{}
	if known := m.known.Load(); known != nil {
		if v, ok := (*known)[key]; ok {
			return v
		}
		next = maps.Clone(*known)
	}
	next[key] = m.Make(key)
	m.known.Store(&next)
	return next[key]
}
