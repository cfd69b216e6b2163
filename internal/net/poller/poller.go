// Package poller looks after many connections with one goroutine, each in its turn, as soon as something has come on it. A stream of a language
// model brings a few words at a time: a goroutine that wakes for each of them, and sleeps again, takes longer to do so than to pass them on.
package poller

import (
	"sync/atomic"
	"syscall"
	"time"
)

// A Place is what a connection has on a rota. Its turns are one after the other, and there is none before Wait and none when it has returned.
// The zero Place is ready.
type Registration struct {
	state atomic.Int32
	turn  func(now time.Time) bool
	over  chan any // of the wait; what a turn has panicked with, mostly nothing
	wheel *wheel   // which it keeps: on another, the news of one could come in the turn of the other, and be lost
}

// The states of a place.
const (
	away    int32 = iota // nobody waits
	waiting              // for a turn
	turning              // it has it
	leaving              // it has it, and it is the last
	gone                 // for good
)

// A conn is the connection that a place is for.
type conn = syscall.RawConn

// Wait has turn called whenever something may have come on the connection, until turn is false or the place is left. It is false at once
// where there is no rota for the connection. A turn runs where others wait for theirs: it reads what there is, to the last byte, and waits for
// nothing.
func (p *Registration) Wait(r *Poller, on conn, turn func(now time.Time) bool) bool {
	p.turn = turn
	if p.over == nil {
		p.over = make(chan any, 1)
	}
	if !p.state.CompareAndSwap(away, waiting) {
		return true
	}
	leave, ok := r.enter(on, p)
	if !ok && p.state.CompareAndSwap(waiting, away) {
		return false
	}
	panicked := <-p.over // also where it was left, or an old word for its number has given it a turn, before it could enter
	if ok {
		leave()
	}
	if panicked != nil {
		panic(panicked)
	}
	return true
}

// Leave ends the wait, and all that would come after it. It may be called from anywhere, a turn included, and does not wait for the end of one.
func (p *Registration) Cancel() {
	for {
		switch state := p.state.Load(); state {
		case away:
			if p.state.CompareAndSwap(away, gone) {
				return
			}
		case waiting:
			if p.state.CompareAndSwap(waiting, gone) {
				p.over <- nil
				return
			}
		case turning:
			if p.state.CompareAndSwap(turning, leaving) {
				return
			}
		default:
			return
		}
	}
}

// take has the place's turn, if it waits for one. A connection that has ended has none: that is for who waits to find out.
func (p *Registration) take(now time.Time, ended bool) {
	if !p.state.CompareAndSwap(waiting, turning) {
		return
	}
	var stays bool
	var panicked any
	if !ended {
		stays, panicked = p.guarded(now)
	}
	if stays && p.state.CompareAndSwap(turning, waiting) {
		return
	}
	if !p.state.CompareAndSwap(turning, away) {
		p.state.Store(gone) // left meanwhile
	}
	p.over <- panicked
}

// guarded keeps one connection's panic from the others: it is for who waits.
func (p *Registration) guarded(now time.Time) (stays bool, panicked any) {
	defer func() {
		if panicked = recover(); panicked != nil {
			stays = false
		}
	}()
	return p.turn(now), nil
}
