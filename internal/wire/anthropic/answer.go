package anthropic

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/wire/chat"
)

// message is an answer of the Messages API, or its start in a stream.
type message struct {
	Type        string       `json:"type"` // message; error
	ID          string       `json:"id"`
	Model       string       `json:"model"`
	Content     []block      `json:"content"`
	StopReason  *string      `json:"stop_reason"`
	StopDetails *stopDetails `json:"stop_details"`
	Usage       *usage       `json:"usage"`
	Error       apiError     `json:"error"`
}

// stopDetails describe a refusal.
type stopDetails struct {
	Explanation *string `json:"explanation"`
}

// explanation returns why the model refused; nil when not stated.
func (d *stopDetails) explanation() *string {
	if d == nil || d.Explanation == nil || *d.Explanation == "" {
		return nil
	}
	return d.Explanation
}

// finishReasons maps Anthropic's stop reasons.
var finishReasons = map[string]string{
	"end_turn":                      chat.Stop,
	"stop_sequence":                 chat.Stop,
	"max_tokens":                    chat.Length,
	"model_context_window_exceeded": chat.Length,
	"pause_turn":                    chat.Length,
	"tool_use":                      chat.ToolCalls,
	"refusal":                       chat.ContentFilter,
}

var (
	errNotMessage = errors.New("is no message of the " + apiName)
	errUnknown    = errors.New("is not known in the " + apiName)
)

func finishReason(stopReason *string) (string, error) {
	if stopReason == nil {
		return "", fmt.Errorf("%w: it has no stop reason", errNotMessage)
	}
	reason, ok := finishReasons[*stopReason]
	if !ok {
		return "", fmt.Errorf("the stop reason %q %w", *stopReason, errUnknown)
	}
	return reason, nil
}

// usage counts tokens. nil means not reported, which is not zero.
type usage struct {
	Input      *int64 `json:"input_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
	Output     *int64 `json:"output_tokens"`
	Details    *struct {
		Thinking *int64 `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

// merge overwrites the counts that a later event reports.
func (u *usage) merge(later *usage) {
	if later == nil {
		return
	}
	for _, field := range []struct {
		current  **int64
		reported *int64
	}{
		{&u.Input, later.Input},
		{&u.CacheRead, later.CacheRead},
		{&u.CacheWrite, later.CacheWrite},
		{&u.Output, later.Output},
	} {
		if field.reported != nil {
			*field.current = field.reported
		}
	}
	if later.Details != nil && later.Details.Thinking != nil {
		u.Details = later.Details
	}
}

// total returns the usage as OpenAI counts it, where tokens read from and written to the cache are part of the prompt.
// It returns nil unless input and output tokens were both reported.
func (u *usage) total() *chat.Usage {
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
	var a message
	if err := unmarshal(body, &a); err != nil {
		return nil, err
	}
	switch a.Type {
	case "message":
	case "error":
		return a.Error.answerBody(), nil
	default:
		return nil, fmt.Errorf("%w: its type is %q", errNotMessage, a.Type)
	}
	reason, err := finishReason(a.StopReason)
	if err != nil {
		return nil, err
	}
	reply, err := newReply(a.Content, e.requestedModel)
	if err != nil {
		return nil, err
	}
	reply.Refusal = a.StopDetails.explanation()
	if reply.Content == nil && reply.Refusal == nil && reply.ReasoningDetails == nil && reply.ToolCalls == nil {
		reply.Content = new(string) // the same as for an empty stream
	}
	whole := chat.Answer{
		ID: a.ID, Object: "chat.completion", Created: e.created, Model: a.Model, Usage: a.Usage.total(),
		Choices: []chat.Choice{{Message: reply, FinishReason: reason}},
	}
	return whole.Encode()
}

// newReply joins blocks into one message: one text, one list of thoughts and one of calls. Thoughts get the requested
// model and their position.
func newReply(blocks []block, model string) (chat.Reply, error) {
	r := chat.Reply{Role: chat.RoleAssistant}
	var words, reasoning strings.Builder
	for i := range blocks {
		b := &blocks[i]
		if err := b.checkKnown(); err != nil {
			return r, err
		}
		switch b.Type {
		case blockText:
			words.WriteString(b.Text)
		case blockThinking, blockRedactedThinking:
			if t := b.thought(); !isEmpty(t) {
				t.Model, t.Position = model, positionAfter(words.Len(), len(r.ToolCalls))
				reasoning.WriteString(t.Text)
				r.ReasoningDetails = append(r.ReasoningDetails, t)
			}
		case blockToolUse:
			arguments, err := b.arguments()
			if err != nil {
				return r, err
			}
			r.ToolCalls = append(r.ToolCalls, chat.ToolCall{
				ID: b.ID, Type: function,
				Function: chat.FunctionCall{Name: b.Name, Arguments: arguments},
			})
		}
	}
	if all := words.String(); all != "" {
		r.Content = &all
	}
	r.ReasoningContent = reasoning.String()
	return r, nil
}

// checkKnown refuses blocks that have no equivalent.
func (b *block) checkKnown() error {
	switch b.Type {
	case blockText:
		if isSet(b.Citations) { // no request of ours enables them
			return fmt.Errorf("a text with citations %w", errUnknown)
		}
	case blockThinking, blockRedactedThinking, blockToolUse:
	default:
		return fmt.Errorf("a block of type %q %w", b.Type, errUnknown)
	}
	return nil
}

// arguments returns the input of a call as a string; "{}" when there is none.
func (b *block) arguments() (string, error) {
	input := b.Input.Clone()
	switch {
	case !isSet(input):
		return "{}", nil
	case input.Kind() != '{':
		return "", fmt.Errorf("the input of a call %w", errUnknown)
	}
	err := input.Compact(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	return string(input), err
}
