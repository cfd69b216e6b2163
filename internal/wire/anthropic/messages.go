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

// turn is a run of messages of one role.
type turn struct {
	Role    string  `json:"role"`
	Content []block `json:"content"`
	path    string  // path of its first message, for errors
}

// The roles of turns.
const (
	roleSystem    = "system"
	roleUser      = "user"
	roleAssistant = "assistant"
)

// roles maps the roles of OpenAI's messages. Tool results belong to the user's turn.
var roles = map[string]string{
	chat.RoleSystem: roleSystem, chat.RoleDeveloper: roleSystem, chat.RoleUser: roleUser,
	chat.RoleAssistant: roleAssistant, chat.RoleTool: roleUser,
}

// setMessages translates the messages into the system prompt and the turns.
func (q *messagesRequest) setMessages(r *chat.Request, m *live.Model) error {
	q.Messages, q.callNames = []turn{}, map[string]string{}
	for i := range r.Messages {
		message, at := &r.Messages[i], fmt.Sprintf("messages[%d]", i)
		role, ok := roles[message.Role]
		if !ok {
			return fault.Invalid(at+".role", "must be system, developer, user, assistant or tool")
		}
		blocks, err := q.convertMessage(message, at)
		if err != nil {
			return err
		}
		last := len(q.Messages) - 1
		switch {
		case role == roleSystem && last < 0:
			q.System = append(q.System, blocks...)
		case len(blocks) == 0 && role != roleUser:
		case len(blocks) == 0:
			return chat.Unsupported(at+".content", "is empty, which cannot be said in the "+apiName)
		case last >= 0 && q.Messages[last].Role == role:
			q.Messages[last].Content = append(q.Messages[last].Content, blocks...)
		default:
			q.Messages = append(q.Messages, turn{Role: role, Content: blocks, path: at})
		}
	}
	if len(q.Messages) == 0 {
		return fault.Invalid("messages", "must have one that is not the system's")
	}
	return checkSystemTurns(q.Messages, traitsOf(m))
}

// checkSystemTurns refuses system turns where the API or the model does not allow them.
func checkSystemTurns(turns []turn, is traits) error {
	for i, t := range turns {
		if t.Role != roleSystem {
			continue
		}
		if is.has(leadingSystemOnly) {
			return chat.Unsupported(t.path+".role", "cannot be "+roleSystem+" here: with this model it only leads")
		}
		if turns[i-1].Role != roleUser || i+1 < len(turns) && turns[i+1].Role != roleAssistant {
			return chat.Unsupported(t.path+".role", "cannot be "+roleSystem+" here: in the "+apiName+
				" it leads, or stands between what a user and what the assistant says, or ends")
		}
	}
	return nil
}

// convertMessage returns the blocks of one message.
func (q *messagesRequest) convertMessage(m *chat.Message, at string) ([]block, error) {
	if err := checkMembers(m, at); err != nil {
		return nil, err
	}
	switch m.Role {
	case chat.RoleAssistant:
		return q.convertAssistant(m, at)
	case chat.RoleTool:
		return q.convertToolResult(m, at)
	default:
		if m.Content.IsZero() {
			return nil, fault.Invalid(at+".content", "is missing")
		}
		return convertContent(m, at)
	}
}

// checkMembers refuses members that a message of this role cannot have, or that have no equivalent.
func checkMembers(m *chat.Message, at string) error {
	others := m.Role != chat.RoleAssistant
	for _, member := range []struct {
		name    string
		refused bool
	}{
		{"name", m.Name != "" && m.Role != chat.RoleTool},
		{"tool_calls", others && len(m.ToolCalls) > 0},
		{"tool_call_id", m.Role != chat.RoleTool && m.ToolCallID != ""},
		{"refusal", others && m.Refusal != nil},
		{"reasoning_content", others && m.ReasoningContent != nil},
		{"reasoning", others && m.Reasoning != nil},
		{"reasoning_details", others && len(m.ReasoningDetails) > 0},
		{"annotations", isSet(m.Annotations)},
		{"audio", isSet(m.Audio)},
		{"function_call", isSet(m.FunctionCall)},
	} {
		if member.refused {
			return chat.Unsupported(at+"."+member.name, "has no equivalent in the "+apiName+" for the role "+m.Role)
		}
	}
	return nil
}

// isSet reports whether a value is present and not null or empty.
func isSet(v jsontext.Value) bool {
	switch strings.TrimSpace(string(v)) {
	case "", "null", "[]", "{}":
		return false
	}
	return true
}

// convertAssistant returns the blocks of an assistant message: thoughts, texts and calls.
func (q *messagesRequest) convertAssistant(m *chat.Message, at string) ([]block, error) {
	thoughts, err := q.convertThoughts(m, at)
	if err != nil {
		return nil, err
	}
	blocks, err := convertContent(m, at)
	if err != nil {
		return nil, err
	}
	if m.Refusal != nil {
		blocks = append(blocks, block{Type: blockText, Text: *m.Refusal})
	}
	var calls []block
	for i := range m.ToolCalls {
		called, err := convertCall(&m.ToolCalls[i], fmt.Sprintf("%s.tool_calls[%d]", at, i))
		if err != nil {
			return nil, err
		}
		calls = append(calls, called)
		q.callNames[m.ToolCalls[i].ID] = called.Name
	}
	return interleave(thoughts, blocks, calls), nil
}

// convertCall returns the block of a tool call. A Google thought signature on it is dropped.
func convertCall(c *chat.ToolCall, at string) (block, error) {
	input := jsontext.Value(c.Function.Arguments)
	if strings.TrimSpace(c.Function.Arguments) == "" {
		input = jsontext.Value("{}")
	}
	switch {
	case c.Type != function && c.Type != "", isSet(c.Custom):
		return block{}, chat.Unsupported(at, "calls no function, and nothing else has an equivalent in the "+apiName)
	case c.ID == "":
		return block{}, fault.Invalid(at+".id", "must not be empty")
	case c.Function.Name == "":
		return block{}, fault.Invalid(at+".function.name", "must not be empty")
	case !input.IsValid() || input.Kind() != '{':
		return block{}, fault.Invalid(at+".function.arguments", "must be a JSON object")
	}
	return block{Type: blockToolUse, ID: callID(c.ID), Name: c.Function.Name, Input: input}, nil
}

// validCallID matches the call ids that Anthropic accepts.
var validCallID = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// escapedPrefix starts an escaped call id.
const escapedPrefix = "id-"

// callID escapes a call id that Anthropic would refuse. The mapping is injective, and the same for a call and its
// result.
func callID(id string) string {
	if validCallID.MatchString(id) && !strings.HasPrefix(id, escapedPrefix) {
		return id
	}
	return escapedPrefix + base64.RawURLEncoding.EncodeToString([]byte(id))
}

// convertToolResult returns the block of a tool's result. A cache mark on its last part becomes that of the block.
func (q *messagesRequest) convertToolResult(m *chat.Message, at string) ([]block, error) {
	name, known := q.callNames[m.ToolCallID]
	switch {
	case known && m.Name != "" && m.Name != name:
		return nil, fault.Invalid(at+".name", "is not that of the function which was called")
	case m.ToolCallID == "":
		return nil, fault.Invalid(at+".tool_call_id", "is missing")
	case m.Content.IsZero():
		return nil, fault.Invalid(at+".content", "is missing")
	}
	blocks, err := convertContent(m, at)
	if err != nil {
		return nil, err
	}
	b := block{Type: blockToolResult, ToolUseID: callID(m.ToolCallID), Content: blocks}
	if n := len(blocks); n > 0 {
		b.CacheControl, blocks[n-1].CacheControl = blocks[n-1].CacheControl, nil
	}
	return []block{b}, nil
}
