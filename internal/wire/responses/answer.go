package responses

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/wire/chat"
)

// completion is a chat completion, or a chunk of one.
type completion struct {
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

// Answer implements upstream.Exchange. An error in place of an answer has the same shape in both APIs.
func (x *exchange) Answer(body []byte) ([]byte, error) {
	var a completion
	if err := json.Unmarshal(body, &a, lenient); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	if chat.IsSet(a.Error) {
		return body, nil
	}
	if len(a.Choices) != 1 {
		return nil, errChoice
	}
	s := x.builder
	s.noEvents = true
	s.start(a.Model)
	s.response.Usage = readUsage(a.Usage)
	for i := range a.Choices[0].Message.ToolCalls {
		a.Choices[0].Message.ToolCalls[i].Index = &i
	}
	if err := s.add(&a.Choices[0].Message); err != nil {
		return nil, err
	}
	if err := s.finish(deref(a.Choices[0].Finish)); err != nil {
		return nil, err
	}
	x.ended = true
	return json.Marshal(&s.response, encoding, json.Deterministic(true))
}
