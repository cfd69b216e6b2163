package anthropic

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/wire/chat"
)

// An answer is a message of Anthropic's, or the head of one that is streamed.
type answer struct {
	Type        string   `json:"type"` // message; error
	ID          string   `json:"id"`
	Model       string   `json:"model"`
	Content     []block  `json:"content"`
	StopReason  *string  `json:"stop_reason"`
	StopDetails *details `json:"stop_details"`
	Usage       *usage   `json:"usage"`
	Error       failure  `json:"error"`
}

// details say more about a refusal.
type details struct {
	Explanation *string `json:"explanation"`
}

// explanation is why the model refused, where that is told.
func (d *details) explanation() *string {
	if d == nil || d.Explanation == nil || *d.Explanation == "" {
		return nil
	}
	return d.Explanation
}

// reasons are why an answer ends.
var reasons = map[string]string{
	"end_turn":                      chat.Stop,
	"stop_sequence":                 chat.Stop,
	"max_tokens":                    chat.Length,
	"model_context_window_exceeded": chat.Length,
	"pause_turn":                    chat.Length,
	"tool_use":                      chat.ToolCalls,
	"refusal":                       chat.ContentFilter,
}

var (
	errNoMessage = errors.New("is no message of the " + wire)
	errUnknown   = errors.New("is not known in the " + wire)
)

func reasonOf(said *string) (string, error) {
	if said == nil {
		return "", fmt.Errorf("%w: it has no stop reason", errNoMessage)
	}
	reason, ok := reasons[*said]
	if !ok {
		return "", fmt.Errorf("the stop reason %q %w", *said, errUnknown)
	}
	return reason, nil
}

// usage counts tokens. Nil is not reported, which is not none.
type usage struct {
	Input      *int64 `json:"input_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
	Output     *int64 `json:"output_tokens"`
	Details    *struct {
		Thinking *int64 `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

// merge takes what a later report says; what it does not say stays.
func (u *usage) merge(later *usage) {
	if later == nil {
		return
	}
	for _, field := range []struct {
		known **int64
		told  *int64
	}{{&u.Input, later.Input}, {&u.CacheRead, later.CacheRead}, {&u.CacheWrite, later.CacheWrite}, {&u.Output, later.Output}} {
		if field.told != nil {
			*field.known = field.told
		}
	}
	if later.Details != nil && later.Details.Thinking != nil {
		u.Details = later.Details
	}
}

// sum is the usage as OpenAI counts, or nil when the provider did not report both what went in and what came out. What
// was read from its cache and written into it are inputs beside the fresh ones.
func (u *usage) sum() *chat.Usage {
	if u == nil || u.Input == nil || u.Output == nil {
		return nil
	}
	or0 := func(n *int64) int64 {
		if n == nil {
			return 0
		}
		return *n
	}
	all := &chat.Usage{PromptTokens: *u.Input + or0(u.CacheRead) + or0(u.CacheWrite), CompletionTokens: *u.Output}
	all.TotalTokens = all.PromptTokens + all.CompletionTokens
	all.PromptTokensDetails = chat.PromptDetails{CachedTokens: or0(u.CacheRead), CacheWriteTokens: or0(u.CacheWrite)}
	if u.Details != nil {
		all.CompletionTokensDetails.ReasoningTokens = or0(u.Details.Thinking)
	}
	return all
}

// Answer implements upstream.Exchange.
func (e *exchange) Answer(body []byte) ([]byte, error) {
	var a answer
	if err := read(body, &a); err != nil {
		return nil, err
	}
	switch a.Type {
	case "message":
	case "error":
		return a.Error.inside(), nil
	default:
		return nil, fmt.Errorf("%w: its type is %q", errNoMessage, a.Type)
	}
	reason, err := reasonOf(a.StopReason)
	if err != nil {
		return nil, err
	}
	said, err := told(a.Content, e.asked)
	if err != nil {
		return nil, err
	}
	said.Refusal = a.StopDetails.explanation()
	if said.Content == nil && said.Refusal == nil && said.ReasoningDetails == nil && said.ToolCalls == nil {
		said.Content = new(string) // as a stream of nothing says it
	}
	whole := chat.Answer{
		ID: a.ID, Object: "chat.completion", Created: e.created, Model: a.Model, Usage: a.Usage.sum(),
		Choices: []chat.Choice{{Message: said, FinishReason: reason}},
	}
	return whole.Encode()
}

// told is what blocks say, as one reply: texts are one text, in their order, and so are thoughts and calls. Thoughts know
// the model that was asked, and where they stood.
func told(blocks []block, model string) (chat.Reply, error) {
	r := chat.Reply{Role: chat.Assistant}
	var words, reasoning strings.Builder
	for i := range blocks {
		b := &blocks[i]
		if err := b.known(); err != nil {
			return r, err
		}
		switch b.Type {
		case blockText:
			words.WriteString(b.Text)
		case blockThinking, blockSealed:
			if t := b.thought(); !empty(t) {
				t.Model, t.Place = model, after(words.Len(), len(r.ToolCalls))
				reasoning.WriteString(t.Text)
				r.ReasoningDetails = append(r.ReasoningDetails, t)
			}
		case blockCall:
			arguments, err := b.arguments()
			if err != nil {
				return r, err
			}
			r.ToolCalls = append(r.ToolCalls, chat.ToolCall{ID: b.ID, Type: function, Function: chat.Called{Name: b.Name, Arguments: arguments}})
		}
	}
	if all := words.String(); all != "" {
		r.Content = &all
	}
	r.ReasoningContent = reasoning.String()
	return r, nil
}

// known refuses blocks of an answer that we have no words for.
func (b *block) known() error {
	switch b.Type {
	case blockText:
		if says(b.Citations) { // nobody asked for them
			return fmt.Errorf("a text with citations %w", errUnknown)
		}
	case blockThinking, blockSealed, blockCall:
	default:
		return fmt.Errorf("a block of type %q %w", b.Type, errUnknown)
	}
	return nil
}

// arguments is the input of a call as a text. A call without one has an empty one.
func (b *block) arguments() (string, error) {
	input := b.Input.Clone()
	switch {
	case !says(input):
		return "{}", nil
	case input.Kind() != '{':
		return "", fmt.Errorf("the input of a call %w", errUnknown)
	}
	err := input.Compact(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	return string(input), err
}
