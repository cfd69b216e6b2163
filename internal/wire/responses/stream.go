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

// What a stream of chat's must not do.
var (
	errUnfinished = errors.New("the stream ended without an answer")
	errUnreadable = errors.New("the answer cannot be read")
)

// An answer is what is read of a whole chat completion, or of a chunk of one.
type answer struct {
	Model   string `json:"model"`
	Choices []struct {
		Index   int     `json:"index"`
		Message delta   `json:"message"`
		Delta   delta   `json:"delta"`
		Finish  *string `json:"finish_reason"`
	} `json:"choices"`
	Usage jsontext.Value `json:"usage"`
	Error jsontext.Value `json:"error"`
}

// Answer implements upstream.Exchange. An error in the place of an answer is the same in both wires.
func (x *exchange) Answer(body []byte) ([]byte, error) {
	var a answer
	if err := json.Unmarshal(body, &a, lenient); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	if there(a.Error) {
		return body, nil
	}
	if len(a.Choices) != 1 {
		return nil, errChoice
	}
	s := x.speech
	s.quiet = true
	s.start(a.Model)
	s.response.Usage = usageOf(a.Usage)
	for i := range a.Choices[0].Message.ToolCalls {
		a.Choices[0].Message.ToolCalls[i].Index = &i
	}
	if err := s.add(&a.Choices[0].Message); err != nil {
		return nil, err
	}
	if err := s.finish(text(a.Choices[0].Finish)); err != nil {
		return nil, err
	}
	x.ended = true
	return json.Marshal(&s.response, written, json.Deterministic(true))
}

// Event implements upstream.Exchange.
func (x *exchange) Event(to []byte, e sse.Event) ([]byte, error) {
	if x.ended {
		return to, nil
	}
	s := x.speech
	s.out = to
	err := x.take(e.Data)
	to, s.out = s.out, nil
	return to, err
}

// take takes a chunk. One that says nothing is a sign of life all the same.
func (x *exchange) take(data []byte) error {
	s := x.speech
	if bytes.Equal(bytes.TrimSpace(data), done) {
		if x.finish == "" {
			return errUnfinished
		}
		x.ended = true
		return s.finish(x.finish)
	}
	var a answer
	if err := json.Unmarshal(data, &a, lenient); err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	if there(a.Error) {
		x.ended = true
		return s.fail(a.Error)
	}
	before := len(s.out)
	s.start(a.Model)
	if u := usageOf(a.Usage); u != nil {
		s.response.Usage = u
	}
	for i := range a.Choices {
		if a.Choices[i].Index != 0 {
			return errChoice
		}
		if err := s.add(&a.Choices[i].Delta); err != nil {
			return err
		}
		if reason := text(a.Choices[i].Finish); reason != "" {
			x.finish = reason
		}
	}
	if len(s.out) == before && x.finish == "" {
		s.out = chat.Ping(s.out)
	}
	return s.err
}

// fail hands an error on. Its code may be a status, which is a number.
func (s *speech) fail(value jsontext.Value) error {
	var told struct {
		Message string         `json:"message"`
		Code    jsontext.Value `json:"code"`
		Param   jsontext.Value `json:"param"`
	}
	if value.Kind() == '"' {
		told.Message, _ = plain(value)
	} else if err := json.Unmarshal(value, &told, lenient); err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	e := flat{Type: "error", Sequence: s.sequence, Message: told.Message}
	if code, ok := plain(told.Code); ok {
		e.Code = &code
	}
	if param, ok := plain(told.Param); ok {
		e.Param = &param
	}
	return s.write(e.Type, &e)
}

// plain is a text, or a number as a text.
func plain(value jsontext.Value) (string, bool) {
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
