package api

import (
	"bytes"
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/plane/edge"
)

// EventStreamType is the media type of server-sent events.
const EventStreamType = "text/event-stream"

// An Event is one server-sent event.
type Event struct {
	Name string
	ID   string // optional
	Data any    // sent as JSON; Rendered is JSON already
}

// Rendered is the data of an event as it is sent: JSON on one line.
type Rendered []byte

// Render renders data once, for many streams.
func Render(data any) (Rendered, error) {
	text, err := json.Marshal(data, lenient)
	return oneLine(text), err
}

// An EventSource is what an EventStream sends. Its methods are called by one goroutine.
type EventSource interface {
	Wake() <-chan struct{} // receives a value when there may be something to take
	Take() []Event         // returns what waits, without blocking
	Over() string          // returns why the stream ends by itself, or an empty text
	Close()                // is called once, at the end
}

// An EventStream is an answer of server-sent events. It ends when the caller leaves, when its source is over, when the
// caller may no longer read it, and when the server stops. The last event is end, with the reason, unless the caller
// left. A route that answers with one must be Long. It counts as an operation only until it begins.
type EventStream struct{ Source EventSource }

const (
	// heartbeatEvery is how often something is sent, so that proxies do not take the connection for dead.
	heartbeatEvery = 15 * time.Second
	// checkEvery is how often a stream checks whether it must end.
	checkEvery = 250 * time.Millisecond
)

// end is the data of the event end.
type end struct {
	Reason string `json:"reason"`
}

// stream sends events until the stream ends.
func (rt *Router) stream(w http.ResponseWriter, r *http.Request, s EventStream) {
	defer s.Source.Close()
	header := w.Header()
	header.Set("Content-Type", EventStreamType)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // nginx would collect events
	w.WriteHeader(http.StatusOK)
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	out := events{w: w, control: http.NewResponseController(w)}
	out.comment()
	for out.err == nil {
		reason := rt.streamOver(r, s)
		if reason != "" {
			out.send(Event{Name: "end", Data: end{reason}})
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-s.Source.Wake():
			if rt.streamOver(r, s) == "" {
				out.send(s.Source.Take()...)
			}
		case <-check.C:
			if time.Since(out.last) >= heartbeatEvery {
				out.comment()
			}
		}
	}
}

// streamOver returns why a stream must end, or an empty text.
func (rt *Router) streamOver(r *http.Request, s EventStream) string {
	switch {
	case rt.Closing != nil && rt.Closing():
		return "server_stops"
	case ended(r):
		return "session_ended"
	default:
		return s.Source.Over()
	}
}

// ended reports whether the caller of a long answer would be refused now.
func ended(r *http.Request) bool {
	return edge.Grant(r.Context()).Ended() || edge.SessionEnded(r.Context())
}

// events writes server-sent events. After an error it writes nothing more: the caller has left.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController
	last    time.Time // when something was last sent
	err     error
}

func (e *events) comment() { e.write([]byte(":\n\n")) }

func (e *events) send(all ...Event) {
	var text bytes.Buffer
	for _, event := range all {
		data, isRendered := event.Data.(Rendered)
		if !isRendered {
			var err error
			if data, err = Render(event.Data); err != nil {
				e.err = fmt.Errorf("render the event %s: %w", event.Name, err)
				return
			}
		}
		if event.ID != "" {
			join(&text, "id: ", event.ID, "\n")
		}
		join(&text, "event: ", event.Name, "\ndata: ")
		text.Write(data)
		text.WriteString("\n\n")
	}
	if text.Len() > 0 {
		e.write(text.Bytes())
	}
}

func join(to *bytes.Buffer, parts ...string) {
	for _, part := range parts {
		to.WriteString(part)
	}
}

// oneLine removes the ends of lines from JSON. In its strings they are escaped.
func oneLine(text []byte) []byte {
	if !bytes.ContainsAny(text, "\r\n") {
		return text
	}
	return bytes.Map(func(r rune) rune {
		if r == '\n' || r == '\r' {
			return ' '
		}
		return r
	}, text)
}

func (e *events) write(text []byte) {
	if _, e.err = e.w.Write(text); e.err == nil {
		e.err = e.control.Flush()
	}
	e.last = time.Now()
}
