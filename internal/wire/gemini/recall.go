package gemini

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"sovereign/internal/wire/chat"
)

// unsigned stands for the signature of the first call of a turn that has none: another model has made it, or a client has
// lost it. Google, which refuses the turn otherwise, names skip_thought_signature_validator for this; it is here in base64.
const unsigned = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="

// recall adds what the model has said: its thoughts, its text and its calls, with their signatures; in this order, but
// for what has a place of its own.
func (c *conversation) recall(m *chat.Message, at string) error {
	thoughts, err := thoughts(m, at)
	if err != nil {
		return err
	}
	texts, err := c.texts(m, at)
	if err != nil {
		return err
	}
	calls, err := c.calls(m, at)
	if err != nil {
		return err
	}
	r := memory{texts: texts, calls: calls}
	placed := func(t chat.Thought) bool { return t.Data == m.ExtraContent.Signature() }
	if signature := m.ExtraContent.Signature(); signature != "" && !slices.ContainsFunc(thoughts, placed) {
		if len(r.texts) == 0 {
			r.texts = []part{{Text: new(string)}}
		}
		r.texts[len(r.texts)-1].ThoughtSignature = signature
	}
	for _, t := range thoughts {
		if t.Place != nil {
			r.reach(*t.Place)
		}
		r.think(t)
	}
	r.reach(chat.Place{Text: math.MaxInt, Calls: math.MaxInt})
	c.add(chat.Assistant, roleModel, r.parts)
	return nil
}

// thoughts are a message's. What another model thought is text, and nothing that could be vouched for here. The text
// beside them repeats what they say, and may go on after them; if it says something else, it is a thought by itself.
func thoughts(m *chat.Message, at string) (all []chat.Thought, err error) {
	var said strings.Builder
	for i, t := range chat.Whole(m.ReasoningDetails) {
		text := t.Text + t.Summary
		said.WriteString(text)
		switch {
		case !t.Of(chat.OfGoogle) || t.Type == chat.ThoughtSummary:
			if text != "" {
				all = append(all, chat.Thought{Type: chat.ThoughtText, Text: text, Place: t.Place})
			}
		case t.Type == chat.ThoughtText && t.Data == "", t.Type == chat.ThoughtSealed && t.Format == chat.OfGoogle && text == "":
			all = append(all, t)
		default:
			return nil, chat.Unsupported(fmt.Sprintf("%s.reasoning_details[%d]", at, i), "is no thought that the "+wire+" can read")
		}
	}
	text := m.ReasoningContent
	if text == nil {
		text = m.Reasoning
	}
	if text == nil {
		return all, nil
	}
	if rest := strings.TrimPrefix(*text, said.String()); rest != "" {
		all = append(all, chat.Thought{Type: chat.ThoughtText, Text: rest})
	}
	return all, nil
}

// texts are what a message says. An empty one is no part.
func (c *conversation) texts(m *chat.Message, at string) ([]part, error) {
	all, err := c.parts(m.Content, at, chat.PartText, chat.PartRefusal)
	all = slices.DeleteFunc(all, func(p part) bool { return *p.Text == "" })
	if m.Refusal != nil && *m.Refusal != "" {
		all = append(all, part{Text: m.Refusal})
	}
	return all, err
}

func (c *conversation) calls(m *chat.Message, at string) (all []part, err error) {
	for i := range m.ToolCalls {
		call, err := c.call(&m.ToolCalls[i], fmt.Sprintf("%s.tool_calls[%d]", at, i))
		if err != nil {
			return nil, err
		}
		if i == 0 && call.ThoughtSignature == "" && !c.early {
			call.ThoughtSignature = unsigned
		}
		all = append(all, call)
	}
	return all, nil
}

// A memory is a reply on its way into parts.
type memory struct {
	parts        []part
	at           chat.Place
	texts, calls []part // that are left
}

// reach adds what stands before a place: the text, then the calls. A place beyond the end is the end, and one inside a
// letter is behind it.
func (r *memory) reach(to chat.Place) {
	for len(r.texts) > 0 && r.at.Text < to.Text {
		text := *r.texts[0].Text
		n := min(to.Text-r.at.Text, len(text))
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n++
		}
		r.at.Text += n
		if n == len(text) {
			r.parts, r.texts = append(r.parts, r.texts[0]), r.texts[1:]
			continue
		}
		head, rest := text[:n], text[n:]
		r.parts, r.texts[0].Text = append(r.parts, part{Text: &head}), &rest
	}
	for len(r.calls) > 0 && r.at.Calls < to.Calls {
		r.parts, r.calls = append(r.parts, r.calls[0]), r.calls[1:]
		r.at.Calls++
	}
}

// think adds a thought. A sealed one is the signature of the text before it; one that says nothing is a place alone.
func (r *memory) think(t chat.Thought) {
	switch last := len(r.parts) - 1; {
	case t.Type == chat.ThoughtSealed && last >= 0 && r.parts[last].plain():
		r.parts[last].ThoughtSignature = t.Data
	case t.Type == chat.ThoughtSealed:
		r.parts = append(r.parts, part{Text: new(string), ThoughtSignature: t.Data})
	case t.Text != "" || t.Signature != "":
		r.parts = append(r.parts, part{Text: &t.Text, Thought: true, ThoughtSignature: t.Signature})
	}
}

// plain reports whether a part is a text that nobody has signed.
func (p *part) plain() bool { return p.Text != nil && !p.Thought && p.ThoughtSignature == "" }
