package limit

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// Shares is a Budget that several parties use. No party may take more when it would hold more than twice what is left
// then. So one alone gets two thirds of the budget, a second one two thirds of the rest, and a party that holds nothing
// always finds some room. (This is the dynamic threshold by which switches share packet memory: Choudhury and Hahne,
// 1998.)
type Shares[Name comparable] struct {
	total  Budget
	seed   maphash.Seed
	shards [64]shareShard[Name]
}

type shareShard[Name comparable] struct {
	mu     sync.RWMutex
	byName map[Name]*Share
}

// NewShares returns shares of a budget with the bound most.
func NewShares[Name comparable](most int64) *Shares[Name] {
	s := &Shares[Name]{seed: maphash.MakeSeed()}
	for i := range s.shards {
		s.shards[i].byName = map[Name]*Share{}
	}
	s.Set(most)
	return s
}

// Set changes the bound of the whole. Amounts already taken stay taken.
func (s *Shares[Name]) Set(most int64) { s.total.Set(most) }

// Used returns the amount that all parties hold.
func (s *Shares[Name]) Used() int64 { return s.total.Used() }

// Of returns the share of a party.
func (s *Shares[Name]) Of(name Name) *Share {
	shard := &s.shards[maphash.Comparable(s.seed, name)%uint64(len(s.shards))]
	shard.mu.RLock()
	share := shard.byName[name]
	shard.mu.RUnlock()
	if share != nil {
		return share
	}
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if share = shard.byName[name]; share == nil {
		share = &Share{total: &s.total}
		shard.byName[name] = share
	}
	return share
}

// A Share is what one party holds of Shares.
type Share struct {
	total *Budget
	used  atomic.Int64
}

// Take takes n, or returns false and takes nothing.
func (s *Share) Take(n int64) bool {
	if !s.total.Take(n) {
		return false
	}
	if used, left := s.used.Add(n), s.total.left(); used-left > left { // written so that it cannot overflow
		s.Give(n)
		return false
	}
	return true
}

// Give returns n.
func (s *Share) Give(n int64) {
	s.used.Add(-n)
	s.total.Give(n)
}

// Used returns the amount that is taken.
func (s *Share) Used() int64 { return s.used.Load() }
