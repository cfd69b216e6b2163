package deadline

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"sovereign/internal/base/panics"
)

// A Registry holds the deadlines of all running requests. It ends each when its time is over, and can end all of them.
// The zero Registry is ready. It is sharded, so that requests do not contend for one lock.
type Registry struct {
	shards [16]struct {
		sync.Mutex
		first *Deadline // head of a doubly linked list
	}
	stopped atomic.Pointer[error]
	timer   sharedTimer
}

// Add registers a request until Remove. After Stop it is ended at once.
func (r *Registry) Add(d *Deadline) {
	d.registry = r
	d.shard = rand.N(len(r.shards))
	shard := &r.shards[d.shard]
	shard.Lock()
	if d.next = shard.first; d.next != nil {
		d.next.previous = d
	}
	shard.first = d
	shard.Unlock()
	r.checkBy(d.due())
	if cause := r.stopped.Load(); cause != nil {
		d.End(*cause)
	}
}

// Remove takes a request out of the registry.
func (r *Registry) Remove(d *Deadline) {
	shard := &r.shards[d.shard]
	shard.Lock()
	defer shard.Unlock()
	if d.next != nil {
		d.next.previous = d.previous
	}
	if d.previous != nil {
		d.previous.next = d.next
	} else {
		shard.first = d.next
	}
}

// each calls f for every running request. None of a shard is removed while f runs for that shard.
func (r *Registry) each(f func(*Deadline)) {
	for i := range r.shards {
		shard := &r.shards[i]
		shard.Lock()
		for d := shard.first; d != nil; d = d.next {
			call(f, d)
		}
		shard.Unlock()
	}
}

// call calls f for a request. Its end runs callbacks: a panic of one must not keep the others from ending.
func call(f func(*Deadline), d *Deadline) {
	defer panics.Contain(nil, "the end of a request")
	f(d)
}

// Stop ends all running requests, and every request that is added later.
func (r *Registry) Stop(cause error) {
	r.stopped.Store(&cause) // before the loop: a request that is added during it sees the cause
	r.each(func(d *Deadline) { d.End(cause) })
}

// EndIf ends each running request for which f returns a cause.
func (r *Registry) EndIf(f func(*Deadline) error) {
	r.each(func(d *Deadline) {
		if cause := f(d); cause != nil {
			d.End(cause)
		}
	})
}

// A sharedTimer fires when the first of all deadlines is due. Most of the time that deadline has moved by then, and the
// timer is set again: it fires in vain about once per timeout, not once per request.
type sharedTimer struct {
	next  atomic.Int64 // the instant at which it fires; 0 when it is not set
	mutex sync.Mutex   // guards what follows
	fired instant      // when it last fired
	timer *time.Timer
}

// minInterval is the least time between two firings, so that many deadlines that are due one after the other do not
// each cause a scan of all.
const minInterval = 20 * time.Millisecond

// checkBy makes sure that the timer fires at due or before, as far as minInterval allows.
func (r *Registry) checkBy(due instant) {
	if next := instant(r.timer.next.Load()); next != 0 && next <= due {
		return
	}
	t := &r.timer
	t.mutex.Lock()
	defer t.mutex.Unlock()
	due = max(due, t.fired+instant(minInterval))
	if next := instant(t.next.Load()); next != 0 && next <= due {
		return
	}
	t.next.Store(int64(due))
	if in := time.Duration(due - instantOf(time.Now())); t.timer == nil {
		t.timer = time.AfterFunc(in, r.checkAll)
	} else {
		t.timer.Reset(in)
	}
}

// checkAll ends what has timed out, and sets the timer for the next deadline.
func (r *Registry) checkAll() {
	now := instantOf(time.Now())
	r.timer.mutex.Lock()
	r.timer.fired = now
	r.timer.next.Store(0) // a wait that begins from now on sets the timer itself
	r.timer.mutex.Unlock()
	next := never
	r.each(func(d *Deadline) {
		if d.due() <= now {
			d.check(now)
		}
		if d.Cause() == nil {
			next = min(next, d.due())
		}
	})
	if next != never {
		r.checkBy(next)
	}
}
