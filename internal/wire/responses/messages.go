package responses

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/chat"
	"sovereign/internal/wire/upstream"
)

// conversation collects chat messages. What a model did in one turn is several items here and one message in chat.
type conversation struct {
	request           *upstream.Request
	messages          []chat.Message
	inAssistantTurn   bool              // the last message is the assistant's, and its turn is open
	turnStart         chat.Position     // text and calls of the turn before that message
	pendingSignatures map[string]string // signatures of calls that follow later, by call id
}

// itemConverters add an item to a conversation, by type. An item without a type is a message.
var itemConverters = map[string]func(h *conversation, at string, value jsontext.Value) error{
	"": (*conversation).addMessage, "message": (*conversation).addMessage, "function_call": (*conversation).addCall,
	"function_call_output": (*conversation).addToolResult, "reasoning": (*conversation).addReasoning,
}

func (q *request) setMessages(c *chat.Request, r *upstream.Request) error {
	h := &conversation{request: r, pendingSignatures: map[string]string{}}
	if q.Instructions != nil {
		h.add(chat.Message{Role: chatRole(r, chat.RoleDeveloper), Content: chat.TextContent(*q.Instructions)})
	}
	switch {
	case q.Input.text != nil:
		h.add(chat.Message{Role: chat.RoleUser, Content: chat.TextContent(*q.Input.text)})
	case len(q.Input.list) == 0:
		return fault.Invalid("input", "is required")
	}
	for i, value := range q.Input.list {
		at := fmt.Sprintf("input[%d]", i)
		kind, err := typeOf(at, value)
		if err != nil {
			return err
		}
		convert, known := itemConverters[kind]
		if !known {
			return chat.Unsupported(at+".type", cmp.Or(refusalReasons[kind],
				fmt.Sprintf(
					"is %q, and can only be message, function_call, function_call_output or reasoning for this model",
					kind,
				)))
		}
		if err := convert(h, at, value); err != nil {
			return err
		}
	}
	c.Messages = h.messages
	return nil
}

func (h *conversation) add(m chat.Message) *chat.Message {
	h.inAssistantTurn, h.turnStart = m.Role == chat.RoleAssistant, chat.Position{}
	h.messages = append(h.messages, m)
	return &h.messages[len(h.messages)-1]
}

// assistantMessage returns the message that the next item of the assistant belongs to. A text or a thought after a text
// starts a new message, but not after a tool call: results must follow their calls directly.
func (h *conversation) assistantMessage(newText bool) *chat.Message {
	var before chat.Position
	if h.inAssistantTurn {
		m := &h.messages[len(h.messages)-1]
		if !newText || len(m.ToolCalls) > 0 || m.Content.IsZero() && m.Refusal == nil {
			return m
		}
		text, _ := m.Content.Text()
		before = chat.Position{Text: h.turnStart.Text + len(text), Calls: h.turnStart.Calls + len(m.ToolCalls)}
	}
	m := h.add(chat.Message{Role: chat.RoleAssistant})
	h.turnStart = before
	return m
}

func (h *conversation) addMessage(at string, value jsontext.Value) error {
	var m struct {
		Type    string     `json:"type"`
		Role    string     `json:"role"`
		Content textOrList `json:"content"`
		ID      *string    `json:"id"`
		Status  *string    `json:"status"`
		unknownMembers
	}
	if err := decode(at, value, &m); err != nil {
		return err
	}
	content, err := convertContent(at+".content", m.Content)
	if err != nil {
		return err
	}
	switch m.Role {
	case chat.RoleUser, chat.RoleSystem, chat.RoleDeveloper:
		h.add(chat.Message{Role: chatRole(h.request, m.Role), Content: content})
	case chat.RoleAssistant:
		appendContent(h.assistantMessage(true), content)
	default:
		return fault.Invalid(at+".role", "must be user, assistant, system or developer")
	}
	return nil
}

// appendContent adds content to an assistant message. A refusal has its own member there.
func appendContent(m *chat.Message, content chat.Content) {
	for _, p := range content.Parts {
		switch {
		case p.Type == chat.PartRefusal:
			if m.Refusal == nil {
				m.Refusal = new(string)
			}
			*m.Refusal += p.Refusal
		case m.Content.IsZero():
			m.Content = chat.Content{Plain: p.Type == chat.PartText, Parts: []chat.Part{p}}
		case p.Type != chat.PartText || p.Text != "":
			m.Content = chat.Content{Parts: append(m.Content.Parts, p)}
		}
	}
}

func (h *conversation) addCall(at string, value jsontext.Value) error {
	var c struct {
		Type      string  `json:"type"`
		ID        *string `json:"id"`
		CallID    string  `json:"call_id"`
		Name      string  `json:"name"`
		Arguments string  `json:"arguments"`
		Status    *string `json:"status"`
		unknownMembers
	}
	if err := decode(at, value, &c); err != nil {
		return err
	}
	if c.CallID == "" {
		return fault.Invalid(at+".call_id", "is required")
	}
	if c.Name == "" {
		return fault.Invalid(at+".name", "is required")
	}
	m := h.assistantMessage(false)
	m.ToolCalls = append(m.ToolCalls, chat.ToolCall{
		ID: c.CallID, Type: "function", Function: chat.FunctionCall{Name: c.Name, Arguments: c.Arguments},
		ExtraContent: chat.SignatureContent(h.pendingSignatures[c.CallID]),
	})
	delete(h.pendingSignatures, c.CallID)
	return nil
}

func (h *conversation) addToolResult(at string, value jsontext.Value) error {
	var o struct {
		Type   string     `json:"type"`
		ID     *string    `json:"id"`
		CallID string     `json:"call_id"`
		Output textOrList `json:"output"`
		Status *string    `json:"status"`
		unknownMembers
	}
	if err := decode(at, value, &o); err != nil {
		return err
	}
	if o.CallID == "" {
		return fault.Invalid(at+".call_id", "is required")
	}
	content, err := convertContent(at+".output", o.Output)
	if err != nil {
		return err
	}
	h.add(chat.Message{Role: chat.RoleTool, ToolCallID: o.CallID, Content: content})
	return nil
}

// addReasoning adds thoughts, with the provider's state from encrypted_content.
func (h *conversation) addReasoning(at string, value jsontext.Value) error {
	var r struct {
		Type      string           `json:"type"`
		ID        *string          `json:"id"`
		Summary   []jsontext.Value `json:"summary"`
		Content   []jsontext.Value `json:"content"`
		Encrypted *string          `json:"encrypted_content"`
		Status    *string          `json:"status"`
		unknownMembers
	}
	if err := decode(at, value, &r); err != nil {
		return err
	}
	thought, err := joinTexts(at+".summary", r.Summary)
	if err == nil && len(r.Content) > 0 {
		thought, err = joinTexts(at+".content", r.Content) // the summary repeats it
	}
	if err != nil {
		return err
	}
	kept, err := decodeState(deref(r.Encrypted))
	if err != nil {
		return chat.Unsupported(at+".encrypted_content", err.Error())
	}
	if p := h.request.Model.Provider; p.SpeaksOpenAI() {
		thought, kept = kept.forProvider(p.Name, thought)
	}
	if thought == "" && kept.empty() {
		return nil // it is of another provider
	}
	placed := slices.ContainsFunc(kept.Thoughts, func(t chat.Thought) bool { return t.Position != nil })
	m := h.assistantMessage(!placed && (thought != "" || len(kept.Thoughts) > 0))
	h.shiftPositions(kept.Thoughts)
	if thought != "" {
		joined := deref(m.ReasoningContent) + thought
		m.ReasoningContent = &joined
	}
	m.ReasoningDetails = append(m.ReasoningDetails, kept.Thoughts...)
	if kept.Signature != "" {
		m.ExtraContent = chat.SignatureContent(kept.Signature)
	}
	for id, signature := range kept.Calls {
		h.setSignature(id, signature)
	}
	return nil
}

// shiftPositions converts positions within the turn into positions within the last message.
func (h *conversation) shiftPositions(thoughts []chat.Thought) {
	for i := range thoughts {
		if p := thoughts[i].Position; p != nil {
			thoughts[i].Position = &chat.Position{
				Text:  max(0, p.Text-h.turnStart.Text),
				Calls: max(0, p.Calls-h.turnStart.Calls),
			}
		}
	}
}

// joinTexts joins the texts of a summary or of a reasoning content.
func joinTexts(at string, list []jsontext.Value) (string, error) {
	var b strings.Builder
	for i, value := range list {
		var p struct {
			Type string `json:"type"`
			Text string `json:"text"`
			unknownMembers
		}
		if err := decode(fmt.Sprintf("%s[%d]", at, i), value, &p); err != nil {
			return "", err
		}
		b.WriteString(p.Text)
	}
	return b.String(), nil
}

// setSignature sets the signature of the latest call with an id, or of the next one if there is none yet.
func (h *conversation) setSignature(id, signature string) {
	for i := len(h.messages) - 1; i >= 0; i-- {
		for j := range h.messages[i].ToolCalls {
			if c := &h.messages[i].ToolCalls[j]; c.ID == id {
				c.ExtraContent = chat.SignatureContent(signature)
				return
			}
		}
	}
	h.pendingSignatures[id] = signature
}
