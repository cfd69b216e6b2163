package gateway

import (
	"time"

	"sovereign/internal/net/fastpath"
)

// A stream that lasts is served by the gateway's poller, together with all others. In its turns it passes on events
// that match the template, to a caller that takes them without blocking. Anything else ends the polling, and is left to
// the stream's own goroutine.

// A poll is the state of a polled stream.
type poll struct {
	body    fastpath.PolledBody                // the provider's side; nil if it cannot be polled
	send    func(now time.Time, p []byte) bool // the caller's side; nil if it can block
	turn    func(time.Time) bool               // passOn, as a function that is made once
	pieces  int                                // that were read before polling
	lasting bool                               // the stream is worth polling
	rest    []byte                             // what was read in the last turn and not passed on
	idle    int                                // consecutive polls that passed nothing on
	unsent  bool                               // a part of what was sent is still buffered
}

// A stream is worth polling when a read has taken slowRead, or after manyPieces. A short answer that arrives at once
// ends sooner without polling.
const (
	slowRead   = 5 * time.Millisecond
	manyPieces = 16
)

// maxTurn bounds the bytes of one turn: a provider that sends faster than the caller reads would otherwise keep the
// turn for ever, and nothing would be sent.
const maxTurn = 64 << 10

// maxIdlePolls is after how many polls that passed nothing on a stream is not polled any more: each costs more than it
// saves.
const maxIdlePolls = 8

// next returns what the provider sends next, except for what was passed on while polling.
func (s *relay) next() ([]byte, error) {
	if s.poll.lasting && s.canPoll() {
		if rest := s.pollUntilInterrupted(); len(rest) > 0 {
			return rest, nil
		}
	}
	before := s.run.clock.now
	piece, err := s.source.next()
	s.poll.pieces++
	s.poll.lasting = s.poll.lasting || s.poll.pieces >= manyPieces || s.run.clock.now.Sub(before) >= slowRead
	return piece, err
}

// canPoll reports whether the stream can be polled now.
func (s *relay) canPoll() bool {
	if !s.run.response.begun || s.template == nil || s.run.cache.store || !s.events.AtBoundary() ||
		s.run.gateway.Poller == nil || s.run.response.left.Load() {
		return false
	}
	p := &s.poll
	if p.turn == nil {
		p.turn = s.passOn
		writer, canSend := s.run.response.out.(fastpath.TrySender)
		body, canRead := s.source.from.(fastpath.PolledBody)
		if canSend && canRead {
			p.body, p.send = body, writer.TrySend()
		}
	}
	return p.body != nil && p.send != nil
}

// pollUntilInterrupted polls the stream until something else must be done. It returns what was read and not passed on.
func (s *relay) pollUntilInterrupted() (rest []byte) {
	p, r := &s.poll, s.run
	r.deadline.LimitWait(r.clock.now, s.source.timeout)
	before := len(r.bill.delivered)
	ok := p.body.Poll(r.gateway.Poller, p.turn)
	if p.idle++; len(r.bill.delivered) > before {
		p.idle = 0
	}
	if !ok || p.idle == maxIdlePolls {
		p.body = nil
	}
	r.clock.waitedForOthers() // the turns themselves are short
	if p.unsent {
		p.unsent = false
		s.sendUnsent()
	}
	rest, p.rest = p.rest, nil
	return rest
}

// sendUnsent waits until the caller has taken what is buffered.
func (s *relay) sendUnsent() {
	s.run.response.writing.Lock()
	defer s.run.response.writing.Unlock()
	s.noteSent(s.run.response.send(nil))
}

// passOn is one turn on the poller's goroutine: it passes on what has arrived, without blocking. It returns false when
// something else must be done.
func (s *relay) passOn(now time.Time) bool {
	r := s.run
	if r.bill.progressDue(now) || r.response.left.Load() || !r.response.writing.TryLock() {
		return false
	}
	defer r.response.writing.Unlock()
	again := true
	for again {
		piece, ok := s.poll.body.TryNext()
		if len(piece) == 0 {
			again = ok
			break
		}
		n := s.takeMatching(piece)
		s.recording.add(piece[:n])
		if n < len(piece) {
			s.poll.rest, again = piece[n:], false
		}
		if len(s.pending) >= maxTurn {
			again = false
		}
	}
	if len(s.pending) == 0 {
		return again
	}
	r.deadline.LimitWait(now, s.source.timeout)
	s.lastSent = now
	if !s.poll.send(now, s.pending) {
		s.pending, s.poll.unsent = s.pending[:0], true
		return false
	}
	s.pending = s.pending[:0]
	s.noteSent(true)
	return again
}
