package limit

import "sync/atomic"

// A Budget bounds a quantity that is held at one time, such as bytes or connections. The bound may be changed while in
// use.
type Budget struct{ most, used atomic.Int64 }

// NewBudget returns a budget with the bound most.
func NewBudget(most int64) *Budget {
	b := &Budget{}
	b.Set(most)
	return b
}

// Set changes the bound. Amounts already taken stay taken.
func (b *Budget) Set(most int64) { b.most.Store(most) }

// Take takes n, or returns false and takes nothing.
func (b *Budget) Take(n int64) bool {
	for {
		used := b.used.Load()
		if n > b.most.Load()-used { // written so that it cannot overflow
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// Give returns n.
func (b *Budget) Give(n int64) { b.used.Add(-n) }

// Used returns the amount that is taken.
func (b *Budget) Used() int64 { return b.used.Load() }

// left returns the amount that can still be taken.
func (b *Budget) left() int64 { return max(0, b.most.Load()-b.used.Load()) }
