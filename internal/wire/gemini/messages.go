package gemini

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/chat"
)

// conversation collects turns. Consecutive messages of one role form one turn. Tool results form a turn of their own,
// because Gemini requires all results of a turn's calls together and directly after it.
type conversation struct {
	system        []part
	turns         []content
	lastRole      string            // role of the messages in the last turn
	callNames     map[string]string // function names, by call id
	beforeGemini3 bool
}

// messageConverters add a message to a conversation, by role.
var messageConverters = map[string]func(c *conversation, m *chat.Message, at string) error{
	chat.RoleSystem:    (*conversation).addSystem,
	chat.RoleDeveloper: (*conversation).addSystem,
	chat.RoleUser:      (*conversation).addUser,
	chat.RoleAssistant: (*conversation).addAssistant,
	chat.RoleTool:      (*conversation).addToolResult,
}

func newConversation(messages []chat.Message, early bool) (*conversation, error) {
	c := &conversation{callNames: map[string]string{}, beforeGemini3: early}
	for i := range messages {
		m, at := &messages[i], fmt.Sprintf("messages[%d]", i)
		convert, ok := messageConverters[m.Role]
		if !ok {
			return nil, fault.Invalid(at+".role", "must be system, developer, user, assistant or tool")
		}
		if err := checkMembers(m, at); err != nil {
			return nil, err
		}
		if err := convert(c, m, at); err != nil {
			return nil, err
		}
	}
	if len(c.turns) == 0 {
		return nil, fault.Invalid("messages", "say nothing beside instructions")
	}
	return c, nil
}

// checkMembers refuses members that a message of this role cannot have.
func checkMembers(m *chat.Message, at string) error {
	assistant := m.Role == chat.RoleAssistant
	for _, member := range []struct {
		name string
		set  bool
	}{
		{"name", m.Name != "" && m.Role != chat.RoleTool},
		{"annotations", chat.IsSet(m.Annotations) && string(m.Annotations) != "[]"},
		{"audio", chat.IsSet(m.Audio)},
		{"function_call", chat.IsSet(m.FunctionCall)},
		{"tool_call_id", m.ToolCallID != "" && m.Role != chat.RoleTool},
		{"tool_calls", len(m.ToolCalls) > 0 && !assistant},
		{"refusal", m.Refusal != nil && !assistant},
		{"reasoning_content", m.ReasoningContent != nil && !assistant},
		{"reasoning", m.Reasoning != nil && !assistant},
		{"reasoning_details", len(m.ReasoningDetails) > 0 && !assistant},
		{"extra_content", m.ExtraContent != nil && !assistant},
	} {
		if member.set {
			return chat.Unsupported(at+"."+member.name, "cannot be expressed in the "+apiName)
		}
	}
	return nil
}

// add appends parts to the last turn, or to a new turn if the role differs.
func (c *conversation) add(kind, role string, parts []part) {
	if len(parts) == 0 {
		return
	}
	if kind != c.lastRole {
		c.lastRole, c.turns = kind, append(c.turns, content{Role: role})
	}
	last := &c.turns[len(c.turns)-1]
	last.Parts = append(last.Parts, parts...)
}

// addSystem adds system instructions. Gemini accepts them before the conversation only; moving a later one would change
// its meaning.
func (c *conversation) addSystem(m *chat.Message, at string) error {
	if len(c.turns) > 0 {
		return chat.Unsupported(
			at, "is an instruction after the conversation has begun: the "+apiName+" has them before it alone",
		)
	}
	parts, err := c.convertParts(m.Content, at, chat.PartText)
	c.system = append(c.system, parts...)
	return err
}

func (c *conversation) addUser(m *chat.Message, at string) error {
	parts, err := c.convertParts(m.Content, at, chat.PartText, chat.PartImage, chat.PartAudio, chat.PartFile)
	c.add(chat.RoleUser, roleUser, parts)
	return err
}

func (c *conversation) convertCall(t *chat.ToolCall, at string) (part, error) {
	switch {
	case t.Type != "function" && t.Type != "" || chat.IsSet(t.Custom):
		return part{}, chat.Unsupported(at, "is no call of a function, which is all that the "+apiName+" has")
	case t.ID == "":
		return part{}, fault.Invalid(at+".id", "is required")
	case t.Function.Name == "":
		return part{}, fault.Invalid(at+".function.name", "is required")
	}
	args := jsontext.Value(t.Function.Arguments)
	if strings.TrimSpace(t.Function.Arguments) == "" {
		args = jsontext.Value("{}")
	}
	if !isObject(args) {
		return part{}, fault.Invalid(at+".function.arguments", "is not a JSON object")
	}
	c.callNames[t.ID] = t.Function.Name
	return part{
		FunctionCall:     &functionCall{ID: t.ID, Name: t.Function.Name, Args: args},
		ThoughtSignature: t.ExtraContent.Signature(),
	}, nil
}

func isObject(value jsontext.Value) bool { return value.Kind() == '{' && value.IsValid() }

// addToolResult adds the result of a function. A JSON object is sent as the response itself; other text is sent as its
// member output, as Google recommends. Images and documents become parts of it.
func (c *conversation) addToolResult(m *chat.Message, at string) error {
	name, ok := c.callNames[m.ToolCallID]
	switch {
	case !ok:
		return fault.Invalid(at+".tool_call_id", "is of no call before it")
	case m.Name != "" && m.Name != name:
		return fault.Invalid(at+".name", "is not that of the function which was called")
	}
	parts, err := c.convertParts(m.Content, at, chat.PartText, chat.PartImage, chat.PartFile)
	if err != nil {
		return err
	}
	var text strings.Builder
	response := &functionResponse{ID: m.ToolCallID, Name: name}
	for i, p := range parts {
		place := fmt.Sprintf("%s.content[%d]", at, i)
		switch {
		case p.Text != nil:
			text.WriteString(*p.Text)
		case p.InlineData == nil:
			return chat.Unsupported(place, "cannot be a function's result in the "+apiName+", which takes data alone")
		case p.MediaResolution != nil:
			return chat.Unsupported(place+".image_url.detail", "cannot be chosen for a function's result")
		case c.beforeGemini3:
			return chat.Unsupported(place, "cannot be a function's result for this model, which takes text alone")
		default:
			p.InlineData.DisplayName = fmt.Sprintf("part_%d", i)
			response.Parts = append(response.Parts, p)
		}
	}
	if response.Response = jsontext.Value(text.String()); !isObject(response.Response) {
		response.Response, err = json.Marshal(map[string]string{"output": text.String()})
	}
	c.add(chat.RoleTool, roleUser, []part{{FunctionResponse: response}})
	return err
}
