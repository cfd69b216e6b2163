package gemini

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"sovereign/internal/wire/chat"
)

// skipSignature replaces a missing signature on the first call of a turn, which Google would refuse: the call was made
// by another model, or the client lost the signature. It is the base64 of skip_thought_signature_validator, the value
// that Google documents for this case.
const skipSignature = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="

// addAssistant adds an assistant message: thoughts, texts and calls with their signatures. They are in this order,
// except for thoughts with a position.
func (c *conversation) addAssistant(m *chat.Message, at string) error {
	thoughts, err := convertThoughts(m, at)
	if err != nil {
		return err
	}
	texts, err := c.convertTexts(m, at)
	if err != nil {
		return err
	}
	calls, err := c.convertCalls(m, at)
	if err != nil {
		return err
	}
	r := assistantParts{texts: texts, calls: calls}
	placed := func(t chat.Thought) bool { return t.Data == m.ExtraContent.Signature() }
	if signature := m.ExtraContent.Signature(); signature != "" && !slices.ContainsFunc(thoughts, placed) {
		if len(r.texts) == 0 {
			r.texts = []part{{Text: new(string)}}
		}
		r.texts[len(r.texts)-1].ThoughtSignature = signature
	}
	for _, t := range thoughts {
		if t.Position != nil {
			r.advance(*t.Position)
		}
		r.addThought(t)
	}
	r.advance(chat.Position{Text: math.MaxInt, Calls: math.MaxInt})
	c.add(chat.RoleAssistant, roleModel, r.parts)
	return nil
}

// convertThoughts returns the thoughts of a message. Thoughts of other models become plain thought text without
// signature. reasoning_content repeats the text of the thoughts; what it has beyond that becomes a thought of its own.
func convertThoughts(m *chat.Message, at string) (all []chat.Thought, err error) {
	var joined strings.Builder
	for i, t := range chat.JoinThoughts(m.ReasoningDetails) {
		text := t.Text + t.Summary
		joined.WriteString(text)
		switch {
		case !t.HasFormat(chat.FormatGoogle) || t.Type == chat.ThoughtSummary:
			if text != "" {
				all = append(all, chat.Thought{Type: chat.ThoughtText, Text: text, Position: t.Position})
			}
		case t.Type == chat.ThoughtText && t.Data == "",
			t.Type == chat.ThoughtEncrypted && t.Format == chat.FormatGoogle && text == "":
			all = append(all, t)
		default:
			return nil, chat.Unsupported(fmt.Sprintf("%s.reasoning_details[%d]", at, i),
				"is no thought that the "+apiName+" can read")
		}
	}
	text := m.ReasoningContent
	if text == nil {
		text = m.Reasoning
	}
	if text == nil {
		return all, nil
	}
	if rest := strings.TrimPrefix(*text, joined.String()); rest != "" {
		all = append(all, chat.Thought{Type: chat.ThoughtText, Text: rest})
	}
	return all, nil
}

// convertTexts returns the non-empty texts of a message.
func (c *conversation) convertTexts(m *chat.Message, at string) ([]part, error) {
	all, err := c.convertParts(m.Content, at, chat.PartText, chat.PartRefusal)
	all = slices.DeleteFunc(all, func(p part) bool { return *p.Text == "" })
	if m.Refusal != nil && *m.Refusal != "" {
		all = append(all, part{Text: m.Refusal})
	}
	return all, err
}

func (c *conversation) convertCalls(m *chat.Message, at string) (all []part, err error) {
	for i := range m.ToolCalls {
		call, err := c.convertCall(&m.ToolCalls[i], fmt.Sprintf("%s.tool_calls[%d]", at, i))
		if err != nil {
			return nil, err
		}
		if i == 0 && call.ThoughtSignature == "" && !c.beforeGemini3 {
			call.ThoughtSignature = skipSignature
		}
		all = append(all, call)
	}
	return all, nil
}

// assistantParts merges thoughts, texts and calls into parts, in their original order.
type assistantParts struct {
	parts        []part
	position     chat.Position
	texts, calls []part // not added yet
}

// advance adds the texts and then the calls before a position. A position beyond the end means the end; one inside a
// character means after it.
func (r *assistantParts) advance(to chat.Position) {
	for len(r.texts) > 0 && r.position.Text < to.Text {
		text := *r.texts[0].Text
		n := min(to.Text-r.position.Text, len(text))
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n++
		}
		r.position.Text += n
		if n == len(text) {
			r.parts, r.texts = append(r.parts, r.texts[0]), r.texts[1:]
			continue
		}
		head, rest := text[:n], text[n:]
		r.parts, r.texts[0].Text = append(r.parts, part{Text: &head}), &rest
	}
	for len(r.calls) > 0 && r.position.Calls < to.Calls {
		r.parts, r.calls = append(r.parts, r.calls[0]), r.calls[1:]
		r.position.Calls++
	}
}

// addThought adds a thought. An encrypted one is the signature of the text before it. An empty one only marks a
// position.
func (r *assistantParts) addThought(t chat.Thought) {
	switch last := len(r.parts) - 1; {
	case t.Type == chat.ThoughtEncrypted && last >= 0 && r.parts[last].isUnsignedText():
		r.parts[last].ThoughtSignature = t.Data
	case t.Type == chat.ThoughtEncrypted:
		r.parts = append(r.parts, part{Text: new(string), ThoughtSignature: t.Data})
	case t.Text != "" || t.Signature != "":
		r.parts = append(r.parts, part{Text: &t.Text, Thought: true, ThoughtSignature: t.Signature})
	}
}

// isUnsignedText reports whether a part is a text without signature.
func (p *part) isUnsignedText() bool { return p.Text != nil && !p.Thought && p.ThoughtSignature == "" }
