package gateway

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// runs are the requests that run, so that they can all be ended. They are kept in shards: requests do not wait for each
// other to be counted.
type runs struct {
	shards [16]struct {
		sync.Mutex
		terms map[*term]struct{}
	}
	stopped atomic.Pointer[error]
}

// with keeps a request until the function that it returns is called. When all have been ended, so is it.
func (r *runs) with(t *term) (without func()) {
	shard := &r.shards[rand.N(len(r.shards))]
	shard.Lock()
	if shard.terms == nil {
		shard.terms = map[*term]struct{}{}
	}
	shard.terms[t] = struct{}{}
	shard.Unlock()
	if cause := r.stopped.Load(); cause != nil {
		t.End(*cause)
	}
	return func() {
		shard.Lock()
		delete(shard.terms, t)
		shard.Unlock()
	}
}

// stop ends all that run, and all that will.
func (r *runs) stop(cause error) {
	r.stopped.Store(&cause) // before they are counted: who comes later sees it
	for i := range r.shards {
		shard := &r.shards[i]
		shard.Lock()
		for t := range shard.terms {
			t.End(cause)
		}
		shard.Unlock()
	}
}
