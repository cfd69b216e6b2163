package anthropic

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"sovereign/internal/wire/chat"
)

// thought is a block of reasoning, as it is to come back.
func (b *block) thought() chat.Thought {
	if b.Type == blockSealed {
		return chat.Thought{Type: chat.ThoughtSealed, Data: b.Data, Format: chat.OfAnthropic}
	}
	t := chat.Thought{Type: chat.ThoughtText, Signature: b.Signature, Format: chat.OfAnthropic}
	if b.Thinking != nil {
		t.Text = *b.Thinking
	}
	return t
}

// empty reports whether a thought says nothing, in no way.
func empty(t chat.Thought) bool { return t == chat.Thought{Type: t.Type, Format: t.Format} }

// after is the place of a thought behind so much text and so many calls.
func after(text, calls int) *chat.Place {
	if text == 0 && calls == 0 {
		return nil
	}
	return &chat.Place{Text: text, Calls: calls}
}

// A remembered thought is a block on its way back, and where it stood.
type remembered struct {
	block
	place chat.Place
}

// thoughts are an assistant's, as Anthropic wants them back. Those of another model are not for this one, and words that
// nobody vouches for are another's, or broke off before they were signed.
func (q *question) thoughts(m *chat.Message, at string) (all []remembered, err error) {
	for i, t := range chat.Whole(m.ReasoningDetails) {
		r := remembered{}
		if t.Place != nil {
			r.place = *t.Place
		}
		switch {
		case !t.Of(chat.OfAnthropic), t.Model != "" && t.Model != q.Model:
			continue
		case t.Type == chat.ThoughtText && t.Signature != "" && t.Data == "":
			r.block = block{Type: blockThinking, Thinking: &t.Text, Signature: t.Signature}
		case t.Type == chat.ThoughtSealed && t.Data != "" && t.Text == "" && t.Signature == "":
			r.block = block{Type: blockSealed, Data: t.Data}
		case t.Format == "", t.Type == chat.ThoughtText && t.Signature == "":
			continue
		default:
			return nil, chat.Unsupported(fmt.Sprintf("%s.reasoning_details[%d]", at, i), "is neither a signed thought nor a sealed one")
		}
		all = append(all, r)
	}
	return all, nil
}

// woven puts thoughts back to where they stood. What was said since the thought before comes first, then what was called;
// a place beyond all that is at its end.
func woven(thoughts []remembered, texts, calls []block) (all []block) {
	said, called := 0, 0
	for _, t := range thoughts {
		var before []block
		before, texts = divided(texts, t.place.Text-said)
		for _, b := range before {
			said += len(b.Text)
		}
		n := min(max(t.place.Calls-called, 0), len(calls))
		all = append(append(append(all, before...), calls[:n]...), t.block)
		calls, called = calls[n:], called+n
	}
	all = append(append(all, texts...), calls...)
	return slices.DeleteFunc(all, func(b block) bool { return b.Type == blockText && blank(b.Text) })
}

// divided is texts before and after so many bytes. One of them is cut in two where both halves say something; the mark
// of its end stays there.
func divided(texts []block, bytes int) (before, rest []block) {
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
	case blank(head):
		return before, rest
	case blank(tail):
		return append(before, rest[0]), rest[1:]
	}
	rest[0].Text = tail
	return append(before, block{Type: blockText, Text: head}), rest
}

// blank reports whether a text says nothing. Anthropic refuses white space alone.
func blank(text string) bool { return strings.TrimSpace(text) == "" }
