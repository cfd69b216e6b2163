package gemini

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/wire/chat"
)

// A voice is one candidate as it speaks. A whole answer and a stream are heard alike, so that they say the same.
//
// OpenAI's message has its thoughts, then its text, then its calls. What stood elsewhere says so in reasoning_details: a
// thought has its place, a text after a call has a mark that is empty, and so has each signature of a text that is not
// the message's last, sealed.
type voice struct {
	index    int
	one      bool       // call is handed on, as was asked
	at       chat.Place // how far it has come
	said     int        // calls before the last text
	speaking bool       // the last part was a text
	finish   string

	thoughts  int        // that have ended
	thinking  bool       // one has not
	thought   chat.Place // where that is
	signature string     // of the text so far
	signed    chat.Place
}

// hear is what a part adds to a message. What is neither text nor a call, such as a picture, has no place in one.
func (v *voice) hear(p *spoken, answer string) ([]chat.Delta, error) {
	var text string
	switch {
	case p.FunctionCall != nil:
		v.speaking = false
		return v.call(p, answer)
	case p.Text != nil:
		text = *p.Text
	case len(p.Other) > 0:
		return nil, fmt.Errorf("a part of the answer is neither text nor a call: %.40s", p.Other)
	}
	switch {
	case text == "" && p.ThoughtSignature == "":
		return nil, nil
	case p.Thought:
		v.speaking = false
		return []chat.Delta{v.think(text, p.ThoughtSignature)}, nil
	default:
		return []chat.Delta{v.say(text, p.ThoughtSignature)}, nil
	}
}

// say is a piece of text. Its signature is the message's, until another text or a thought comes.
func (v *voice) say(text, signature string) (d chat.Delta) {
	d.ReasoningDetails = v.settle()
	if text != "" {
		if v.at.Calls > v.said {
			d.ReasoningDetails = append(d.ReasoningDetails, v.mark("", v.at))
		}
		d.Content = &text
		v.at.Text, v.said, v.speaking = v.at.Text+len(text), v.at.Calls, true
	}
	if signature == "" {
		return d
	}
	d.ExtraContent = chat.Signed(signature)
	if !v.speaking && v.at != (chat.Place{}) { // it is no text's that was heard
		d.ReasoningDetails = append(d.ReasoningDetails, v.mark(signature, v.at))
	} else {
		v.signature, v.signed = signature, v.at
	}
	return d
}

// think is a piece of a thought. A signature vouches for all that was thought before it, and ends it.
func (v *voice) think(text, signature string) (d chat.Delta) {
	d.ReasoningDetails = v.settle()
	if v.thought != v.at {
		v.rest()
	}
	v.thinking, v.thought = true, v.at
	if text != "" {
		d.ReasoningContent = &text
	}
	d.ReasoningDetails = append(d.ReasoningDetails, v.note(chat.Thought{Type: chat.ThoughtText, Text: text, Signature: signature}, v.at))
	if signature != "" {
		v.rest()
	}
	return d
}

// settle gives the signature of the text before its place.
func (v *voice) settle() []chat.Thought {
	if v.signature == "" {
		return nil
	}
	signature := v.signature
	v.signature = ""
	return []chat.Thought{v.mark(signature, v.signed)}
}

// mark is a place where nothing was thought, or the signature of the text that ends there.
func (v *voice) mark(signature string, at chat.Place) chat.Thought {
	v.rest()
	t := chat.Thought{Type: chat.ThoughtText}
	if signature != "" {
		t = chat.Thought{Type: chat.ThoughtSealed, Data: signature}
	}
	t = v.note(t, at)
	v.thoughts++
	return t
}

// rest ends a thought.
func (v *voice) rest() {
	if v.thinking {
		v.thinking = false
		v.thoughts++
	}
}

func (v *voice) note(t chat.Thought, at chat.Place) chat.Thought {
	i := v.thoughts
	t.Format, t.Index = chat.OfGoogle, &i
	if at != (chat.Place{}) {
		t.Place = &at
	}
	return t
}

// call is a call, which comes whole: its name, then its arguments. One without an id gets one that no other call of any
// answer has. Where one is wanted at a time, those after the first are not handed on: the model makes them again, when it
// has seen what the first gave.
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
	i := v.at.Calls
	if v.one && i > 0 {
		return nil, nil
	}
	v.at.Calls++
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
	if finish == chat.Stop && v.at.Calls > 0 {
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
