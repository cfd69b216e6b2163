package anthropic

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"sovereign/internal/wire/chat"
)

// thought returns a thinking block as a thought.
func (b *block) thought() chat.Thought {
	if b.Type == blockRedactedThinking {
		return chat.Thought{Type: chat.ThoughtEncrypted, Data: b.Data, Format: chat.FormatAnthropic}
	}
	t := chat.Thought{Type: chat.ThoughtText, Signature: b.Signature, Format: chat.FormatAnthropic}
	if b.Thinking != nil {
		t.Text = *b.Thinking
	}
	return t
}

// isEmpty reports whether a thought has no content.
func isEmpty(t chat.Thought) bool { return t == chat.Thought{Type: t.Type, Format: t.Format} }

// positionAfter returns the position after so many bytes of text and so many calls; nil for the start.
func positionAfter(text, calls int) *chat.Position {
	if text == 0 && calls == 0 {
		return nil
	}
	return &chat.Position{Text: text, Calls: calls}
}

// placedThought is a thinking block of the history with its position.
type placedThought struct {
	block
	position chat.Position
}

// convertThoughts returns the thinking blocks of an assistant message. Thoughts of other models and unsigned thoughts
// are left out: Anthropic refuses them.
func (q *messagesRequest) convertThoughts(m *chat.Message, at string) (all []placedThought, err error) {
	for i, t := range chat.JoinThoughts(m.ReasoningDetails) {
		r := placedThought{}
		if t.Position != nil {
			r.position = *t.Position
		}
		switch {
		case !t.HasFormat(chat.FormatAnthropic), t.Model != "" && t.Model != q.Model:
			continue
		case t.Type == chat.ThoughtText && t.Signature != "" && t.Data == "":
			r.block = block{Type: blockThinking, Thinking: &t.Text, Signature: t.Signature}
		case t.Type == chat.ThoughtEncrypted && t.Data != "" && t.Text == "" && t.Signature == "":
			r.block = block{Type: blockRedactedThinking, Data: t.Data}
		case t.Format == "", t.Type == chat.ThoughtText && t.Signature == "":
			continue
		default:
			return nil, chat.Unsupported(fmt.Sprintf("%s.reasoning_details[%d]", at, i),
				"is neither a signed thought nor a sealed one")
		}
		all = append(all, r)
	}
	return all, nil
}

// interleave puts thoughts back at their positions among texts and calls. Between two thoughts, texts come before
// calls. A position beyond the end means the end.
func interleave(thoughts []placedThought, texts, calls []block) (all []block) {
	textBytes, callCount := 0, 0
	for _, t := range thoughts {
		var before []block
		before, texts = splitTexts(texts, t.position.Text-textBytes)
		for _, b := range before {
			textBytes += len(b.Text)
		}
		n := min(max(t.position.Calls-callCount, 0), len(calls))
		all = append(append(append(all, before...), calls[:n]...), t.block)
		calls, callCount = calls[n:], callCount+n
	}
	all = append(append(all, texts...), calls...)
	return slices.DeleteFunc(all, func(b block) bool { return b.Type == blockText && isBlank(b.Text) })
}

// splitTexts splits texts after so many bytes. A text is cut in two only if both halves are non-blank; its cache mark
// stays with the second half.
func splitTexts(texts []block, bytes int) (before, rest []block) {
	n := 0
	for n < len(texts) && len(texts[n].Text) <= bytes {
		bytes -= len(texts[n].Text)
		n++
	}
	before, rest = slices.Clone(texts[:n]), slices.Clone(texts[n:])
	if len(rest) == 0 || bytes <= 0 {
		return before, rest
	}
	for bytes > 0 && !utf8.RuneStart(rest[0].Text[bytes]) {
		bytes--
	}
	head, tail := rest[0].Text[:bytes], rest[0].Text[bytes:]
	switch {
	case isBlank(head):
		return before, rest
	case isBlank(tail):
		return append(before, rest[0]), rest[1:]
	}
	rest[0].Text = tail
	return append(before, block{Type: blockText, Text: head}), rest
}

// isBlank reports whether a text is white space only, which Anthropic refuses.
func isBlank(text string) bool { return strings.TrimSpace(text) == "" }
