package gemini

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/chat"
)

// A conversation is messages on their way into turns. Consecutive messages of one speaker are one turn; results of
// functions are a turn of their own, for Gemini wants all those of a turn's calls together and right after it.
type conversation struct {
	system []part
	turns  []content
	kind   string            // of the last turn: a role of a message
	called map[string]string // names of functions, by the id of a call
	early  bool
}

// speakers add a message to a conversation.
var speakers = map[string]func(c *conversation, m *chat.Message, at string) error{
	chat.System:    (*conversation).instruct,
	chat.Developer: (*conversation).instruct,
	chat.User:      (*conversation).ask,
	chat.Assistant: (*conversation).recall,
	chat.FromTool:  (*conversation).result,
}

func converse(messages []chat.Message, early bool) (*conversation, error) {
	c := &conversation{called: map[string]string{}, early: early}
	for i := range messages {
		m, at := &messages[i], fmt.Sprintf("messages[%d]", i)
		speak, ok := speakers[m.Role]
		if !ok {
			return nil, fault.Invalid(at+".role", "must be system, developer, user, assistant or tool")
		}
		if err := understood(m, at); err != nil {
			return nil, err
		}
		if err := speak(c, m, at); err != nil {
			return nil, err
		}
	}
	if len(c.turns) == 0 {
		return nil, fault.Invalid("messages", "say nothing beside instructions")
	}
	return c, nil
}

// understood refuses the members of a message that its role cannot have here.
func understood(m *chat.Message, at string) error {
	assistant := m.Role == chat.Assistant
	for _, member := range []struct {
		name string
		here bool
	}{
		{"name", m.Name != "" && m.Role != chat.FromTool},
		{"annotations", present(m.Annotations) && string(m.Annotations) != "[]"},
		{"audio", present(m.Audio)},
		{"function_call", present(m.FunctionCall)},
		{"tool_call_id", m.ToolCallID != "" && m.Role != chat.FromTool},
		{"tool_calls", len(m.ToolCalls) > 0 && !assistant},
		{"refusal", m.Refusal != nil && !assistant},
		{"reasoning_content", m.ReasoningContent != nil && !assistant},
		{"reasoning", m.Reasoning != nil && !assistant},
		{"reasoning_details", len(m.ReasoningDetails) > 0 && !assistant},
		{"extra_content", m.ExtraContent != nil && !assistant},
	} {
		if member.here {
			return chat.Unsupported(at+"."+member.name, "cannot be expressed in the "+wire)
		}
	}
	return nil
}

// add puts parts into the turn of a role, which is the last one or a new one.
func (c *conversation) add(kind, role string, parts []part) {
	if len(parts) == 0 {
		return
	}
	if kind != c.kind {
		c.kind, c.turns = kind, append(c.turns, content{Role: role})
	}
	last := &c.turns[len(c.turns)-1]
	last.Parts = append(last.Parts, parts...)
}

// instruct adds instructions. Gemini takes them before the conversation alone: elsewhere they would lose their place, or
// their authority.
func (c *conversation) instruct(m *chat.Message, at string) error {
	if len(c.turns) > 0 {
		return chat.Unsupported(at, "is an instruction after the conversation has begun: the "+wire+" has them before it alone")
	}
	parts, err := c.parts(m.Content, at, chat.PartText)
	c.system = append(c.system, parts...)
	return err
}

func (c *conversation) ask(m *chat.Message, at string) error {
	parts, err := c.parts(m.Content, at, chat.PartText, chat.PartImage, chat.PartAudio, chat.PartFile)
	c.add(chat.User, roleUser, parts)
	return err
}

func (c *conversation) call(t *chat.ToolCall, at string) (part, error) {
	switch {
	case t.Type != "function" && t.Type != "" || present(t.Custom):
		return part{}, chat.Unsupported(at, "is no call of a function, which is all that the "+wire+" has")
	case t.ID == "":
		return part{}, fault.Invalid(at+".id", "is required")
	case t.Function.Name == "":
		return part{}, fault.Invalid(at+".function.name", "is required")
	}
	args := jsontext.Value(t.Function.Arguments)
	if strings.TrimSpace(t.Function.Arguments) == "" {
		args = jsontext.Value("{}")
	}
	if !object(args) {
		return part{}, fault.Invalid(at+".function.arguments", "is not a JSON object")
	}
	c.called[t.ID] = t.Function.Name
	return part{
		FunctionCall:     &functionCall{ID: t.ID, Name: t.Function.Name, Args: args},
		ThoughtSignature: t.ExtraContent.Signature(),
	}, nil
}

func object(value jsontext.Value) bool { return value.Kind() == '{' && value.IsValid() }

// result adds what a function gave back. An object is the response itself; any other text is its output, as Google names
// it. Pictures and documents are parts of it.
func (c *conversation) result(m *chat.Message, at string) error {
	name, ok := c.called[m.ToolCallID]
	switch {
	case !ok:
		return fault.Invalid(at+".tool_call_id", "is of no call before it")
	case m.Name != "" && m.Name != name:
		return fault.Invalid(at+".name", "is not that of the function which was called")
	}
	parts, err := c.parts(m.Content, at, chat.PartText, chat.PartImage, chat.PartFile)
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
			return chat.Unsupported(place, "cannot be a function's result in the "+wire+", which takes data alone")
		case p.MediaResolution != nil:
			return chat.Unsupported(place+".image_url.detail", "cannot be chosen for a function's result")
		case c.early:
			return chat.Unsupported(place, "cannot be a function's result for this model, which takes text alone")
		default:
			p.InlineData.DisplayName = fmt.Sprintf("part_%d", i)
			response.Parts = append(response.Parts, p)
		}
	}
	if response.Response = jsontext.Value(text.String()); !object(response.Response) {
		response.Response, err = json.Marshal(map[string]string{"output": text.String()})
	}
	c.add(chat.FromTool, roleUser, []part{{FunctionResponse: response}})
	return err
}
