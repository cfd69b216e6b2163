package gateway

import (
	"time"

	"sovereign/internal/net/fastpath"
)

// A stream that goes on for a while is looked after by the gateway's rota, with all others. In its turns it passes on events that have the form
// of the one before, to a caller who takes them at once: that needs no waiting. Whatever else comes ends the ride, and is for
// the stream's own goroutine.

// A ride is what a stream needs for it.
type ride struct {
	on      fastpath.PolledBody                // the provider's side; nil where there is none
	send    func(now time.Time, p []byte) bool // the caller's side
	turn    func(time.Time) bool               // a turn of it
	pieces  int                                // that came before it
	settled bool                               // it goes on for a while
	rest    []byte                             // what came in the last turn and was not for it
	vain    int                                // rides, one after the other, that passed nothing on
	owed    bool                               // what was put in line for the caller was not sent whole
}

// A stream is taken for one that goes on for a while when the provider took its time for a piece, or after so many. A short answer that is there
// at once is over sooner by itself.
const (
	slow = 5 * time.Millisecond
	many = 16
)

// muchAtOnce is how many bytes end a ride: a provider who sends faster than can be passed on would have the turn for ever, and its caller nothing.
const muchAtOnce = 64 << 10

// inVain is after how many rides that pass nothing on a stream is left to its own goroutine: to get on and off costs more than it saves.
const inVain = 8

// next is what the provider sends next, beside what is passed on in turns.
func (s *relay) next() ([]byte, error) {
	if s.ride.settled && s.calm() {
		if rest := s.rode(); len(rest) > 0 {
			return rest, nil
		}
	}
	before := s.clock.now
	piece, err := s.in.next()
	s.ride.pieces++
	s.ride.settled = s.ride.settled || s.ride.pieces >= many || s.clock.now.Sub(before) >= slow
	return piece, err
}

// calm reports whether a stream can be looked after in turns.
func (s *relay) calm() bool {
	if !s.begun || s.mould == nil || s.memory.wanted || !s.events.AtBoundary() || s.gateway.Poller == nil {
		return false
	}
	r := &s.ride
	if r.turn == nil {
		writer, able := s.run.out.(fastpath.TrySender)
		on, rides := s.in.from.(fastpath.PolledBody)
		r.turn = s.pass
		if able && rides {
			r.on, r.send = on, writer.TrySend()
		}
	}
	return r.on != nil && r.send != nil
}

// rode rides until something is to be done that is not for turns, and is what has come and was not passed on.
func (s *relay) rode() (rest []byte) {
	r := &s.ride
	s.term.wait(s.clock.now, s.in.patience)
	before := len(s.delivered)
	on := r.on.Poll(s.gateway.Poller, r.turn)
	if r.vain++; len(s.delivered) > before {
		r.vain = 0
	}
	if !on || r.vain == inVain {
		r.on = nil
	}
	s.clock.theirs() // turns are short
	if r.owed {
		r.owed = false
		s.writing.Lock()
		s.delivers(s.write(nil))
		s.writing.Unlock()
	}
	rest, r.rest = r.rest, nil
	return rest
}

// pass is a turn: it passes on what has come. It is false when there is something else to do.
func (s *relay) pass(now time.Time) bool {
	if now.Sub(s.recorded) >= progressEvery || !s.writing.TryLock() {
		return false
	}
	defer s.writing.Unlock()
	stays := true
	for stays {
		piece, ok := s.ride.on.TryNext()
		if len(piece) == 0 {
			stays = ok
			break
		}
		n := s.skim(piece)
		s.tape.add(piece[:n])
		if n < len(piece) {
			s.ride.rest, stays = piece[n:], false
		}
		if len(s.out) >= muchAtOnce {
			stays = false
		}
	}
	if len(s.out) == 0 {
		return stays
	}
	s.term.wait(now, s.in.patience)
	s.last = now
	if !s.ride.send(now, s.out) {
		s.out, s.ride.owed = s.out[:0], true
		return false
	}
	s.out = s.out[:0]
	s.delivers(true)
	return stays
}

// delivers notes that all that was put in line has reached the caller, if it has.
func (s *relay) delivers(sent bool) {
	if sent {
		s.sent, s.reached = len(s.delivered), s.content
	}
}
