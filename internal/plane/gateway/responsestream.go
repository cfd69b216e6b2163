package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/plane/edge"
	"sovereign/internal/plane/gateway/answer"
	"sovereign/internal/plane/gateway/lenient"
	"sovereign/internal/text/sse"
)

// A responseChunk is one event of a response's stream.
type responseChunk struct {
	Type     string         `json:"type"`
	Delta    jsontext.Value `json:"delta"`
	Sequence int64          `json:"sequence_number"`
	Error    jsontext.Value `json:"error"`
	Response struct {
		Status string         `json:"status"`
		Usage  jsontext.Value `json:"usage"`
		Error  jsontext.Value `json:"error"`
	} `json:"response"`
}

// responseEvent reads one event of a response's stream. The last one says how it ended, and is sent after the charge is
// recorded.
func responseEvent(s *relay, e sse.Event) (effect eventEffect, failed *failure) {
	var c responseChunk
	if err := lenient.Decode(e.Data, &c); err != nil || c.Type == "" {
		return effect, unreadable(
			s.run.bill.model, errors.Join(errors.New("an event of the stream is none of a response's"), err),
		)
	}
	s.sequence = c.Sequence
	if answer.Present(c.Response.Usage) {
		if u := answer.ResponseUsage(c.Response.Usage); u != nil {
			s.run.bill.reported = u
		}
	}
	switch c.Type {
	case "error": // its members stand beside the type, or, with some providers, in a member error
		if answer.Present(c.Error) {
			return effect, errorInAnswer(s.run.bill.model, c.Error)
		}
		return effect, errorInAnswer(s.run.bill.model, e.Data)
	case "response.failed":
		return effect, errorInAnswer(s.run.bill.model, c.Response.Error)
	case "response.completed", "response.incomplete":
		s.run.progress.finished(0, c.Response.Status)
		effect.last = true
	}
	if strings.HasSuffix(c.Type, ".delta") || strings.HasSuffix(c.Type, ".partial_image") {
		effect.content = true
		var text string
		if lenient.Decode(c.Delta, &text) == nil {
			s.run.bill.deliver([]byte(text))
		}
	}
	s.pending = fmt.Appendf(s.pending, "event: %s\ndata: ", c.Type)
	s.pending = append(append(s.pending, bytes.ReplaceAll(e.Data, []byte("\n"), []byte("\ndata: "))...), '\n', '\n')
	return effect, nil
}

// responseFailure returns the event that ends a response's stream with an error.
func responseFailure(s *relay, f *fault.Fault) []byte {
	var envelope struct {
		Error struct {
			Message string  `json:"message"`
			Code    *string `json:"code"`
			Param   *string `json:"param"`
			Type    string  `json:"type"`
		} `json:"error"`
	}
	_ = json.Unmarshal(edge.Event(s.run.request.ID, f), &envelope) // it is the gateway's own JSON
	code := envelope.Error.Type
	if envelope.Error.Code != nil {
		code = *envelope.Error.Code
	}
	text, err := json.Marshal(struct {
		Type     string  `json:"type"`
		Code     string  `json:"code"`
		Message  string  `json:"message"`
		Param    *string `json:"param"`
		Sequence int64   `json:"sequence_number"`
	}{"error", code, envelope.Error.Message, envelope.Error.Param, s.sequence + 1})
	if err != nil { // strings and a number always encode
		return nil
	}
	return fmt.Appendf(nil, "event: error\ndata: %s\n\n", text)
}
