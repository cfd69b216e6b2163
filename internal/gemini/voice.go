package gemini

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/chat"
)

// A voice is one candidate as it speaks. A whole answer and a stream are heard alike, so that they say the same.
type voice struct {
	index  int
	calls  int
	signed int // thoughts
	finish string
}

// hear is what a part adds to a message. What is neither text nor a call, such as a picture, has no place in one.
func (v *voice) hear(p *spoken, answer string) ([]chat.Delta, error) {
	var text string
	switch {
	case p.FunctionCall != nil:
		return v.call(p, answer)
	case p.Text != nil:
		text = *p.Text
	case len(p.Other) > 0:
		return nil, fmt.Errorf("a part of the answer is neither text nor a call: %.40s", p.Other)
	}
	var d chat.Delta
	if p.Thought {
		d = v.think(text, p.ThoughtSignature)
	} else {
		d.ExtraContent = chat.Signed(p.ThoughtSignature)
		if text != "" {
			d.Content = &text
		}
	}
	if d.Content == nil && d.ExtraContent == nil && d.ReasoningContent == nil && d.ReasoningDetails == nil {
		return nil, nil
	}
	return []chat.Delta{d}, nil
}

// think is a piece of a thought. A signature vouches for all that was thought before it, and ends it.
func (v *voice) think(text, signature string) (d chat.Delta) {
	if text == "" && signature == "" {
		return d
	}
	if text != "" {
		d.ReasoningContent = &text
	}
	i := v.signed
	d.ReasoningDetails = []chat.Thought{{Type: chat.ThoughtText, Text: text, Signature: signature, Format: chat.OfGoogle, Index: &i}}
	if signature != "" {
		v.signed++
	}
	return d
}

// call is a call, which comes whole: its name, then its arguments. One without an id gets one that no other call of any
// answer has.
func (v *voice) call(p *spoken, answer string) ([]chat.Delta, error) {
	called := p.FunctionCall
	if called.Name == "" {
		return nil, errors.New("a call names no function")
	}
	args := jsontext.Value("{}")
	if present(called.Args) {
		args = called.Args
	}
	if err := args.Compact(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil || args.Kind() != '{' {
		return nil, errors.New("the arguments of a call are no object")
	}
	i := v.calls
	v.calls++
	id := cmp.Or(called.ID, fmt.Sprintf("call_%s_%d_%d", answer, v.index, i))
	return []chat.Delta{
		{ToolCalls: []chat.ToolCall{{
			Index: &i, ID: id, Type: "function", Function: chat.Called{Name: called.Name}, ExtraContent: chat.Signed(p.ThoughtSignature),
		}}},
		{ToolCalls: []chat.ToolCall{{Index: &i, Function: chat.Called{Arguments: string(args)}}}},
	}, nil
}

// finishes are what Gemini's reasons to stop mean. An answer that was stopped for its content, whatever of it, is
// filtered; one that goes on elsewhere was too long.
var finishes = map[string]string{
	"STOP":                     chat.Stop, // tool_calls, where there are some
	"MAX_TOKENS":               chat.Length,
	"CONTINUATION":             chat.Length,
	"SAFETY":                   chat.ContentFilter,
	"RECITATION":               chat.ContentFilter,
	"LANGUAGE":                 chat.ContentFilter,
	"OTHER":                    chat.ContentFilter,
	"BLOCKLIST":                chat.ContentFilter,
	"PROHIBITED_CONTENT":       chat.ContentFilter,
	"SPII":                     chat.ContentFilter,
	"IMAGE_SAFETY":             chat.ContentFilter,
	"IMAGE_PROHIBITED_CONTENT": chat.ContentFilter,
	"IMAGE_RECITATION":         chat.ContentFilter,
	"IMAGE_OTHER":              chat.ContentFilter,
}

// failures are the reasons to stop that no finish_reason can tell: the model failed, and another try may not.
var failures = map[string]string{
	"MALFORMED_FUNCTION_CALL":   "the model's call of a function is malformed",
	"MALFORMED_RESPONSE":        "the model's answer is malformed",
	"MISSING_THOUGHT_SIGNATURE": "a thought signature is missing from the history",
	"UNEXPECTED_TOOL_CALL":      "the model called a tool that it has not",
	"TOO_MANY_TOOL_CALLS":       "the model called too many tools",
	"NO_IMAGE":                  "the model made no image",
	"FINISH_REASON_UNSPECIFIED": "the model stopped without a reason",
}

// A failed is an answer that a model could not give.
type failed string

func (f failed) Error() string { return string(f) }

// end says why a candidate stopped; empty is not yet.
func (v *voice) end(c *candidate) (string, error) {
	if c.FinishReason == "" {
		return "", nil
	}
	if why, ok := failures[c.FinishReason]; ok {
		if c.FinishMessage != "" {
			why += ": " + c.FinishMessage
		}
		return "", failed(why)
	}
	finish, ok := finishes[c.FinishReason]
	if !ok {
		return "", fmt.Errorf("the answer stopped for %q, which is not known", c.FinishReason)
	}
	if finish == chat.Stop && v.calls > 0 {
		finish = chat.ToolCalls
	}
	return finish, nil
}

const audio = "AUDIO"

// count is a usage as OpenAI tells it. What tells nothing of the prompt is no usage.
func (u *usageMetadata) count() *chat.Usage {
	if u == nil || u.PromptTokenCount == nil {
		return nil
	}
	prompt, completion := *u.PromptTokenCount+u.ToolUsePromptTokenCount, u.CandidatesTokenCount+u.ThoughtsTokenCount
	return &chat.Usage{
		PromptTokens: prompt, CompletionTokens: completion, TotalTokens: prompt + completion,
		PromptTokensDetails: chat.PromptDetails{
			CachedTokens: min(u.CachedContentTokenCount, prompt),
			AudioTokens:  max(0, u.PromptTokensDetails.of(audio)-u.CacheTokensDetails.of(audio)),
		},
		CompletionTokensDetails: chat.CompletionDetails{
			ReasoningTokens: u.ThoughtsTokenCount, AudioTokens: u.CandidatesTokensDetails.of(audio),
		},
	}
}

// of is how many tokens are of a modality.
func (m modalities) of(modality string) (n int64) {
	for _, d := range m {
		if d.Modality == modality {
			n += d.TokenCount
		}
	}
	return n
}
