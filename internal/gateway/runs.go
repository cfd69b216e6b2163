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
		first *term // of a list
	}
	stopped atomic.Pointer[error]
}

// add keeps a request until it is removed. When all have been ended, so is it.
func (r *runs) add(t *term) {
	t.shard = rand.N(len(r.shards))
	shard := &r.shards[t.shard]
	shard.Lock()
	if t.next = shard.first; t.next != nil {
		t.next.before = t
	}
	shard.first = t
	shard.Unlock()
	if cause := r.stopped.Load(); cause != nil {
		t.End(*cause)
	}
}

func (r *runs) remove(t *term) {
	shard := &r.shards[t.shard]
	shard.Lock()
	defer shard.Unlock()
	if t.next != nil {
		t.next.before = t.before
	}
	if t.before != nil {
		t.before.next = t.next
	} else {
		shard.first = t.next
	}
}

// stop ends all that run, and all that will.
func (r *runs) stop(cause error) {
	r.stopped.Store(&cause) // before they are counted: who comes later sees it
	for i := range r.shards {
		shard := &r.shards[i]
		shard.Lock()
		for t := shard.first; t != nil; t = t.next {
			t.End(cause)
		}
		shard.Unlock()
	}
}
