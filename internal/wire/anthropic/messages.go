package anthropic

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/live"
	"sovereign/internal/wire/chat"
)

// A turn is what one side says before the other speaks.
type turn struct {
	Role    string  `json:"role"`
	Content []block `json:"content"`
	at      string  // the first message of it
}

// The roles of turns.
const (
	bySystem    = "system"
	byUser      = "user"
	byAssistant = "assistant"
)

// roles are those of messages. What tools say comes from the user.
var roles = map[string]string{
	chat.System: bySystem, chat.Developer: bySystem, chat.User: byUser, chat.Assistant: byAssistant, chat.FromTool: byUser,
}

// converse makes the system prompt and the turns.
func (q *question) converse(r *chat.Request, m *live.Model) error {
	q.Messages, q.called = []turn{}, map[string]string{}
	for i := range r.Messages {
		one, at := &r.Messages[i], fmt.Sprintf("messages[%d]", i)
		role, ok := roles[one.Role]
		if !ok {
			return fault.Invalid(at+".role", "must be system, developer, user, assistant or tool")
		}
		said, err := q.message(one, at)
		if err != nil {
			return err
		}
		last := len(q.Messages) - 1
		switch {
		case role == bySystem && last < 0:
			q.System = append(q.System, said...)
		case len(said) == 0 && role != byUser:
		case len(said) == 0:
			return chat.Unsupported(at+".content", "is empty, which cannot be said in the "+wire)
		case last >= 0 && q.Messages[last].Role == role:
			q.Messages[last].Content = append(q.Messages[last].Content, said...)
		default:
			q.Messages = append(q.Messages, turn{Role: role, Content: said, at: at})
		}
	}
	if len(q.Messages) == 0 {
		return fault.Invalid("messages", "must have one that is not the system's")
	}
	return placed(q.Messages, traitsOf(m))
}

// placed refuses turns of the system's where they cannot be.
func placed(turns []turn, is traits) error {
	for i, t := range turns {
		if t.Role != bySystem {
			continue
		}
		if is.has(led) {
			return chat.Unsupported(t.at+".role", "cannot be "+bySystem+" here: with this model it only leads")
		}
		if turns[i-1].Role != byUser || i+1 < len(turns) && turns[i+1].Role != byAssistant {
			return chat.Unsupported(t.at+".role", "cannot be "+bySystem+" here: in the "+wire+
				" it leads, or stands between what a user and what the assistant says, or ends")
		}
	}
	return nil
}

// message is what one message says.
func (q *question) message(m *chat.Message, at string) ([]block, error) {
	if err := foreign(m, at); err != nil {
		return nil, err
	}
	switch m.Role {
	case chat.Assistant:
		return q.reply(m, at)
	case chat.FromTool:
		return q.result(m, at)
	default:
		if m.Content.IsZero() {
			return nil, fault.Invalid(at+".content", "is missing")
		}
		return content(m, at)
	}
}

// foreign refuses what a message holds and its role, or the wire, has no place for.
func foreign(m *chat.Message, at string) error {
	others := m.Role != chat.Assistant
	for _, member := range []struct {
		name  string
		stray bool
	}{
		{"name", m.Name != "" && m.Role != chat.FromTool},
		{"tool_calls", others && len(m.ToolCalls) > 0},
		{"tool_call_id", m.Role != chat.FromTool && m.ToolCallID != ""},
		{"refusal", others && m.Refusal != nil},
		{"reasoning_content", others && m.ReasoningContent != nil},
		{"reasoning", others && m.Reasoning != nil},
		{"reasoning_details", others && len(m.ReasoningDetails) > 0},
		{"annotations", says(m.Annotations)},
		{"audio", says(m.Audio)},
		{"function_call", says(m.FunctionCall)},
	} {
		if member.stray {
			return chat.Unsupported(at+"."+member.name, "has no equivalent in the "+wire+" for the role "+m.Role)
		}
	}
	return nil
}

// says reports whether a value is more than nothing.
func says(v jsontext.Value) bool {
	switch strings.TrimSpace(string(v)) {
	case "", "null", "[]", "{}":
		return false
	}
	return true
}

// reply is an assistant's message: what it thought, said and called.
func (q *question) reply(m *chat.Message, at string) ([]block, error) {
	thoughts, err := q.thoughts(m, at)
	if err != nil {
		return nil, err
	}
	said, err := content(m, at)
	if err != nil {
		return nil, err
	}
	if m.Refusal != nil {
		said = append(said, block{Type: blockText, Text: *m.Refusal})
	}
	var calls []block
	for i := range m.ToolCalls {
		called, err := call(&m.ToolCalls[i], fmt.Sprintf("%s.tool_calls[%d]", at, i))
		if err != nil {
			return nil, err
		}
		calls = append(calls, called)
		q.called[m.ToolCalls[i].ID] = called.Name
	}
	return woven(thoughts, said, calls), nil
}

// call is a call of a function. A signature of Google's on it is not for Anthropic.
func call(c *chat.ToolCall, at string) (block, error) {
	input := jsontext.Value(c.Function.Arguments)
	if strings.TrimSpace(c.Function.Arguments) == "" {
		input = jsontext.Value("{}")
	}
	switch {
	case c.Type != function && c.Type != "", says(c.Custom):
		return block{}, chat.Unsupported(at, "calls no function, and nothing else has an equivalent in the "+wire)
	case c.ID == "":
		return block{}, fault.Invalid(at+".id", "must not be empty")
	case c.Function.Name == "":
		return block{}, fault.Invalid(at+".function.name", "must not be empty")
	case !input.IsValid() || input.Kind() != '{':
		return block{}, fault.Invalid(at+".function.arguments", "must be a JSON object")
	}
	return block{Type: blockCall, ID: callID(c.ID), Name: c.Function.Name, Input: input}, nil
}

// ids are those that Anthropic takes.
var ids = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// escaped is how an id begins that was not fit.
const escaped = "id-"

// callID is a call's id as Anthropic takes it: the same for a call and its result, and never the same for two.
func callID(id string) string {
	if ids.MatchString(id) && !strings.HasPrefix(id, escaped) {
		return id
	}
	return escaped + base64.RawURLEncoding.EncodeToString([]byte(id))
}

// result is what a tool said. The mark of its end is the result's own.
func (q *question) result(m *chat.Message, at string) ([]block, error) {
	name, known := q.called[m.ToolCallID]
	switch {
	case known && m.Name != "" && m.Name != name:
		return nil, fault.Invalid(at+".name", "is not that of the function which was called")
	case m.ToolCallID == "":
		return nil, fault.Invalid(at+".tool_call_id", "is missing")
	case m.Content.IsZero():
		return nil, fault.Invalid(at+".content", "is missing")
	}
	said, err := content(m, at)
	if err != nil {
		return nil, err
	}
	b := block{Type: blockResult, ToolUseID: callID(m.ToolCallID), Content: said}
	if n := len(said); n > 0 {
		b.CacheControl, said[n-1].CacheControl = said[n-1].CacheControl, nil
	}
	return []block{b}, nil
}
