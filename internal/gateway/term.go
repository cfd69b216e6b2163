package gateway

import (
	"context"
	"sync"
	"time"
)

// A life is a context that ends on purpose, once and with a cause. It is package context's at a tenth of the price: it knows what
// a request needs, which is one who waits for its end, and one life within it.
type life struct {
	mutex sync.Mutex
	cause error
	done  chan struct{} // made for who asks
	cut   func()        // what its end does to who waits
	more  []func()      // and to others
	inner *life         // ends with it
}

// end ends it. Only the first cause counts.
func (l *life) end(cause error) {
	l.mutex.Lock()
	if l.cause != nil {
		l.mutex.Unlock()
		return
	}
	l.cause = cause
	if l.done != nil {
		close(l.done)
	}
	cut, more, inner := l.cut, l.more, l.inner
	l.cut, l.more, l.inner = nil, nil, nil
	l.mutex.Unlock()
	if cut != nil {
		cut()
	}
	for _, f := range more {
		f()
	}
	if inner != nil {
		inner.end(cause)
	}
}

// why is its cause, or nil while it lasts.
func (l *life) why() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.cause
}

// AfterFunc runs f when it ends, unless stop is called before: then stop returns true. Package context looks for it by this name,
// and so does whoever wants to hear of an end without a goroutine.
func (l *life) AfterFunc(f func()) (stop func() bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	switch {
	case l.cause != nil:
		go f()
		return func() bool { return false }
	case l.cut == nil:
		l.cut = f
		return l.forget
	default:
		at := len(l.more)
		l.more = append(l.more, f)
		return func() bool {
			l.mutex.Lock()
			defer l.mutex.Unlock()
			if l.cause != nil || l.more[at] == nil {
				return false
			}
			l.more[at] = func() {}
			return true
		}
	}
}

// forget takes back what the end would do to the first who waits.
func (l *life) forget() bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	waited := l.cut != nil
	l.cut = nil
	return waited
}

// Done implements context.Context.
func (l *life) Done() <-chan struct{} {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.cause != nil {
			close(l.done)
		}
	}
	return l.done
}

// Err implements context.Context.
func (l *life) Err() error {
	if l.why() != nil {
		return context.Canceled
	}
	return nil
}

// Deadline implements context.Context.
func (l *life) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context.
func (l *life) Value(any) any { return nil }

// A term is the life of a request, and the time that it has: for all of it, and for each wait in the try that runs. One timer
// serves both. It rings no later than the sooner of them, and mostly in vain: then it is set again.
type term struct {
	life
	total time.Time // when all of it is over
	quiet time.Time // when the wait is; zero when nobody waits
	rings time.Time
	timer *time.Timer
}

// start gives a request its time.
func (t *term) start(total time.Duration) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	now := time.Now()
	t.total = now.Add(total)
	t.rings = t.total
	t.timer = time.AfterFunc(total, t.ring)
}

// try puts the life of a try within it, which has patience for its first wait.
func (t *term) try(l *life, patience time.Duration) {
	t.mutex.Lock()
	cause := t.cause
	if cause == nil {
		t.inner = l
		t.await(patience)
	}
	t.mutex.Unlock()
	if cause != nil {
		l.end(cause)
	}
}

// over ends a try that may have ended before.
func (t *term) over(l *life) {
	t.mutex.Lock()
	if t.inner == l {
		t.inner, t.quiet = nil, time.Time{}
	}
	t.mutex.Unlock()
	l.end(context.Canceled)
}

// wait begins a wait, which may last for patience.
func (t *term) wait(patience time.Duration) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.await(patience)
}

func (t *term) await(patience time.Duration) {
	now := time.Now()
	if t.quiet = now.Add(patience); t.quiet.Before(t.rings) {
		t.rings = t.quiet
		t.timer.Reset(patience)
	}
}

// ring ends what has lasted too long.
func (t *term) ring() {
	t.mutex.Lock()
	now := time.Now()
	switch {
	case t.cause != nil:
		t.mutex.Unlock()
	case !now.Before(t.total):
		t.mutex.Unlock()
		t.end(errTooLong)
	case !t.quiet.IsZero() && !now.Before(t.quiet):
		silent := t.inner
		t.quiet = time.Time{}
		t.again(now)
		t.mutex.Unlock()
		if silent != nil {
			silent.end(errSilent)
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
	t.timer.Stop()
	t.end(context.Canceled)
}
