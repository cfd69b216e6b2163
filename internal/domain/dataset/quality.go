package dataset

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A dropReason says why an exchange is in no example.
type dropReason uint8

const (
	notDropped dropReason = iota
	errored
	truncated
	empty
	duplicate
)

// The finish reasons of answers that are dropped.
const (
	filtered = "content_filter"
	cut      = "length"
)

// lenient reads the JSON of providers, duplicate names and invalid UTF-8 included.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// classify says why an answer is dropped, as far as the answer alone tells.
func classify(finish string, response []byte) dropReason {
	if finish == filtered {
		return errored
	}
	var message struct {
		Content      jsontext.Value `json:"content"`
		Refusal      jsontext.Value `json:"refusal"`
		ToolCalls    jsontext.Value `json:"tool_calls"`
		FunctionCall jsontext.Value `json:"function_call"`
	}
	if json.Unmarshal(response, &message, lenient) != nil {
		return errored
	}
	text, refused := contentOf(message.Content)
	switch {
	case refused || !blank(message.Refusal):
		return errored
	case finish == cut:
		return truncated
	case text || called(message.ToolCalls) || message.FunctionCall.Kind() == '{':
		return notDropped
	}
	return empty
}

// contentOf reports whether a content has text, and whether it is a refusal. Reasoning does not count as text.
func contentOf(content jsontext.Value) (text, refused bool) {
	if content.Kind() != '[' {
		return !blank(content), false
	}
	var parts []jsontext.Value
	_ = json.Unmarshal(content, &parts, lenient) // it was read before
	for _, part := range parts {
		if part.Kind() == '"' {
			text = text || !blank(part)
			continue
		}
		var p struct {
			Type    jsontext.Value `json:"type"`
			Text    jsontext.Value `json:"text"`
			Refusal jsontext.Value `json:"refusal"`
		}
		if json.Unmarshal(part, &p, lenient) != nil {
			continue
		}
		switch textOf(p.Type) {
		case "thinking", "redacted_thinking", "reasoning":
		default:
			text, refused = text || !blank(p.Text), refused || !blank(p.Refusal)
		}
	}
	return text, refused
}

// textOf is the string of a value, or empty if it is not a string.
func textOf(value jsontext.Value) (text string) {
	if value.Kind() == '"' {
		_ = json.Unmarshal(value, &text, lenient)
	}
	return text
}

func blank(value jsontext.Value) bool { return strings.TrimSpace(textOf(value)) == "" }

func called(calls jsontext.Value) bool {
	var all []jsontext.Value
	return calls.Kind() == '[' && json.Unmarshal(calls, &all, lenient) == nil && len(all) > 0
}
