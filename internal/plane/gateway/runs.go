package gateway

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// runs are the requests that run, so that they can all be ended, and each of them when its time is over. They are kept in shards:
// requests do not wait for each other to be counted.
type runs struct {
	shards [16]struct {
		sync.Mutex
		first *term // of a list
	}
	stopped atomic.Pointer[error]
	alarm   alarm
}

// add keeps a request until it is removed. When all have been ended, so is it.
func (r *runs) add(t *term) {
	t.runs = r
	t.shard = rand.N(len(r.shards))
	shard := &r.shards[t.shard]
	shard.Lock()
	if t.next = shard.first; t.next != nil {
		t.next.before = t
	}
	shard.first = t
	shard.Unlock()
	r.by(t.due())
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

// each calls f with all that run, none of which is removed meanwhile.
func (r *runs) each(f func(*term)) {
	for i := range r.shards {
		shard := &r.shards[i]
		shard.Lock()
		for t := shard.first; t != nil; t = t.next {
			f(t)
		}
		shard.Unlock()
	}
}

// stop ends all that run, and all that will.
func (r *runs) stop(cause error) {
	r.stopped.Store(&cause) // before they are counted: who comes later sees it
	r.each(func(t *term) { t.End(cause) })
}

// An alarm rings for all that run, when the first of them is due. A timer for each would be set and stopped with every request, and
// hardly ever ring. This one rings in vain about once in the time that requests have, and is then set for the next.
type alarm struct {
	next  atomic.Int64 // the moment when it rings; 0 when it does not
	mutex sync.Mutex   // of what follows
	rung  moment
	timer *time.Timer
}

// apart is how long it rests between two rings, so that many who are due one after the other are not each looked for among all.
const apart = 20 * time.Millisecond

// by has the alarm ring by then.
func (r *runs) by(due moment) {
	if next := moment(r.alarm.next.Load()); next != 0 && next <= due {
		return
	}
	a := &r.alarm
	a.mutex.Lock()
	defer a.mutex.Unlock()
	due = max(due, a.rung+moment(apart))
	if next := moment(a.next.Load()); next != 0 && next <= due {
		return
	}
	a.next.Store(int64(due))
	if in := time.Duration(due - momentOf(time.Now())); a.timer == nil {
		a.timer = time.AfterFunc(in, r.ring)
	} else {
		a.timer.Reset(in)
	}
}

// ring ends what is over, and sets the alarm for the next.
func (r *runs) ring() {
	now := momentOf(time.Now())
	r.alarm.mutex.Lock()
	r.alarm.rung = now
	r.alarm.next.Store(0) // who begins to wait from now on sees to it
	r.alarm.mutex.Unlock()
	next := endless
	r.each(func(t *term) {
		if t.due() <= now {
			t.look(now)
		}
		if t.Cause() == nil {
			next = min(next, t.due())
		}
	})
	if next != endless {
		r.by(next)
	}
}
