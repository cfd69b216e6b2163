package dataset

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A verdict is what becomes of an exchange.
type verdict uint8

const (
	good verdict = iota
	errored
	truncated
	empty
	duplicate
)

// The finish reasons that tell of a spoiled answer.
const (
	filtered = "content_filter"
	cut      = "length"
)

// lenient reads what providers answer: what is odd must not be lost for it.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// judge is the verdict on an answer by itself.
func judge(finish string, response []byte) verdict {
	if finish == filtered {
		return errored
	}
	var said struct {
		Content      jsontext.Value `json:"content"`
		Refusal      jsontext.Value `json:"refusal"`
		ToolCalls    jsontext.Value `json:"tool_calls"`
		FunctionCall jsontext.Value `json:"function_call"`
	}
	if json.Unmarshal(response, &said, lenient) != nil {
		return errored
	}
	text, refused := speech(said.Content)
	switch {
	case refused || !blank(said.Refusal):
		return errored
	case finish == cut:
		return truncated
	case text || called(said.ToolCalls) || said.FunctionCall.Kind() == '{':
		return good
	}
	return empty
}

// speech reports whether a content says anything, and whether it is a refusal. A model's reasoning is not what it says.
func speech(content jsontext.Value) (text, refused bool) {
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
		switch said(p.Type) {
		case "thinking", "redacted_thinking", "reasoning":
		default:
			text, refused = text || !blank(p.Text), refused || !blank(p.Refusal)
		}
	}
	return text, refused
}

// said is the string that a value is, or none.
func said(value jsontext.Value) (text string) {
	if value.Kind() == '"' {
		_ = json.Unmarshal(value, &text, lenient)
	}
	return text
}

func blank(value jsontext.Value) bool { return strings.TrimSpace(said(value)) == "" }

func called(calls jsontext.Value) bool {
	var all []jsontext.Value
	return calls.Kind() == '[' && json.Unmarshal(calls, &all, lenient) == nil && len(all) > 0
}
