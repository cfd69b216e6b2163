package gateway

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/text/sse"
	"sovereign/internal/wire/upstream"
)

// eventStream is the content type of every stream.
const eventStream = "text/event-stream; charset=utf-8"

const (
	maxEvent  = 8 << 20 // bytes of one event
	maxText   = 4 << 20 // bytes of delivered text that are kept for counting
	maxBefore = 1 << 20 // bytes of events before the first content
	// afterDone is how long a provider gets to end an answer that is over, so that its connection can be used again.
	afterDone = time.Second
)

// A relay is a stream on its way: what has been read and is not whole yet, and what waits to be written.
type relay struct {
	*run
	in       *source
	events   sse.Reader
	out      []byte // events for the caller, in one write per read
	mould    *mould // of the last, where it was of a kind that has one: form
	form     mould
	quoted   []byte // a text that has escapes
	end      []byte // what is written when the charge is recorded
	choices  choices
	sequence int64     // of the last event, where they are numbered
	finished bool      // every choice has said so
	ended    bool      // the provider has said so
	content  bool      // some was read
	reached  bool      // some was sent to the caller
	sent     int       // how much of the delivered text
	last     time.Time // when something was sent
	ping     *time.Timer
	mute     bool // no more pings
	tape     *tape
	ride     ride
}

// stream relays server-sent events. Nothing is written before the first content, so that until then another try is
// possible; the end is written only when the charge is recorded.
func (r *run) stream(in *source, response *upstream.Response) *failure {
	if !strings.HasPrefix(strings.ToLower(response.ContentType), "text/event-stream") {
		return r.garbage(fmt.Errorf("a stream was asked for and %q came", response.ContentType))
	}
	s := &relay{run: r, in: in, events: sse.Reader{Most: maxEvent}}
	if r.logs {
		s.tape = newTape()
	}
	s.out = borrowed()
	defer func() { lend(s.out) }()
	in.patience = r.settings.StallTimeout
	defer func() {
		if s.ping != nil {
			s.ping.Stop()
		}
	}()
	for !s.ended {
		piece, err := s.next()
		failed := s.take(piece)
		if failed == nil && err != nil && !s.ended { // what comes after the end is of no interest
			failed = s.over(err)
		}
		if failed != nil {
			return s.fail(failed)
		}
		if !s.ended { // what comes with the end is sent with it
			s.send()
		}
	}
	return s.finish()
}

// lines are buffers for what waits to be written.
var lines = sync.Pool{New: func() any { return new([]byte) }}

// maxLine is how large a buffer may be that is kept for another stream.
const maxLine = 64 << 10

// firstLine is for the events of a slow stream: one at a time.
const firstLine = 1 << 10

func borrowed() []byte {
	buffer, _ := lines.Get().(*[]byte)
	return (*buffer)[:0]
}

func lend(buffer []byte) {
	if cap(buffer) > 0 && cap(buffer) <= maxLine {
		lines.Put(&buffer)
	}
}

// A verdict is what an event means to the road. What the caller sees of it was put in line.
type verdict struct {
	content bool // it holds something of the answer
	last    bool // the answer is over: what is shown waits until the charge is recorded
}

// choices are those that have said something, and those that have finished.
type choices struct{ said, over [maxChoices / 64]uint64 }

func (c *choices) hear(index int, over bool) {
	bit := uint64(1) << (index % 64)
	if c.said[index/64] |= bit; over {
		c.over[index/64] |= bit
	}
}

func (c *choices) none() bool { return *c == choices{} }

// finished reports whether there is one, and each has finished.
func (c *choices) finished() bool { return !c.none() && c.said == c.over }

// take reads events.
func (s *relay) take(piece []byte) *failure {
	s.tape.add(piece)
	for len(piece) > 0 && !s.ended {
		if s.mould != nil && s.events.AtBoundary() && !s.memory.wanted {
			n := s.skim(piece)
			if failed := s.heard(n > 0); failed != nil {
				return failed
			}
			piece = piece[n:]
		}
		e, rest, ok, err := s.events.Next(piece)
		if err != nil {
			return s.garbage(err)
		}
		if piece = rest; !ok {
			continue
		}
		if failed := s.dispatch(e); failed != nil {
			return failed
		}
	}
	return nil
}

// skim takes the events that a piece begins with and that have the form of the one before, and is how long they are.
func (s *relay) skim(piece []byte) (n int) {
	for {
		c, size := s.mould.next(piece[n:])
		if size == 0 || !s.deliver(&c, s.mould.text) {
			break
		}
		if n += size; !s.mould.same {
			s.out = s.mould.pour(s.out, &c)
		}
	}
	if s.mould.same {
		s.out = append(s.out, piece[:n]...)
	}
	return n
}

// dispatch takes one event.
func (s *relay) dispatch(e sse.Event) *failure {
	if cap(s.out) == 0 {
		s.out = make([]byte, 0, firstLine)
	}
	before := len(s.out)
	v, failed := s.ask.Endpoint.event(s, e)
	if failed != nil {
		return failed
	}
	if v.last {
		s.ended, s.end = true, append(s.end, s.out[before:]...)
		s.out = s.out[:before]
		return nil
	}
	if !s.begun && len(s.out) > maxBefore+4*len(s.ask.Body) { // some repeat what was asked before they answer
		return s.garbage(errors.New("the stream says nothing"))
	}
	return s.heard(v.content)
}

// heard records what was delivered, if that was content, and begins the answer as soon as there is something of it.
func (s *relay) heard(content bool) *failure {
	if content {
		s.content = true
		if err := s.progress(); err != nil && !s.begun {
			return &failure{class: over, err: err, fault: unrecorded(err)}
		}
	}
	if content || s.finished {
		s.begin()
	}
	return nil
}

// keep keeps text that a model wrote, for counting.
func (s *relay) keep(text []byte) {
	if cap(s.delivered) == 0 {
		s.delivered = make([]byte, 0, firstLine)
	}
	if len(s.delivered) < maxText {
		s.delivered = append(s.delivered, text...)
	}
}

// begin writes the head, and from then on keeps an idle stream alive.
func (s *relay) begin() {
	if s.begun {
		return
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	s.clock.ours()
	s.gateway.Metrics.first(s.run)
	s.judge(nil) // it answers: how long a stream goes on is no matter of its circuit's
	s.head(eventStream, -1)
	s.last = s.clock.now
	s.ping = time.AfterFunc(s.gateway.pingEvery, s.keepAlive)
}

// keepAlive writes a comment between two events. It is no event of its own: an empty one breaks some clients.
func (s *relay) keepAlive() {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.mute || s.term.Cause() != nil {
		return
	}
	if quiet := time.Since(s.last); quiet < s.gateway.pingEvery { // the timer is not set anew with every event
		s.ping.Reset(s.gateway.pingEvery - quiet)
		return
	}
	if s.run.out.Send([]byte(": ping\n")) != nil {
		s.term.End(errLeft)
	}
	s.ping.Reset(s.gateway.pingEvery)
}

// send writes what is in line, once the answer has begun.
func (s *relay) send() {
	if !s.begun || len(s.out) == 0 {
		return
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	s.delivers(s.write(s.out))
	s.out, s.last = s.out[:0], s.clock.now
}

// over is the end of the connection. Whether that was the end of the answer, the events tell and never the socket.
func (s *relay) over(err error) *failure {
	if errors.Is(err, io.EOF) && s.finished && s.in.life.Cause() == nil {
		s.ended, s.end = true, []byte(s.ask.Endpoint.end)
		return nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return s.lost(s.in.life, err)
}

// fail ends a stream that broke off: before content another try is possible, after it the caller is told in the stream.
func (s *relay) fail(f *failure) *failure {
	if !s.begun {
		return f
	}
	s.stopPings()
	outcome := Died
	if errors.Is(s.term.Cause(), errLeft) {
		outcome = Left
	} else {
		s.failed(s.model, f)
		s.tell(f.fault)
	}
	s.term.End(f.err) // the provider stops working for nobody before anything is counted
	if s.delivered = s.delivered[:s.sent]; !s.reached {
		outcome = Nothing
	}
	later, _ := s.settle(outcome) // what cannot be recorded is owed
	later()
	return nil
}

// tell ends the stream with an error in it.
func (s *relay) tell(f *fault.Fault) {
	s.out = append(s.out, s.ask.Endpoint.broken(s, f)...)
	s.send()
}

// close writes what is in line, and the end. It is false when the caller could not be sent all of it.
func (s *relay) close() bool {
	s.writing.Lock()
	defer s.writing.Unlock()
	sent := s.wrote(s.run.out.End(append(s.out, s.end...)))
	s.delivers(sent)
	s.out = s.out[:0]
	return sent
}

func (s *relay) stopPings() {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mute = true
	s.ping.Stop()
}

// finish records the charge, and then writes the end.
func (s *relay) finish() *failure {
	s.begin()
	s.stopPings()
	if errors.Is(s.term.Cause(), errLeft) {
		return s.fail(&failure{class: over, err: errLeft, fault: ending(errLeft)})
	}
	later, err := s.settle(Finished)
	whole := false
	if err != nil {
		s.tell(unrecorded(err))
	} else {
		s.gathered()
		whole = s.close()
	}
	later()
	if s.tape != nil && whole {
		if answer, err := s.tape.end(); err != nil {
			s.gateway.Recorder.Skip(err)
		} else {
			s.log(answer, s.used, s.cost(s.used))
		}
	}
	s.in.patience = 0 // once, and not again with every byte
	s.term.wait(s.clock.now, afterDone)
	for left := maxRefusal; left > 0; { // to the end, or not: it is of no use any more
		piece, err := s.in.next()
		if err != nil {
			break
		}
		left -= len(piece)
	}
	return nil
}
