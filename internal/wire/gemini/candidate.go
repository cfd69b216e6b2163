package gemini

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/wire/chat"
)

// candidateReader converts the parts of one candidate into deltas. Complete answers and streams use the same code, so
// that both yield the same message.
//
// OpenAI's message has thoughts, then text, then calls. Another order is recorded in reasoning_details: a thought has a
// position, a text after a call is preceded by an empty marker, and a signature of a text that is not the last one is
// an encrypted thought.
type candidateReader struct {
	index           int
	singleCall      bool          // pass on the first call only: parallel_tool_calls is false
	position        chat.Position // text and calls so far
	callsBeforeText int           // calls before the last text
	inText          bool          // the last part was a text
	finish          string

	thoughts          int           // thoughts that have ended
	inThought         bool          // a thought is open
	thoughtPosition   chat.Position // position of the open thought
	signature         string        // signature of the text so far, not sent as a thought yet
	signaturePosition chat.Position
}

// addPart returns the deltas of a part. A part that is neither text nor a call, such as an image, is an error.
func (v *candidateReader) addPart(p *answerPart, answer string) ([]chat.Delta, error) {
	var text string
	switch {
	case p.FunctionCall != nil:
		v.inText = false
		return v.addCall(p, answer)
	case p.Text != nil:
		text = *p.Text
	case len(p.Other) > 0:
		return nil, fmt.Errorf("a part of the answer is neither text nor a call: %.40s", p.Other)
	}
	switch {
	case text == "" && p.ThoughtSignature == "":
		return nil, nil
	case p.Thought:
		v.inText = false
		return []chat.Delta{v.addThought(text, p.ThoughtSignature)}, nil
	default:
		return []chat.Delta{v.addText(text, p.ThoughtSignature)}, nil
	}
}

// addText returns the delta of a text. Its signature is that of the message, unless another text or a thought follows.
func (v *candidateReader) addText(text, signature string) (d chat.Delta) {
	d.ReasoningDetails = v.flushSignature()
	if text != "" {
		if v.position.Calls > v.callsBeforeText {
			d.ReasoningDetails = append(d.ReasoningDetails, v.marker("", v.position))
		}
		d.Content = &text
		v.position.Text, v.callsBeforeText, v.inText = v.position.Text+len(text), v.position.Calls, true
	}
	if signature == "" {
		return d
	}
	d.ExtraContent = chat.SignatureContent(signature)
	if !v.inText && v.position != (chat.Position{}) { // it does not follow a text
		d.ReasoningDetails = append(d.ReasoningDetails, v.marker(signature, v.position))
	} else {
		v.signature, v.signaturePosition = signature, v.position
	}
	return d
}

// addThought returns the delta of a thought. A signature covers all deltas before it and ends the thought.
func (v *candidateReader) addThought(text, signature string) (d chat.Delta) {
	d.ReasoningDetails = v.flushSignature()
	if v.thoughtPosition != v.position {
		v.endThought()
	}
	v.inThought, v.thoughtPosition = true, v.position
	if text != "" {
		d.ReasoningContent = &text
	}
	d.ReasoningDetails = append(d.ReasoningDetails, v.newThought(chat.Thought{
		Type: chat.ThoughtText, Text: text,
		Signature: signature,
	}, v.position))
	if signature != "" {
		v.endThought()
	}
	return d
}

// flushSignature returns the pending signature of a text as an encrypted thought.
func (v *candidateReader) flushSignature() []chat.Thought {
	if v.signature == "" {
		return nil
	}
	signature := v.signature
	v.signature = ""
	return []chat.Thought{v.marker(signature, v.signaturePosition)}
}

// marker returns an empty thought that marks a position, or the signature of the text that ends there.
func (v *candidateReader) marker(signature string, at chat.Position) chat.Thought {
	v.endThought()
	t := chat.Thought{Type: chat.ThoughtText}
	if signature != "" {
		t = chat.Thought{Type: chat.ThoughtEncrypted, Data: signature}
	}
	t = v.newThought(t, at)
	v.thoughts++
	return t
}

// endThought ends the open thought.
func (v *candidateReader) endThought() {
	if v.inThought {
		v.inThought = false
		v.thoughts++
	}
}

// newThought completes a thought with format, index and position.
func (v *candidateReader) newThought(t chat.Thought, at chat.Position) chat.Thought {
	i := v.thoughts
	t.Format, t.Index = chat.FormatGoogle, &i
	if at != (chat.Position{}) {
		t.Position = &at
	}
	return t
}

// addCall returns the deltas of a call: its name, then its arguments. A call without an id gets a unique one. If
// parallel_tool_calls is false, calls after the first are dropped: the model repeats them when it has seen the result
// of the first.
func (v *candidateReader) addCall(p *answerPart, answer string) ([]chat.Delta, error) {
	called := p.FunctionCall
	if called.Name == "" {
		return nil, errors.New("a call names no function")
	}
	args := jsontext.Value("{}")
	if chat.IsSet(called.Args) {
		args = called.Args
	}
	if err := args.Compact(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil ||
		args.Kind() != '{' {
		return nil, errors.New("the arguments of a call are no object")
	}
	i := v.position.Calls
	if v.singleCall && i > 0 {
		return nil, nil
	}
	v.position.Calls++
	id := cmp.Or(called.ID, fmt.Sprintf("call_%s_%d_%d", answer, v.index, i))
	return []chat.Delta{
		{ToolCalls: []chat.ToolCall{{
			Index: &i, ID: id, Type: "function", Function: chat.FunctionCall{Name: called.Name},
			ExtraContent: chat.SignatureContent(p.ThoughtSignature),
		}}},
		{ToolCalls: []chat.ToolCall{{Index: &i, Function: chat.FunctionCall{Arguments: string(args)}}}},
	}, nil
}

// finishReasons maps Gemini's finish reasons. All reasons that concern the content become content_filter.
var finishReasons = map[string]string{
	"STOP":                     chat.Stop, // tool_calls, if there are calls
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

// finishErrors are the finish reasons that have no equivalent: generation failed, and a retry may succeed.
var finishErrors = map[string]string{
	"MALFORMED_FUNCTION_CALL":   "the model's call of a function is malformed",
	"MALFORMED_RESPONSE":        "the model's answer is malformed",
	"MISSING_THOUGHT_SIGNATURE": "a thought signature is missing from the history",
	"UNEXPECTED_TOOL_CALL":      "the model called a tool that it has not",
	"TOO_MANY_TOOL_CALLS":       "the model called too many tools",
	"NO_IMAGE":                  "the model made no image",
	"FINISH_REASON_UNSPECIFIED": "the model stopped without a reason",
}

// generationError is a failed generation.
type generationError string

func (f generationError) Error() string { return string(f) }

// finishReason returns the finish reason of a candidate; empty if it has not finished.
func (v *candidateReader) finishReason(c *candidate) (string, error) {
	if c.FinishReason == "" {
		return "", nil
	}
	if why, ok := finishErrors[c.FinishReason]; ok {
		if c.FinishMessage != "" {
			why += ": " + c.FinishMessage
		}
		return "", generationError(why)
	}
	finish, ok := finishReasons[c.FinishReason]
	if !ok {
		return "", fmt.Errorf("the answer stopped for %q, which is not known", c.FinishReason)
	}
	if finish == chat.Stop && v.position.Calls > 0 {
		finish = chat.ToolCalls
	}
	return finish, nil
}

const modalityAudio = "AUDIO"

// usage returns the usage as OpenAI counts it; nil if the prompt tokens are not reported.
func (u *usageMetadata) usage() *chat.Usage {
	if u == nil || u.PromptTokenCount == nil {
		return nil
	}
	prompt, completion := *u.PromptTokenCount+u.ToolUsePromptTokenCount, u.CandidatesTokenCount+u.ThoughtsTokenCount
	return &chat.Usage{
		PromptTokens: prompt, CompletionTokens: completion, TotalTokens: prompt + completion,
		PromptTokensDetails: chat.PromptDetails{
			CachedTokens: min(u.CachedContentTokenCount, prompt),
			AudioTokens:  max(0, u.PromptTokensDetails.of(modalityAudio)-u.CacheTokensDetails.of(modalityAudio)),
		},
		CompletionTokensDetails: chat.CompletionDetails{
			ReasoningTokens: u.ThoughtsTokenCount, AudioTokens: u.CandidatesTokensDetails.of(modalityAudio),
		},
	}
}

// of returns the number of tokens of a modality.
func (m modalities) of(modality string) (n int64) {
	for _, d := range m {
		if d.Modality == modality {
			n += d.TokenCount
		}
	}
	return n
}
