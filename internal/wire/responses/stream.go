package responses

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/text/sse"
	"sovereign/internal/wire/chat"
)

var done = []byte("[DONE]")

// The errors of an invalid chat stream.
var (
	errUnfinished = errors.New("the stream ended without an answer")
	errUnreadable = errors.New("the answer cannot be read")
)

// Event implements upstream.Exchange.
func (x *exchange) Event(to []byte, e sse.Event) ([]byte, error) {
	if x.ended {
		return to, nil
	}
	s := x.builder
	s.out = to
	err := x.addChunk(e.Data)
	to, s.out = s.out, nil
	return to, err
}

// addChunk adds a chunk. A chunk that yields no event sends a ping: it still proves that the connection is alive.
func (x *exchange) addChunk(data []byte) error {
	s := x.builder
	if bytes.Equal(bytes.TrimSpace(data), done) {
		if x.finish == "" {
			return errUnfinished
		}
		x.ended = true
		return s.finish(x.finish)
	}
	var a completion
	if err := json.Unmarshal(data, &a, lenient); err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	if chat.IsSet(a.Error) {
		x.ended = true
		return s.errorEvent(a.Error)
	}
	before := len(s.out)
	s.start(a.Model)
	if u := readUsage(a.Usage); u != nil {
		s.response.Usage = u
	}
	for i := range a.Choices {
		if a.Choices[i].Index != 0 {
			return errChoice
		}
		if err := s.add(&a.Choices[i].Delta); err != nil {
			return err
		}
		if reason := deref(a.Choices[i].Finish); reason != "" {
			x.finish = reason
		}
	}
	if len(s.out) == before && x.finish == "" {
		s.out = chat.AppendPing(s.out)
	}
	return s.err
}

// scalarText returns a string, or a number as a string.
func scalarText(value jsontext.Value) (string, bool) {
	switch value.Kind() {
	case '"':
		var t string
		err := json.Unmarshal(value, &t, lenient)
		return t, err == nil
	case '0':
		return string(value), true
	default:
		return "", false
	}
}
