package reward

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A chatMessage is a message as exports have it: what trainers read of OpenAI's form, and each member of one type. Its
// content is always a text.
type chatMessage struct {
	Role       string     `json:"role"`
	Content    string     `json:"content"`
	Name       string     `json:"name,omitempty"`
	ToolCalls  []toolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

// A toolCall is a call of a function. Its arguments are a text.
type toolCall struct {
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// chatOf returns the messages of a prompt or a completion. A text is one message of a role.
func chatOf(v jsontext.Value, role string) ([]chatMessage, error) {
	if v.Kind() == '"' {
		return []chatMessage{{Role: role, Content: textOf(v)}}, nil
	}
	type stored struct {
		Role       string         `json:"role"`
		Content    jsontext.Value `json:"content"`
		Refusal    string         `json:"refusal"`
		Name       string         `json:"name"`
		ToolCallID string         `json:"tool_call_id"`
		ToolCalls  []struct {
			ID       string `json:"id"`
			Function struct {
				Name      string         `json:"name"`
				Arguments jsontext.Value `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	}
	var all []stored
	if err := json.Unmarshal(v, &all, lenient); err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	made := make([]chatMessage, len(all))
	for i, m := range all {
		made[i] = chatMessage{Role: m.Role, Content: textOf(m.Content), Name: m.Name, ToolCallID: m.ToolCallID}
		if made[i].Content == "" {
			made[i].Content = m.Refusal
		}
		for _, c := range m.ToolCalls {
			made[i].ToolCalls = append(made[i].ToolCalls, toolCall{
				ID: c.ID, Type: "function", Function: function{c.Function.Name, textOf(c.Function.Arguments)},
			})
		}
	}
	return made, nil
}

// lenient reads the JSON of others as it is.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// textOf returns a value as a text: a text is itself, the text parts of a list are joined, null and what is missing are
// empty, and everything else is its JSON.
func textOf(v jsontext.Value) string {
	var text string
	var parts []jsontext.Value
	switch kind := v.Kind(); {
	case kind == jsontext.KindInvalid || kind == 'n':
		return ""
	case kind == '"' && json.Unmarshal(v, &text, lenient) == nil:
		return text
	case kind == '[' && json.Unmarshal(v, &parts, lenient) == nil:
		texts := make([]string, len(parts))
		for i, part := range parts {
			texts[i] = textOfPart(part)
		}
		return strings.Join(texts, "\n")
	}
	return string(v)
}

// textOfPart returns the text of a part of a content, or its JSON where it has none.
func textOfPart(v jsontext.Value) string {
	var part struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if v.Kind() == '{' && json.Unmarshal(v, &part, lenient) == nil && part.Text != nil {
		return *part.Text
	}
	return textOf(v)
}
