// Package life is a context that ends on purpose, once and with a cause, at a fraction of what package context's cost. It knows what a
// request needs: one who waits for its end, and one life within it.
package life

import (
	"context"
	"sync"
	"time"
)

// A Life lasts until it is ended. The zero Life is ready.
type Life struct {
	mutex sync.Mutex
	cause error
	done  chan struct{} // made for who asks
	cut   func()        // what its end does to who waits
	turn  int           // of those who wait there, one after the other
	more  []func()      // and to others
	inner *Life
}

// End ends it, and what is within. Only the first cause counts.
func (l *Life) End(cause error) {
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
		inner.End(cause)
	}
}

// Why is its cause, or nil while it lasts.
func (l *Life) Cause() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.cause
}

// Hold puts a life within it, in place of another: that ends too when it ends, or at once.
func (l *Life) Hold(inner *Life) {
	l.mutex.Lock()
	cause := l.cause
	if cause == nil {
		l.inner = inner
	}
	l.mutex.Unlock()
	if cause != nil && inner != nil {
		inner.End(cause)
	}
}

// A Stop takes back what an end would do.
type Stop struct {
	life *Life
	turn int
	stop func() bool // of who has no turn
}

// Stop takes it back. It is false when the end has come before, or another Stop.
func (s Stop) Stop() bool {
	switch {
	case s.stop != nil:
		return s.stop()
	case s.life != nil:
		return s.life.forget(s.turn)
	default:
		return false
	}
}

// Await runs f when it ends, on the goroutine that ends it, unless it is stopped before.
func (l *Life) Await(f func()) Stop {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	switch {
	case l.cause != nil:
		go f()
		return Stop{}
	case l.cut == nil:
		l.cut = f
		l.turn++
		return Stop{life: l, turn: l.turn}
	default:
		at := len(l.more)
		l.more = append(l.more, f)
		var stopped bool
		return Stop{stop: func() bool {
			l.mutex.Lock()
			defer l.mutex.Unlock()
			if l.cause != nil || stopped {
				return false
			}
			stopped, l.more[at] = true, func() {}
			return true
		}}
	}
}

// AfterFunc is Await as package context looks for it, which then needs no goroutine.
func (l *Life) AfterFunc(f func()) (stop func() bool) { return l.Await(f).Stop }

// forget takes back what the end would do to who waits in a turn, if that is still so.
func (l *Life) forget(turn int) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.cut == nil || l.turn != turn {
		return false
	}
	l.cut = nil
	return true
}

// Done implements context.Context.
func (l *Life) Done() <-chan struct{} {
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
func (l *Life) Err() error {
	if l.Cause() != nil {
		return context.Canceled
	}
	return nil
}

// Deadline implements context.Context.
func (l *Life) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context.
func (l *Life) Value(any) any { return nil }

// After has f called when ctx ends, unless it is stopped before. A context that knows how to do that itself, as a Life does, is asked;
// that spares what package context would make for it.
func After(ctx context.Context, f func()) Stop {
	switch c := ctx.(type) {
	case interface{ Await(f func()) Stop }:
		return c.Await(f)
	case interface{ AfterFunc(f func()) func() bool }:
		return Stop{stop: c.AfterFunc(f)}
	default:
		return Stop{stop: context.AfterFunc(ctx, f)}
	}
}
