package chat

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A Chunk is one event of a streamed answer.
type Chunk struct {
	ID      string         `json:"id"`
	Object  string         `json:"object"` // chat.completion.chunk
	Created int64          `json:"created"`
	Model   string         `json:"model"`
	Choices []PieceOf      `json:"choices"`
	Usage   jsontext.Value `json:"usage,omitzero"`
}

// A PieceOf is a piece of a choice.
type PieceOf struct {
	Index        int     `json:"index"`
	Delta        Delta   `json:"delta"`
	FinishReason *string `json:"finish_reason"`
}

// A Delta is what a piece adds to a message.
type Delta struct {
	Role             string     `json:"role,omitempty"`
	Content          *string    `json:"content,omitzero"`
	ReasoningContent *string    `json:"reasoning_content,omitzero"`
	ReasoningDetails []Thought  `json:"reasoning_details,omitempty"`
	Refusal          *string    `json:"refusal,omitzero"`
	ToolCalls        []ToolCall `json:"tool_calls,omitempty"`
	ExtraContent     *Extra     `json:"extra_content,omitempty"`
}

// A Stream writes an answer as events, in OpenAI's framing: the first delta of a choice has the role, the last is empty
// and has the finish reason, then comes one event with the usage, then [DONE]. Its methods append to the bytes they are
// given.
type Stream struct {
	ID      string
	Created int64
	Model   string
	Usage   bool // the caller asked for it: ordinary events say null
	begun   map[int]bool
}

// Add appends an event with what choice i says next.
func (s *Stream) Add(to []byte, i int, d Delta) []byte {
	if s.begun == nil {
		s.begun = map[int]bool{}
	}
	if !s.begun[i] {
		s.begun[i], d.Role = true, Assistant
	}
	return s.event(to, []PieceOf{{Index: i, Delta: d}}, nil)
}

// Text appends an event with text.
func (s *Stream) Text(to []byte, i int, text string) []byte {
	return s.Add(to, i, Delta{Content: &text})
}

// Finish appends a choice's last event.
func (s *Stream) Finish(to []byte, i int, reason string) []byte {
	if !s.begun[i] {
		empty := ""
		to = s.Add(to, i, Delta{Content: &empty})
	}
	return s.event(to, []PieceOf{{Index: i, FinishReason: &reason}}, nil)
}

// End appends the usage, where it is known, and the end. The gateway hides the usage from a caller that did not ask.
func (s *Stream) End(to []byte, u *Usage) []byte {
	if u != nil {
		text, err := json.Marshal(u)
		if err == nil { // numbers alone
			to = s.event(to, []PieceOf{}, text)
		}
	}
	return append(to, "data: [DONE]\n\n"...)
}

func (s *Stream) event(to []byte, choices []PieceOf, usage jsontext.Value) []byte {
	c := Chunk{ID: s.ID, Object: "chat.completion.chunk", Created: s.Created, Model: s.Model, Choices: choices, Usage: usage}
	if usage == nil && s.Usage {
		c.Usage = jsontext.Value("null")
	}
	text, err := json.Marshal(&c, options)
	if err != nil { // it is made of texts and numbers alone
		text = Failure(502, "api_error", "the answer cannot be written")
	}
	to = append(to, "data: "...)
	return append(append(to, text...), '\n', '\n')
}

// Ping appends a comment, which keeps a quiet stream from seeming dead.
func Ping(to []byte) []byte { return append(to, ": ping\n"...) }
