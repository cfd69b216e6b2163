package gateway

import (
	"context"
	"sync"
	"time"

	"sovereign/internal/life"
)

// A term is the life of a request, and the time that it has: for all of it, and for each wait in the try that runs. One timer
// serves both. It rings no later than the sooner of them, and mostly in vain: then it is set again.
type term struct {
	life.Life
	mutex sync.Mutex // of what follows
	inner *life.Life // the try that runs
	total time.Time  // when all of it is over
	quiet time.Time  // when the wait is; zero when nobody waits
	rings time.Time
	timer *time.Timer

	next, before *term // of those that run, beside it
	shard        int
}

// start gives a request its time. The timer begins with the first wait.
func (t *term) start(now time.Time, total time.Duration) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.total = now.Add(total)
	t.rings = t.total
}

// try puts the life of a try within it, which has patience for its first wait from now on.
func (t *term) try(l *life.Life, now time.Time, patience time.Duration) {
	t.mutex.Lock()
	t.inner = l
	t.await(now, patience)
	t.mutex.Unlock()
	t.Hold(l)
}

// over ends a try that may have ended before.
func (t *term) over(l *life.Life) {
	t.mutex.Lock()
	t.inner, t.quiet = nil, time.Time{}
	t.mutex.Unlock()
	t.Hold(nil)
	l.End(context.Canceled)
}

// wait begins a wait, which may last for patience from now on.
func (t *term) wait(now time.Time, patience time.Duration) {
	t.mutex.Lock()
	t.await(now, patience)
	t.mutex.Unlock()
}

func (t *term) await(now time.Time, patience time.Duration) {
	t.quiet = now.Add(patience)
	sooner := t.quiet.Before(t.rings)
	if sooner {
		t.rings = t.quiet
	}
	switch {
	case t.timer == nil:
		t.timer = time.AfterFunc(t.rings.Sub(now), t.ring)
	case sooner:
		t.timer.Reset(patience)
	}
}

// ring ends what has lasted too long.
func (t *term) ring() {
	t.mutex.Lock()
	now := time.Now()
	switch {
	case t.Why() != nil: // it was stopped meanwhile: the timer is not set again
		t.mutex.Unlock()
	case !now.Before(t.total):
		t.mutex.Unlock()
		t.End(errTooLong)
	case !t.quiet.IsZero() && !now.Before(t.quiet):
		silent := t.inner
		t.quiet = time.Time{}
		t.again(now)
		t.mutex.Unlock()
		if silent != nil {
			silent.End(errSilent)
		}
	default:
		t.again(now)
		t.mutex.Unlock()
	}
}

// again sets the timer for the next that may be over.
func (t *term) again(now time.Time) {
	t.rings = t.total
	if !t.quiet.IsZero() && t.quiet.Before(t.total) {
		t.rings = t.quiet
	}
	t.timer.Reset(t.rings.Sub(now))
}

// stop ends it without a cause of anybody's.
func (t *term) stop() {
	t.mutex.Lock()
	if t.timer != nil {
		t.timer.Stop()
	}
	t.mutex.Unlock()
	t.End(context.Canceled)
}
