package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/edge"
	"sovereign/internal/fault"
	"sovereign/internal/scan"
	"sovereign/internal/upstream"
)

const (
	maxEvent  = 8 << 20 // bytes of one event
	maxText   = 4 << 20 // bytes of delivered text that are kept for counting
	maxBefore = 1 << 20 // bytes of events before the first content
	// afterDone is how long a provider gets to end an answer that is over, so that its connection can be used again.
	afterDone = time.Second
)

var done = []byte("[DONE]")

// A relay is a stream on its way: what has been read and is not whole yet, and what waits to be written.
type relay struct {
	*run
	in       *source
	partial  []byte // of a line
	data     []byte // of the event that is being read
	out      []byte // events for the caller, in one write per read
	choices  map[int]bool
	finished bool // every choice has said so
	ended    bool // the provider has said so
	content  bool // some was read
	reached  bool // some was sent to the caller
	sent     int  // how much of the delivered text
	ping     *time.Timer
	mute     bool // no more pings
}

// stream relays server-sent events. Nothing is written before the first content, so that until then another try is
// possible; the end is written only when the charge is recorded.
func (r *run) stream(in *source, response *upstream.Response) *failure {
	if !strings.HasPrefix(strings.ToLower(response.ContentType), "text/event-stream") {
		return r.garbage(fmt.Errorf("a stream was asked for and %q came", response.ContentType))
	}
	s := &relay{run: r, in: in, choices: map[int]bool{}}
	in.patience = r.settings.StallTimeout
	defer func() {
		if s.ping != nil {
			s.ping.Stop()
		}
	}()
	buffer := make([]byte, 32<<10)
	for !s.ended {
		n, err := in.Read(buffer)
		failed := s.take(buffer[:n])
		if failed == nil && err != nil {
			failed = s.over(err)
		}
		if failed != nil {
			return s.fail(failed)
		}
		s.send()
	}
	return s.finish()
}

// take reads lines; an event ends with an empty one.
func (s *relay) take(piece []byte) *failure {
	for len(piece) > 0 && !s.ended {
		line, rest, whole := bytes.Cut(piece, []byte("\n"))
		piece = rest
		if len(s.partial)+len(line)+len(s.data) > maxEvent {
			return s.garbage(fmt.Errorf("an event is longer than %d bytes", maxEvent))
		}
		if !whole {
			s.partial = append(s.partial, line...)
			return nil
		}
		if len(s.partial) > 0 {
			line = append(s.partial, line...)
			s.partial = s.partial[:0]
		}
		if failed := s.line(bytes.TrimSuffix(line, []byte("\r"))); failed != nil {
			return failed
		}
	}
	return nil
}

// fields are what a line of an event may begin with.
var fields = [][]byte{[]byte("event:"), []byte("id:"), []byte("retry:"), []byte(":")}

func (s *relay) line(line []byte) *failure {
	if len(line) == 0 {
		return s.dispatch()
	}
	if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
		if len(s.data) > 0 {
			s.data = append(s.data, '\n')
		}
		s.data = append(s.data, bytes.TrimPrefix(data, []byte(" "))...)
		return nil
	}
	for _, field := range fields {
		if bytes.HasPrefix(line, field) {
			return nil
		}
	}
	return s.garbage(errors.New("a line of the stream is none of an event's"))
}

// A chunk is one event of a chat's stream.
type chunk struct {
	Choices []struct {
		Index  int            `json:"index"`
		Delta  jsontext.Value `json:"delta"`
		Finish *string        `json:"finish_reason"`
	} `json:"choices"`
	Usage jsontext.Value `json:"usage"`
	Error jsontext.Value `json:"error"`
}

func present(value jsontext.Value) bool { return len(value) > 0 && value.Kind() != 'n' }

// dispatch takes one event.
func (s *relay) dispatch() *failure {
	event := s.data
	s.data = s.data[:0]
	switch {
	case len(event) == 0:
		return nil
	case bytes.Equal(event, done):
		if len(s.choices) == 0 {
			return s.garbage(errors.New("the stream ended without an answer"))
		}
		s.ended = true
		return nil
	}
	var c chunk
	if err := lenient(event, &c); err != nil {
		return s.garbage(fmt.Errorf("an event of the stream: %w", err))
	}
	if present(c.Error) {
		return s.inside(c.Error)
	}
	if present(c.Usage) {
		if u := usageOf(c.Usage); u != nil {
			s.reported = u
		}
	}
	content := false
	for i := range c.Choices {
		choice := &c.Choices[i]
		if choice.Index < 0 || choice.Index >= maxChoices {
			return s.garbage(fmt.Errorf("a choice has the index %d", choice.Index))
		}
		text, says := written(choice.Delta)
		content = content || says
		if len(s.delivered) < maxText {
			s.delivered = append(s.delivered, text...)
		}
		over := choice.Finish != nil && *choice.Finish != ""
		s.choices[choice.Index] = s.choices[choice.Index] || over
		if over {
			s.run.finish = *choice.Finish
		}
	}
	s.finished = len(s.choices) > 0
	for _, over := range s.choices {
		s.finished = s.finished && over
	}
	s.show(event, &c)
	if !s.begun && len(s.out) > maxBefore {
		return s.garbage(errors.New("the stream says nothing"))
	}
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

// show puts an event in line for the caller, without the usage that it did not ask for.
func (s *relay) show(event []byte, c *chunk) {
	if !s.ask.usage && len(c.Usage) > 0 {
		if len(c.Choices) == 0 {
			return
		}
		event = withoutUsage(event)
	}
	s.out = append(s.out, "data: "...)
	if bytes.IndexByte(event, '\n') >= 0 {
		event = bytes.ReplaceAll(event, []byte("\n"), []byte("\ndata: "))
	}
	s.out = append(append(s.out, event...), '\n', '\n')
}

func withoutUsage(event []byte) []byte {
	members, err := scan.Object(event, nil)
	if err != nil {
		return event
	}
	a := Ask{Body: event, members: members}
	i, ok := a.member("usage")
	if !ok || len(members) < 2 {
		return event
	}
	cut := a.without(i)
	return append(append([]byte{}, event[:cut.from]...), event[cut.to:]...)
}

// begin writes the head, and from then on keeps an idle stream alive.
func (s *relay) begin() {
	if s.begun {
		return
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	s.gateway.Watch.first(s.run)
	s.head("text/event-stream; charset=utf-8", -1)
	s.ping = time.AfterFunc(s.gateway.pingEvery, s.keepAlive)
}

// keepAlive writes a comment between two events. It is no event of its own: an empty one breaks some clients.
func (s *relay) keepAlive() {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.mute || context.Cause(s.ctx) != nil {
		return
	}
	if s.put([]byte(": ping\n")) != nil {
		s.cancel(errLeft)
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
	if s.write(s.out) {
		s.sent, s.reached = len(s.delivered), s.content
	}
	s.out = s.out[:0]
	s.ping.Reset(s.gateway.pingEvery)
}

// over is the end of the connection. Whether that was the end of the answer, the events tell and never the socket.
func (s *relay) over(err error) *failure {
	if errors.Is(err, io.EOF) && s.finished && context.Cause(s.in.ctx) == nil {
		s.ended = true
		return nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return s.lost(s.in.ctx, err)
}

// fail ends a stream that broke off: before content another try is possible, after it the caller is told in the stream.
func (s *relay) fail(f *failure) *failure {
	if !s.begun {
		return f
	}
	s.stopPings()
	outcome := Died
	if errors.Is(context.Cause(s.ctx), errLeft) {
		outcome = Left
	} else {
		s.failed(s.model, f)
		s.tell(f.fault)
	}
	s.cancel(f.err) // the provider stops working for nobody before anything is counted
	if s.delivered = s.delivered[:s.sent]; !s.reached {
		outcome = Nothing
	}
	later, _ := s.settle(outcome) // what cannot be recorded is owed
	later()
	return nil
}

// tell ends the stream with an error in it.
func (s *relay) tell(f *fault.Fault) {
	s.out = append(s.out, "data: "...)
	s.out = append(append(s.out, edge.Event(s.ask.ID, f)...), '\n', '\n')
	s.send()
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
	if errors.Is(context.Cause(s.ctx), errLeft) {
		return s.fail(&failure{class: over, err: errLeft, fault: ending(errLeft)})
	}
	later, err := s.settle(Finished)
	if err != nil {
		s.tell(unrecorded(err))
	} else {
		s.out = append(s.out, "data: [DONE]\n\n"...)
		s.send()
	}
	later()
	s.in.quiet.Reset(afterDone)
	s.in.patience = 0                             // once, and not again with every byte
	_, _ = io.CopyN(io.Discard, s.in, maxRefusal) // to the end, or not: it is of no use any more
	return nil
}
