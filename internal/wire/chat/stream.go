package chat

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Chunk is one event of a streamed answer.
type Chunk struct {
	ID      string         `json:"id"`
	Object  string         `json:"object"` // chat.completion.chunk
	Created int64          `json:"created"`
	Model   string         `json:"model"`
	Choices []ChunkChoice  `json:"choices"`
	Usage   jsontext.Value `json:"usage,omitzero"`
}

// ChunkChoice is the part of a choice in one chunk.
type ChunkChoice struct {
	Index        int     `json:"index"`
	Delta        Delta   `json:"delta"`
	FinishReason *string `json:"finish_reason"`
}

// Delta is what a chunk adds to the message.
type Delta struct {
	Role             string        `json:"role,omitempty"`
	Content          *string       `json:"content,omitzero"`
	ReasoningContent *string       `json:"reasoning_content,omitzero"`
	ReasoningDetails []Thought     `json:"reasoning_details,omitempty"`
	Refusal          *string       `json:"refusal,omitzero"`
	ToolCalls        []ToolCall    `json:"tool_calls,omitempty"`
	ExtraContent     *ExtraContent `json:"extra_content,omitempty"`
}

// Stream writes an answer as events in OpenAI's framing: the first delta of a choice has the role, the last is empty
// and has the finish reason, then comes one event with the usage, then [DONE]. Its methods append to the bytes they are
// given.
type Stream struct {
	ID      string
	Created int64
	Model   string
	Usage   bool // the caller asked for the usage: other events have "usage":null
	started map[int]bool
}

// Add appends an event with the next delta of choice i.
func (s *Stream) Add(to []byte, i int, d Delta) []byte {
	if s.started == nil {
		s.started = map[int]bool{}
	}
	if !s.started[i] {
		s.started[i], d.Role = true, RoleAssistant
	}
	return s.event(to, []ChunkChoice{{Index: i, Delta: d}}, nil)
}

// Text appends an event with a text delta.
func (s *Stream) Text(to []byte, i int, text string) []byte {
	return s.Add(to, i, Delta{Content: &text})
}

// Finish appends the last event of a choice.
func (s *Stream) Finish(to []byte, i int, reason string) []byte {
	if !s.started[i] {
		empty := ""
		to = s.Add(to, i, Delta{Content: &empty})
	}
	return s.event(to, []ChunkChoice{{Index: i, FinishReason: &reason}}, nil)
}

// End appends the usage, if it is known, and [DONE]. The gateway removes the usage for callers that did not ask for it.
func (s *Stream) End(to []byte, u *Usage) []byte {
	if u != nil {
		text, err := json.Marshal(u)
		if err == nil { // numbers only: it cannot fail
			to = s.event(to, []ChunkChoice{}, text)
		}
	}
	return append(to, "data: [DONE]\n\n"...)
}

func (s *Stream) event(to []byte, choices []ChunkChoice, usage jsontext.Value) []byte {
	c := Chunk{
		ID: s.ID, Object: "chat.completion.chunk", Created: s.Created, Model: s.Model, Choices: choices,
		Usage: usage,
	}
	if usage == nil && s.Usage {
		c.Usage = jsontext.Value("null")
	}
	text, err := json.Marshal(&c, encoding)
	if err != nil { // cannot happen: it holds strings and numbers only
		text = ErrorBody(502, "api_error", "the answer cannot be written")
	}
	to = append(to, "data: "...)
	return append(append(to, text...), '\n', '\n')
}

// AppendPing appends an SSE comment, which keeps a stream without content from timing out.
func AppendPing(to []byte) []byte { return append(to, ": ping\n"...) }
