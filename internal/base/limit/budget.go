package limit

import "sync/atomic"

// A Budget bounds what is held at one time, in bytes or in connections. The bound may be changed while in use.
type Budget struct{ most, used atomic.Int64 }

// NewBudget bounds at most.
func NewBudget(most int64) *Budget {
	b := &Budget{}
	b.Set(most)
	return b
}

// Set changes the bound; what is already held stays held.
func (b *Budget) Set(most int64) { b.most.Store(most) }

// Take holds n more, or reports false and holds nothing.
func (b *Budget) Take(n int64) bool {
	for {
		used := b.used.Load()
		if n > b.most.Load()-used { // so that no n overflows
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// Give lets n go.
func (b *Budget) Give(n int64) { b.used.Add(-n) }

// Used is what is held now.
func (b *Budget) Used() int64 { return b.used.Load() }
