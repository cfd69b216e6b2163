package gateway

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/outcome"
	"sovereign/internal/base/panics"
	"sovereign/internal/plane/gateway/answer"
	"sovereign/internal/plane/gateway/request"
	"sovereign/internal/text/sse"
	"sovereign/internal/wire/upstream"
)

const (
	maxBeforeContent = 1 << 20 // bytes of events before the first content
	// drainTimeout is how long a provider gets to end an answer that has finished, so that its connection can be
	// reused.
	drainTimeout = time.Second
	maxDrained   = 64 << 10 // bytes that are read for it
)

// A streamFormat is how an endpoint's streams are read.
type streamFormat struct {
	// reads one event, and appends what the caller sees of it to pending
	event   func(*relay, sse.Event) (eventEffect, *failure)
	end     string                            // ends a stream whose provider did not end it
	failure func(*relay, *fault.Fault) []byte // returns the event that ends a stream with an error
}

// An eventEffect is what an event means for the relay.
type eventEffect struct {
	content bool // it holds a part of the answer
	last    bool // the answer has ended: what the caller sees of it is sent after the charge is recorded
}

// A relay passes a stream on: events that are not complete yet, and bytes that wait to be written.
type relay struct {
	run    *run
	format *streamFormat
	source *source
	events sse.Reader

	pending  []byte           // events for the caller, sent in one write per read
	template *answer.Template // of the last event, if that had one: &learned
	learned  answer.Template
	end      []byte // is sent after the charge is recorded

	choices  choices
	sequence int64 // number of the last event, where events are numbered
	finished bool  // every choice has finished
	ended    bool  // the provider has ended the stream
	content  bool  // some was read

	textSent int       // bytes of the delivered text that were sent
	lastSent time.Time // when something was last sent
	unsent   int       // bytes that were read after the caller had left

	ping      *time.Timer
	pingsOff  bool
	recording *recording
	poll      poll
}

// relayStream relays server-sent events. Nothing is written before the first content: until then another attempt is
// possible. The end is written after the charge is recorded.
func (r *run) relayStream(format *streamFormat, response *upstream.Response) *failure {
	if !strings.HasPrefix(strings.ToLower(response.ContentType), "text/event-stream") {
		return unreadable(r.bill.model, fmt.Errorf("a stream was asked for and %q came", response.ContentType))
	}
	s := &relay{run: r, format: format, source: &r.attempt.source, events: sse.Reader{Most: maxEvent}}
	if r.progress.logged {
		s.recording = newRecording()
	}
	s.pending = getBuffer()
	defer func() { putBuffer(s.pending) }()
	s.source.timeout = r.settings.StallTimeout
	defer func() {
		if s.ping != nil {
			s.ping.Stop()
		}
	}()
	for !s.ended {
		piece, err := s.next()
		s.boundUnsent(len(piece))
		failed := s.take(piece)
		if failed == nil && err != nil && !s.ended { // an error after the end does not matter
			failed = s.disconnected(err)
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

// maxUnsent bounds what is read of a stream after its caller has left.
const maxUnsent = 1 << 20

// boundUnsent ends a stream that goes on for long after its caller has left.
func (s *relay) boundUnsent(n int) {
	if !s.run.response.left.Load() {
		return
	}
	if s.unsent += n; s.unsent > maxUnsent {
		s.run.deadline.End(errLeft)
	}
}

// buffers are for pending events.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxPooled bounds a buffer that is kept for another stream.
const maxPooled = 64 << 10

func getBuffer() []byte {
	buffer, _ := buffers.Get().(*[]byte)
	return (*buffer)[:0]
}

func putBuffer(buffer []byte) {
	if cap(buffer) > 0 && cap(buffer) <= maxPooled {
		buffers.Put(&buffer)
	}
}

// choices are bit sets of the choices that have begun, and of those that have finished.
type choices struct {
	begun, ended [request.MaxChoices / 64]uint64
}

func (c *choices) note(index int, ended bool) {
	bit := uint64(1) << (index % 64)
	if c.begun[index/64] |= bit; ended {
		c.ended[index/64] |= bit
	}
}

func (c *choices) none() bool { return *c == choices{} }

// finished reports whether there is a choice, and every choice has finished.
func (c *choices) finished() bool { return !c.none() && c.begun == c.ended }

// take reads the events of a piece.
func (s *relay) take(piece []byte) *failure {
	s.recording.add(piece)
	for len(piece) > 0 && !s.ended {
		if s.template != nil && s.events.AtBoundary() && !s.run.cache.store {
			n := s.takeMatching(piece)
			if failed := s.noteContent(n > 0); failed != nil {
				return failed
			}
			piece = piece[n:]
		}
		e, rest, ok, err := s.events.Next(piece)
		if err != nil {
			return unreadable(s.run.bill.model, err)
		}
		if piece = rest; !ok {
			continue
		}
		if failed := s.takeEvent(e); failed != nil {
			return failed
		}
	}
	return nil
}

// takeMatching takes the events at the front of a piece that match the template, without decoding them. It returns
// their length.
func (s *relay) takeMatching(piece []byte) (n int) {
	t := s.template
	for {
		c, size := t.Next(piece[n:])
		if size == 0 || !s.deliver(t, &c) {
			break
		}
		if n += size; !t.Verbatim {
			s.pending = t.Append(s.pending, &c)
		}
	}
	if t.Verbatim {
		s.pending = append(s.pending, piece[:n]...)
	}
	return n
}

// deliver keeps the text of an event that matches the template. It returns false if the text cannot be read.
func (s *relay) deliver(t *answer.Template, c *answer.Slots) bool {
	text, ok := t.Text(c)
	if ok {
		s.run.bill.deliver(text)
	}
	return ok
}

// takeEvent takes one event.
func (s *relay) takeEvent(e sse.Event) *failure {
	if cap(s.pending) == 0 {
		s.pending = make([]byte, 0, firstBuffer)
	}
	before := len(s.pending)
	effect, failed := s.format.event(s, e)
	if failed != nil {
		return failed
	}
	if effect.last {
		s.ended, s.end = true, append(s.end, s.pending[before:]...)
		s.pending = s.pending[:before]
		return nil
	}
	// some repeat the request first
	if !s.run.response.begun && len(s.pending) > maxBeforeContent+4*len(s.run.request.Body) {
		return unreadable(s.run.bill.model, errors.New("the stream says nothing"))
	}
	return s.noteContent(effect.content)
}

// noteContent records the progress if there was content, and begins the answer as soon as there is something of it.
func (s *relay) noteContent(content bool) *failure {
	if content {
		s.content = true
		if s.run.bill.progressDue(s.run.clock.now) {
			s.noteUsageSoFar()
		}
		if err := s.run.bill.recordProgress(s.run.clock.now); err != nil && !s.run.response.begun {
			return unrecorded(err)
		}
	}
	if content || s.finished {
		s.begin()
	}
	return nil
}

// noteUsageSoFar takes what the provider has reported so far, where that is not part of the stream.
func (s *relay) noteUsageSoFar() {
	if reporter, ok := s.source.from.(upstream.UsageReporter); ok {
		if u := reporter.UsageSoFar(); u != nil {
			s.run.bill.reported = u
		}
	}
}

// begin writes the header, and from then on keeps an idle stream alive.
func (s *relay) begin() {
	r := s.run
	if r.response.begun {
		return
	}
	r.response.writing.Lock()
	defer r.response.writing.Unlock()
	r.answerBegan()
	r.circuit.report(nil, r.clock.now) // it answers: how long a stream lasts does not concern the breaker
	r.begin(eventStream, -1)
	s.lastSent = r.clock.now
	s.ping = time.AfterFunc(r.gateway.pingInterval, s.keepAlive)
}

// keepAlive writes a comment between two events. It is not an event, since an empty event breaks some clients.
func (s *relay) keepAlive() {
	r := s.run
	defer func() {
		if p := recover(); p != nil {
			panics.Note(nil, "keeping a stream alive", p)
			r.deadline.End(&panics.Error{Value: p})
		}
	}()
	r.response.writing.Lock()
	defer r.response.writing.Unlock()
	if s.pingsOff || r.deadline.Cause() != nil || r.response.left.Load() {
		return
	}
	if idle := time.Since(s.lastSent); idle < r.gateway.pingInterval { // the timer is not reset by every event
		s.ping.Reset(r.gateway.pingInterval - idle)
		return
	}
	if r.response.out.Send([]byte(": ping\n")) != nil {
		r.callerLeft()
	}
	s.ping.Reset(r.gateway.pingInterval)
}

// send writes the pending events, once the answer has begun.
func (s *relay) send() {
	if !s.run.response.begun || len(s.pending) == 0 {
		return
	}
	s.run.response.writing.Lock()
	defer s.run.response.writing.Unlock()
	s.noteSent(s.run.response.send(s.pending))
	s.pending, s.lastSent = s.pending[:0], s.run.clock.now
}

// noteSent notes whether everything that was pending was sent to the caller.
func (s *relay) noteSent(all bool) {
	if all {
		s.textSent = len(s.run.bill.delivered)
		if s.content && !s.run.response.delivered.Load() {
			s.run.response.delivered.Store(true)
		}
	}
}

// disconnected takes the end of the connection. Only the events tell whether that was the end of the answer.
func (s *relay) disconnected(err error) *failure {
	if errors.Is(err, io.EOF) && s.finished && s.source.life.Cause() == nil {
		s.ended, s.end = true, []byte(s.format.end)
		return nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return connectionFailure(s.run.bill.model, s.source.life.Cause(), err)
}

// fail ends a stream that broke off. Before the answer has begun another attempt is possible. After it the caller is
// sent an error event, and the request is settled.
func (s *relay) fail(f *failure) *failure {
	r := s.run
	if !r.response.begun {
		return f
	}
	s.stopPings()
	r.decideFailed(f)
	ended := outcome.Died
	if r.response.left.Load() {
		ended = outcome.Left
	} else {
		r.attemptFailed(r.bill.model, f)
		s.sendFault(f.fault)
	}
	r.deadline.End(f.err) // stops the provider before anything is counted
	s.settleIncomplete(ended)
	return nil
}

// settleIncomplete charges a stream that the caller did not receive to its end.
func (s *relay) settleIncomplete(o outcome.Outcome) {
	b := &s.run.bill
	if b.delivered, b.complete = b.delivered[:s.textSent], s.ended; !s.ended {
		s.noteUsageSoFar()
	}
	if !s.run.response.delivered.Load() {
		o = outcome.Nothing
	}
	later, _ := b.recordCharge(o) // what cannot be recorded is owed
	later()
}

// sendFault ends the stream with an error event.
func (s *relay) sendFault(f *fault.Fault) {
	s.run.progress.broken = f
	s.pending = append(s.pending, s.format.failure(s, f)...)
	s.send()
}

// sendEnd writes the pending events, and the end. It returns false if the caller could not be sent all of it.
func (s *relay) sendEnd() bool {
	s.run.response.writing.Lock()
	defer s.run.response.writing.Unlock()
	sent := s.run.response.end(append(s.pending, s.end...))
	s.noteSent(sent)
	s.pending = s.pending[:0]
	return sent
}

func (s *relay) stopPings() {
	s.run.response.writing.Lock()
	defer s.run.response.writing.Unlock()
	s.pingsOff = true
	s.ping.Stop()
}

// finish records the charge, and then writes the end.
func (s *relay) finish() *failure {
	r := s.run
	s.begin()
	s.stopPings()
	if r.response.left.Load() {
		r.decideSent(false)
		s.settleIncomplete(outcome.Left)
		s.drain()
		return nil
	}
	later, err := r.bill.recordCharge(outcome.Finished)
	whole := false
	if err != nil {
		r.decide(outcome.Excluded)
		s.sendFault(unrecordedFault(err))
	} else {
		r.storeAssembled()
		whole = s.sendEnd()
		r.decideSent(whole)
	}
	later()
	if whole {
		s.log()
	}
	s.drain()
	return nil
}

// log logs a stream that the caller was sent to its end.
func (s *relay) log() {
	if s.recording == nil {
		return
	}
	body, err := s.recording.answer()
	if err != nil {
		s.run.gateway.Recorder.Skip(err)
		return
	}
	s.run.log(body, s.run.bill.used, s.run.bill.cost(s.run.bill.used))
}

// drain reads what comes after the end of the answer, for a while, so that the provider's connection can be reused.
func (s *relay) drain() {
	s.source.timeout = 0 // one timeout for all reads, and not for each
	s.run.deadline.LimitWait(s.run.clock.now, drainTimeout)
	for left := maxDrained; left > 0; {
		piece, err := s.source.next()
		if err != nil {
			break
		}
		left -= len(piece)
	}
}
