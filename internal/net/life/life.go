// Package life provides Life, a cancellable context.Context for the request path. It costs a fraction of what
// context.WithCancelCause does: the zero value is ready, one callback and one child need no allocation, and the Done
// channel is made only when something asks for it.
package life

import (
	"context"
	"sync"
	"time"

	"sovereign/internal/base/panics"
)

// A Life is a context that lasts until End is called, once and with a cause. The zero Life is ready for use. A Life
// must not be copied after first use.
type Life struct {
	mutex      sync.Mutex
	cause      error
	done       chan struct{} // made by the first call of Done
	first      func()        // the callback that needs no allocation; nil when the slot is free
	generation int           // counts the callbacks that had the slot, so that an old Callback cannot stop a newer one
	others     []func()      // callbacks registered while the slot was taken
	child      *Life
}

// End cancels l with a cause, runs its callbacks on the calling goroutine and ends its child with the same cause. Only
// the first call has an effect.
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
	first, others, child := l.first, l.others, l.child
	l.first, l.others, l.child = nil, nil, nil
	l.mutex.Unlock()
	if first != nil {
		first()
	}
	for _, f := range others {
		f()
	}
	if child != nil {
		child.End(cause)
	}
}

// Cause returns the cause given to End, or nil while l lasts.
func (l *Life) Cause() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.cause
}

// SetChild makes child end when l ends, at once if l has ended already. A Life has one child: the new child replaces
// the one before, and nil removes it.
func (l *Life) SetChild(child *Life) {
	l.mutex.Lock()
	cause := l.cause
	if cause == nil {
		l.child = child
	}
	l.mutex.Unlock()
	if cause != nil && child != nil {
		child.End(cause)
	}
}

// A Callback is a function that runs when a context ends. The zero Callback is one that has run already.
type Callback struct {
	life       *Life
	generation int
	stop       func() bool // for a callback that is not in its Life's first slot
}

// Stop removes the callback, as the function that context.AfterFunc returns does. It reports whether it did: false
// means that the callback has run, is running, or was stopped before.
func (c Callback) Stop() bool {
	switch {
	case c.stop != nil:
		return c.stop()
	case c.life != nil:
		return c.life.removeFirst(c.generation)
	default:
		return false
	}
}

// OnEnd runs f when l ends, on the goroutine that ends it, unless the Callback is stopped before. If l has ended, f
// runs at once on its own goroutine.
func (l *Life) OnEnd(f func()) Callback {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	switch {
	case l.cause != nil:
		go func() {
			defer panics.Contain(nil, "the end of a context")
			f()
		}()
		return Callback{}
	case l.first == nil:
		l.first = f
		l.generation++
		return Callback{life: l, generation: l.generation}
	default:
		at := len(l.others)
		l.others = append(l.others, f)
		var stopped bool
		return Callback{stop: func() bool {
			l.mutex.Lock()
			defer l.mutex.Unlock()
			if l.cause != nil || stopped {
				return false
			}
			stopped, l.others[at] = true, func() {}
			return true
		}}
	}
}

// AfterFunc is OnEnd in the form that package context looks for. With it, contexts derived from a Life start no
// goroutine.
func (l *Life) AfterFunc(f func()) (stop func() bool) { return l.OnEnd(f).Stop }

// removeFirst empties the first slot if it still holds the callback of a generation.
func (l *Life) removeFirst(generation int) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.first == nil || l.generation != generation {
		return false
	}
	l.first = nil
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

// Err implements context.Context. The cause is Cause's to return.
func (l *Life) Err() error {
	if l.Cause() != nil {
		return context.Canceled
	}
	return nil
}

// Deadline implements context.Context. A Life has none.
func (l *Life) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context. A Life has none.
func (l *Life) Value(any) any { return nil }

// A Notifier is a context with an OnEnd method, such as a Life or a context around one.
type Notifier interface {
	context.Context
	OnEnd(f func()) Callback
}

// AfterFunc is context.AfterFunc, and runs f when ctx ends unless the Callback is stopped before. A Notifier is called
// directly, which saves the allocations of package context.
func AfterFunc(ctx context.Context, f func()) Callback {
	switch c := ctx.(type) {
	case Notifier:
		return c.OnEnd(f)
	case interface{ AfterFunc(f func()) func() bool }:
		return Callback{stop: c.AfterFunc(f)}
	default:
		return Callback{stop: context.AfterFunc(ctx, f)}
	}
}
