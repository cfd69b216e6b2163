// Package memo caches one value per key for ever, for a small set of keys such as the label values of metrics. A lookup
// takes no lock and does not allocate.
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

// Get returns the key's value. It calls Make at most once for each key.
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
