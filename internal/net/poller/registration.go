//go:build linux

package poller

import (
	"sync/atomic"
	"syscall"
	"time"
)

// A Registration is one connection's use of a Poller. Its callback is never called concurrently with itself, and only
// while Wait runs. The zero Registration is ready for use. It may be used for one Wait after another, always for the
// same connection.
type Registration struct {
	state    atomic.Int32
	callback func(now time.Time) bool
	done     chan any // ends Wait; carries the value of a panic, or nil

	// loop stays the same for all Waits. dispatch drops an event while the callback runs: with two loops, a late event
	// of one would make it drop an event of the other.
	loop *loop
}

// The states of a Registration.
const (
	idle       int32 = iota // no Wait is under way
	armed                   // Wait is under way, and the callback is not running
	running                 // the callback is running
	cancelling              // the callback is running, and Cancel was called
	cancelled               // for good
)

// Wait calls callback on a goroutine of the Poller whenever conn may be readable, until callback returns false, the
// connection ends, or Cancel is called. It returns false at once if the Poller cannot serve the connection.
//
// Events are edge-triggered: callback must read until there is nothing left. It must not block, because it holds up all
// other connections of its goroutine. If it panics, Wait panics with the same value.
func (r *Registration) Wait(p *Poller, conn syscall.RawConn, callback func(now time.Time) bool) bool {
	r.callback = callback
	if r.done == nil {
		r.done = make(chan any, 1)
	}
	if !r.state.CompareAndSwap(idle, armed) {
		return true
	}
	remove, ok := r.add(p, conn)
	if !ok && r.state.CompareAndSwap(armed, idle) {
		return false
	}
	// Also when add has failed, if the state has changed before: Cancel was called, or an event that was meant for an
	// earlier connection with the same file descriptor has run the callback.
	panicked := <-r.done
	if ok {
		remove()
	}
	if panicked != nil {
		panic(panicked)
	}
	return true
}

// add registers conn with the registration's loop.
func (r *Registration) add(p *Poller, conn syscall.RawConn) (remove func(), ok bool) {
	if p == nil {
		return nil, false
	}
	if r.loop == nil {
		r.loop = p.pick()
	}
	if r.loop == nil {
		return nil, false
	}
	return r.loop.add(conn, r)
}

// Cancel ends Wait, and makes every later one return at once. It may be called from any goroutine, from the callback
// too. It does not wait for a callback that is running.
func (r *Registration) Cancel() {
	for {
		switch state := r.state.Load(); state {
		case idle:
			if r.state.CompareAndSwap(idle, cancelled) {
				return
			}
		case armed:
			if r.state.CompareAndSwap(armed, cancelled) {
				r.done <- nil
				return
			}
		case running:
			if r.state.CompareAndSwap(running, cancelling) {
				return
			}
		default:
			return
		}
	}
}

// dispatch handles an event: it runs the callback, if Wait is under way. When the connection has ended it ends Wait
// instead, so that the end is found by a blocking read on the goroutine of Wait.
func (r *Registration) dispatch(now time.Time, ended bool) {
	if !r.state.CompareAndSwap(armed, running) {
		return
	}
	var again bool
	var panicked any
	if !ended {
		again, panicked = r.call(now)
	}
	if again && r.state.CompareAndSwap(running, armed) {
		return
	}
	if !r.state.CompareAndSwap(running, idle) {
		r.state.Store(cancelled) // it was cancelling
	}
	r.done <- panicked
}

// call runs the callback and recovers its panic, which must not end the goroutine that other connections share.
func (r *Registration) call(now time.Time) (again bool, panicked any) {
	defer func() {
		if panicked = recover(); panicked != nil {
			again = false
		}
	}()
	return r.callback(now), nil
}
