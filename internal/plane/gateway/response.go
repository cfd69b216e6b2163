package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/live"
	"sovereign/internal/plane/edge"
	"sovereign/internal/text/sse"
	"sovereign/internal/text/token"
)

// responseUsage reads the usage of a response.
func responseUsage(value []byte) *live.Usage {
	var u struct {
		Input         *token.Count  `json:"input_tokens"`
		Output        *token.Count  `json:"output_tokens"`
		InputDetails  inputDetails  `json:"input_tokens_details"`
		OutputDetails outputDetails `json:"output_tokens_details"`
	}
	if lenient(value, &u) != nil || u.Input == nil {
		return nil
	}
	return usage(u.Input, u.InputDetails, u.Output, u.OutputDetails)
}

// responseText is the text of a response's output: what a model wrote, calls included.
func responseText(output []byte) (text []byte) {
	var items []jsontext.Value
	if lenient(output, &items) != nil {
		return nil
	}
	for _, item := range items {
		type part struct{ Text, Refusal string }
		var said struct {
			Content, Summary []part
			Name, Arguments  string
			Input            string
		}
		if lenient(item, &said) != nil {
			continue // it is of a kind that we do not know
		}
		for _, p := range append(said.Summary, said.Content...) {
			text = append(append(text, p.Text...), p.Refusal...)
		}
		text = append(append(append(text, said.Name...), said.Arguments...), said.Input...)
	}
	return text
}

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

// responseEvent reads one event of a response's stream. The last one says how it ended, and waits for the charge.
func responseEvent(s *relay, e sse.Event) (v verdict, failed *failure) {
	var c responseChunk
	if err := lenient(e.Data, &c); err != nil || c.Type == "" {
		return v, s.garbage(errors.Join(errors.New("an event of the stream is none of a response's"), err))
	}
	s.sequence = c.Sequence
	if present(c.Response.Usage) {
		if u := responseUsage(c.Response.Usage); u != nil {
			s.reported = u
		}
	}
	switch c.Type {
	case "error": // it is flat: what it says stands beside its type; or in it, with some
		if present(c.Error) {
			return v, s.inside(c.Error)
		}
		return v, s.inside(e.Data)
	case "response.failed":
		return v, s.inside(c.Response.Error)
	case "response.completed", "response.incomplete":
		s.run.finish, v.last = c.Response.Status, true
	}
	if strings.HasSuffix(c.Type, ".delta") || strings.HasSuffix(c.Type, ".partial_image") {
		v.content = true
		var text string
		if lenient(c.Delta, &text) == nil {
			s.keep([]byte(text))
		}
	}
	s.out = fmt.Appendf(s.out, "event: %s\ndata: ", c.Type)
	s.out = append(append(s.out, bytes.ReplaceAll(e.Data, []byte("\n"), []byte("\ndata: "))...), '\n', '\n')
	return v, nil
}

// responseFailure is the flat event that ends a response's stream with an error.
func (s *relay) responseFailure(f *fault.Fault) []byte {
	var told struct {
		Error struct {
			Message string  `json:"message"`
			Code    *string `json:"code"`
			Param   *string `json:"param"`
			Type    string  `json:"type"`
		} `json:"error"`
	}
	_ = json.Unmarshal(edge.Event(s.ask.ID, f), &told) // what it says is ours
	code := told.Error.Type
	if told.Error.Code != nil {
		code = *told.Error.Code
	}
	text, err := json.Marshal(struct {
		Type     string  `json:"type"`
		Code     string  `json:"code"`
		Message  string  `json:"message"`
		Param    *string `json:"param"`
		Sequence int64   `json:"sequence_number"`
	}{"error", code, told.Error.Message, told.Error.Param, s.sequence + 1})
	if err != nil { // texts and a number
		return nil
	}
	return fmt.Appendf(nil, "event: error\ndata: %s\n\n", text)
}
