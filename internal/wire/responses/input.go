package responses

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/live"
	"sovereign/internal/wire/chat"
	"sovereign/internal/wire/upstream"
)

// A history is a conversation as chat tells it. What a model did in one turn are many items here and one message there.
type history struct {
	request   *upstream.Request
	messages  []chat.Message
	speaking  bool              // the last message is the model's, and its turn is not over
	before    chat.Place        // what was said in the turn before that message
	unclaimed map[string]string // signatures of calls that have not come yet
}

// kinds are the items that chat can tell. An item without a type is a message.
var kinds = map[string]func(h *history, at string, value jsontext.Value) error{
	"": (*history).message, "message": (*history).message, "function_call": (*history).call,
	"function_call_output": (*history).output, "reasoning": (*history).reasoning,
}

func (q *request) sayInput(c *chat.Request, r *upstream.Request) error {
	h := &history{request: r, unclaimed: map[string]string{}}
	if q.Instructions != nil {
		h.add(chat.Message{Role: roleFor(r, chat.Developer), Content: chat.Say(*q.Instructions)})
	}
	switch {
	case q.Input.plain != nil:
		h.add(chat.Message{Role: chat.User, Content: chat.Say(*q.Input.plain)})
	case len(q.Input.list) == 0:
		return fault.Invalid("input", "is required")
	}
	for i, value := range q.Input.list {
		at := fmt.Sprintf("input[%d]", i)
		kind, err := typeOf(at, value)
		if err != nil {
			return err
		}
		tell, known := kinds[kind]
		if !known {
			return chat.Unsupported(at+".type", cmp.Or(reasons[kind], fmt.Sprintf("is %q, and can only be message, function_call, function_call_output or reasoning for this model", kind)))
		}
		if err := tell(h, at, value); err != nil {
			return err
		}
	}
	c.Messages = h.messages
	return nil
}

func (h *history) add(m chat.Message) *chat.Message {
	h.speaking, h.before = m.Role == chat.Assistant, chat.Place{}
	h.messages = append(h.messages, m)
	return &h.messages[len(h.messages)-1]
}

// turn is the message that a model's next item belongs to. Once a message has said something, another text or thought
// begins a new one; but between calls and their outputs there can be none.
func (h *history) turn(speaks bool) *chat.Message {
	var before chat.Place
	if h.speaking {
		m := &h.messages[len(h.messages)-1]
		if !speaks || len(m.ToolCalls) > 0 || m.Content.IsZero() && m.Refusal == nil {
			return m
		}
		said, _ := m.Content.Text()
		before = chat.Place{Text: h.before.Text + len(said), Calls: h.before.Calls + len(m.ToolCalls)}
	}
	m := h.add(chat.Message{Role: chat.Assistant})
	h.before = before
	return m
}

func (h *history) message(at string, value jsontext.Value) error {
	var m struct {
		Type    string  `json:"type"`
		Role    string  `json:"role"`
		Content said    `json:"content"`
		ID      *string `json:"id"`
		Status  *string `json:"status"`
		rest
	}
	if err := read(at, value, &m); err != nil {
		return err
	}
	content, err := contentOf(at+".content", m.Content)
	if err != nil {
		return err
	}
	switch m.Role {
	case chat.User, chat.System, chat.Developer:
		h.add(chat.Message{Role: roleFor(h.request, m.Role), Content: content})
	case chat.Assistant:
		say(h.turn(true), content)
	default:
		return fault.Invalid(at+".role", "must be user, assistant, system or developer")
	}
	return nil
}

// say adds content to a model's message. A refusal has its own member there.
func say(m *chat.Message, content chat.Content) {
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

func (h *history) call(at string, value jsontext.Value) error {
	var c struct {
		Type      string  `json:"type"`
		ID        *string `json:"id"`
		CallID    string  `json:"call_id"`
		Name      string  `json:"name"`
		Arguments string  `json:"arguments"`
		Status    *string `json:"status"`
		rest
	}
	if err := read(at, value, &c); err != nil {
		return err
	}
	if c.CallID == "" {
		return fault.Invalid(at+".call_id", "is required")
	}
	if c.Name == "" {
		return fault.Invalid(at+".name", "is required")
	}
	m := h.turn(false)
	m.ToolCalls = append(m.ToolCalls, chat.ToolCall{
		ID: c.CallID, Type: "function", Function: chat.Called{Name: c.Name, Arguments: c.Arguments},
		ExtraContent: chat.Signed(h.unclaimed[c.CallID]),
	})
	delete(h.unclaimed, c.CallID)
	return nil
}

func (h *history) output(at string, value jsontext.Value) error {
	var o struct {
		Type   string  `json:"type"`
		ID     *string `json:"id"`
		CallID string  `json:"call_id"`
		Output said    `json:"output"`
		Status *string `json:"status"`
		rest
	}
	if err := read(at, value, &o); err != nil {
		return err
	}
	if o.CallID == "" {
		return fault.Invalid(at+".call_id", "is required")
	}
	content, err := contentOf(at+".output", o.Output)
	if err != nil {
		return err
	}
	h.add(chat.Message{Role: chat.FromTool, ToolCallID: o.CallID, Content: content})
	return nil
}

// reasoning puts a model's thoughts back where they were.
func (h *history) reasoning(at string, value jsontext.Value) error {
	var r struct {
		Type      string           `json:"type"`
		ID        *string          `json:"id"`
		Summary   []jsontext.Value `json:"summary"`
		Content   []jsontext.Value `json:"content"`
		Encrypted *string          `json:"encrypted_content"`
		Status    *string          `json:"status"`
		rest
	}
	if err := read(at, value, &r); err != nil {
		return err
	}
	thought, err := thoughtOf(at+".summary", r.Summary)
	if err == nil && len(r.Content) > 0 {
		thought, err = thoughtOf(at+".content", r.Content) // of which the summary is one
	}
	if err != nil {
		return err
	}
	kept, err := unseal(text(r.Encrypted))
	if err != nil {
		return chat.Unsupported(at+".encrypted_content", err.Error())
	}
	if p := h.request.Model.Provider; p.Protocol == live.OpenAI {
		thought, kept = kept.of(p.Name, thought)
	}
	if thought == "" && kept.empty() {
		return nil // nothing of it is for this provider
	}
	placed := slices.ContainsFunc(kept.Thoughts, func(t chat.Thought) bool { return t.Place != nil })
	m := h.turn(!placed && (thought != "" || len(kept.Thoughts) > 0))
	h.place(kept.Thoughts)
	if thought != "" {
		joined := text(m.ReasoningContent) + thought
		m.ReasoningContent = &joined
	}
	m.ReasoningDetails = append(m.ReasoningDetails, kept.Thoughts...)
	if kept.Signature != "" {
		m.ExtraContent = chat.Signed(kept.Signature)
	}
	for id, signature := range kept.Calls {
		h.sign(id, signature)
	}
	return nil
}

// place says where thoughts stood in the last message, of which they know where they stood in the turn.
func (h *history) place(thoughts []chat.Thought) {
	for i := range thoughts {
		if p := thoughts[i].Place; p != nil {
			thoughts[i].Place = &chat.Place{Text: max(0, p.Text-h.before.Text), Calls: max(0, p.Calls-h.before.Calls)}
		}
	}
}

// thoughtOf is the text of a summary or of a content.
func thoughtOf(at string, list []jsontext.Value) (string, error) {
	var b strings.Builder
	for i, value := range list {
		var p struct {
			Type string `json:"type"`
			Text string `json:"text"`
			rest
		}
		if err := read(fmt.Sprintf("%s[%d]", at, i), value, &p); err != nil {
			return "", err
		}
		b.WriteString(p.Text)
	}
	return b.String(), nil
}

// sign gives the latest call of an id its signature, or the next one if none has come.
func (h *history) sign(id, signature string) {
	for i := len(h.messages) - 1; i >= 0; i-- {
		for j := range h.messages[i].ToolCalls {
			if c := &h.messages[i].ToolCalls[j]; c.ID == id {
				c.ExtraContent = chat.Signed(signature)
				return
			}
		}
	}
	h.unclaimed[id] = signature
}
