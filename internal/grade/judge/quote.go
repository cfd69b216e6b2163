package judge

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/wire/chat"
)

// lenient reads what was logged. Odd JSON must not be lost.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// quote writes s in lines, with at most limit quoted characters.
func (s *Subject) quote(limit int) (string, error) {
	all, err := s.pieces()
	if err != nil {
		return "", err
	}
	return lines(fit(thin(all), limit)), nil
}

// Identity identifies a subject by everything that a judge can be shown of it, and its media. Other members of its
// JSON, and its formatting, do not count.
func (s *Subject) Identity() (id [sha256.Size]byte, err error) {
	all, err := s.pieces()
	if err != nil {
		return id, err
	}
	h := sha256.New()
	for _, p := range all {
		for _, text := range []string{p.head, p.text, p.media} {
			h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(text))))
			h.Write([]byte(text))
		}
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// pieces returns the pieces of all steps.
func (s *Subject) pieces() (all []piece, err error) {
	if len(s.Steps) == 0 {
		return nil, errors.New("there is no step")
	}
	seen := record{}
	for i := range s.Steps {
		if len(s.Steps) > 1 {
			all = append(all, piece{head: fmt.Sprintf("STEP %d of %d", i+1, len(s.Steps))})
		}
		pieces, err := s.Steps[i].pieces(i+1, seen)
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", i+1, err)
		}
		all = append(all, pieces...)
	}
	return all, nil
}

// lines writes pieces.
func lines(all []piece) string {
	var b strings.Builder
	for _, p := range all {
		b.WriteString(p.head)
		b.WriteByte('\n')
		for line := range strings.Lines(p.text) {
			b.WriteString(bar)
			b.WriteString(strings.TrimSuffix(line, "\n"))
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// pieces returns the pieces of a step. What it shares with an earlier step of a trace is not quoted again: the steps of
// an agent repeat everything that was said before.
func (s *Step) pieces(number int, seen record) (all []piece, err error) {
	tools, err := offered(s.Tools)
	if err != nil {
		return nil, err
	}
	var messages []jsontext.Value
	if err := json.Unmarshal(s.Messages, &messages, lenient); err != nil {
		return nil, fmt.Errorf("read the messages: %w", err)
	}
	response, err := answered(s.Response)
	if err != nil {
		return nil, err
	}
	all = append(seen.tools(number, tools), seen.talk(number, messages, response)...)
	all = append(all, piece{head: "RESPONSE", judged: true})
	for _, p := range response {
		p.judged = true
		all = append(all, p)
	}
	return all, nil
}

// A record says which step of a trace was the first to offer some tools, or to begin with some messages.
type record map[prefix]int

// A prefix is the digest of the beginning of a conversation.
type prefix [sha256.Size]byte

// with returns the prefix that is one message longer.
func (p prefix) with(message []piece) prefix {
	h := sha256.New()
	h.Write(p[:])
	for _, piece := range message {
		for _, text := range []string{piece.head, piece.text} {
			h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(text))))
			h.Write([]byte(text))
		}
	}
	return prefix(h.Sum(nil))
}

// tools returns the tools of a step, or a reference to the earlier step that had the same.
func (r record) tools(number int, tools []piece) []piece {
	key := prefix{1}.with(tools) // the empty conversation begins with zeros
	if first := r[key]; first > 0 && len(tools) > 0 {
		return []piece{{head: fmt.Sprintf("(the tools of step %d are on offer)", first)}}
	}
	r[key] = number
	return tools
}

// talk returns the messages of a step, from where they differ from the earlier step with which they have the most in
// common.
func (r record) talk(number int, messages []jsontext.Value, response []piece) (all []piece) {
	var at prefix
	for i, m := range messages {
		pieces := said(m, chat.RoleUser)
		at = at.with(pieces)
		if first := r[at]; first > 0 {
			all = []piece{{head: fmt.Sprintf(
				"(messages 1 to %d are those of step %d, with its response where it is among them)", i+1, first,
			)}}
			continue
		}
		r[at] = number
		all = append(all, pieces...)
	}
	if at = at.with(response); r[at] == 0 {
		r[at] = number
	}
	return all
}

// offered returns the tools that a model could call.
func offered(tools jsontext.Value) (all []piece, err error) {
	if len(tools) == 0 || tools.Kind() == 'n' {
		return nil, nil
	}
	var each []jsontext.Value
	if err := json.Unmarshal(tools, &each, lenient); err != nil {
		return nil, fmt.Errorf("read the tools: %w", err)
	}
	for _, v := range each {
		var t chat.Tool
		if json.Unmarshal(v, &t, lenient) != nil || t.Function.Name == "" {
			all = append(all, piece{head: "a tool on offer, in an unknown form of " + bytes(len(v))})
			continue
		}
		text := t.Function.Description
		if p := t.Function.Parameters; len(p) > 0 {
			text = strings.TrimPrefix(text+"\n"+string(p), "\n")
		}
		all = append(all, piece{head: "tool " + name(t.Function.Name) + " on offer:", text: defused(text)})
	}
	return all, nil
}

// answered returns the pieces of a response: an assistant's message, or its text alone.
func answered(response jsontext.Value) ([]piece, error) {
	switch {
	case len(response) == 0 || response.Kind() == 'n':
		return []piece{{head: "(there is none)"}}, nil
	case response.Kind() == '{':
		return said(response, chat.RoleAssistant), nil
	}
	var text string
	if err := json.Unmarshal(response, &text, lenient); err != nil {
		return nil, fmt.Errorf("read the response: %w", err)
	}
	return (&turn{Role: chat.RoleAssistant}).speaks(text), nil
}
