package fold_test

import (
	stdjson "encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// A turn is the content of a message, independent of its encoding.
type turn struct {
	Role   string
	Parts  []string `json:",omitempty"` // texts; a text with the prefix picture is an image
	Calls  []call   `json:",omitempty"` // of assistants
	Answer string   // of tools: the id of the call
	Name   string   // of users
}

type call struct {
	ID, Name string
	Args     map[string]string `json:",omitempty"` // each value as JSON
}

const picture = "data:image/png;"

// identity is the same for two turns exactly when they are the same turn.
func (t turn) identity() string {
	if len(t.Parts) == 1 && t.Parts[0] == "" {
		t.Parts = nil
	}
	text, _ := stdjson.Marshal(t) // the keys of maps come sorted
	return string(text)
}

// A clientWriter encodes turns as clients do, choosing randomly among equivalent encodings.
type clientWriter struct{ *rand.Rand }

func (p clientWriter) maybe() bool { return p.IntN(2) == 0 }

func (p clientWriter) space() string {
	return []string{"", "", "", " ", "\n  ", "\t", "\r\n"}[p.IntN(7)]
}

func (p clientWriter) text(s string) string {
	if p.IntN(3) > 0 {
		var b strings.Builder
		encoder := stdjson.NewEncoder(&b)
		encoder.SetEscapeHTML(p.maybe())
		_ = encoder.Encode(s)
		return strings.TrimSpace(b.String())
	}
	return escaped(s)
}

// escaped writes a string with nothing but escapes.
func escaped(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i, unit := range utf16.Encode([]rune(s)) {
		fmt.Fprintf(&b, []string{`\u%04x`, `\u%04X`}[i%2], unit)
	}
	b.WriteByte('"')
	return b.String()
}

// A member is a name and a value that is JSON.
type member struct{ name, value string }

func (p clientWriter) object(members []member) string {
	p.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	var all []string
	for _, m := range members {
		all = append(all, p.space()+p.text(m.name)+p.space()+":"+p.space()+m.value+p.space())
	}
	return "{" + strings.Join(all, ",") + p.space() + "}"
}

func (p clientWriter) array(elements []string) string {
	for i, e := range elements {
		elements[i] = p.space() + e + p.space()
	}
	return "[" + strings.Join(elements, ",") + p.space() + "]"
}

// some returns a random selection of members that do not change the turn.
func (p clientWriter) some(members ...member) (all []member) {
	for _, m := range members {
		if p.IntN(4) == 0 {
			all = append(all, m)
		}
	}
	return all
}

func (p clientWriter) part(text string) string {
	members := []member{{"type", p.text("text")}, {"text", p.text(text)}}
	if strings.HasPrefix(text, picture) {
		members = []member{{"type", p.text("image_url")}, {"image_url", p.object([]member{{"url", p.text(text)}})}}
	}
	return p.object(append(members, p.some(member{"cache_control", `{"type":"ephemeral"}`}, member{"annotations", "null"})...))
}

// content returns "" when the member is to be left out.
func (p clientWriter) content(t turn) string {
	var parts []string
	if t.Role == "assistant" && p.IntN(4) == 0 {
		parts = append(parts, p.object([]member{{"type", `"thinking"`}, {"thinking", p.text("hm")}}))
	}
	for _, text := range t.Parts {
		parts = append(parts, p.part(text))
	}
	empty := len(t.Parts) == 0 || len(t.Parts) == 1 && t.Parts[0] == ""
	switch way := p.IntN(4); {
	case empty && way == 0:
		return ""
	case empty && way == 1:
		return "null"
	case empty && way == 2:
		return `""`
	case len(t.Parts) == 1 && way > 0 && !strings.HasPrefix(t.Parts[0], picture):
		return p.text(t.Parts[0])
	}
	return p.array(parts)
}

func (p clientWriter) arguments(args map[string]string) string {
	if len(args) == 0 && p.maybe() {
		return []string{`""`, `null`}[p.IntN(2)]
	}
	var members []member
	for _, name := range slices.Sorted(maps.Keys(args)) {
		members = append(members, member{name, args[name]})
	}
	return p.text(p.object(members))
}

func (p clientWriter) call(i int, c call) string {
	function := p.object(append([]member{{"name", p.text(c.Name)}, {"arguments", p.arguments(c.Args)}}, p.some(member{"parsed_arguments", "{}"})...))
	members := append([]member{{"id", p.text(c.ID)}, {"function", function}}, p.some(
		member{"index", strconv.Itoa(i)}, member{"extra_content", `{"google":{"thought_signature":"s"}}`}, member{"custom", "null"})...)
	if p.maybe() {
		members = append(members, member{"type", `"function"`})
	}
	return p.object(members)
}

func (p clientWriter) message(t turn) []byte {
	role := t.Role
	if role == "system" && p.maybe() {
		role = "developer"
	}
	members := append([]member{{"role", p.text(role)}}, p.some(member{"weight", "0"}, member{"cache_control", `{"type":"ephemeral"}`}, member{"extra", "null"})...)
	if content := p.content(t); content != "" {
		members = append(members, member{"content", content})
	}
	if t.Answer != "" {
		members = append(members, member{"tool_call_id", p.text(t.Answer)})
	}
	if t.Name != "" {
		members = append(members, member{"name", p.text(t.Name)})
	}
	if t.Role != "assistant" {
		return []byte(p.object(members))
	}
	var calls []string
	for i, c := range t.Calls {
		calls = append(calls, p.call(i, c))
	}
	if calls != nil || p.IntN(4) == 0 {
		members = append(members, member{"tool_calls", p.array(calls)})
	}
	return []byte(p.object(append(members, p.some(
		member{"refusal", "null"}, member{"annotations", "[]"}, member{"audio", "null"}, member{"function_call", "null"}, member{"name", `"helper"`},
		member{"reasoning_content", p.text("let me see")}, member{"reasoning", p.text("hm")}, member{"thinking", `{"of":["it"]}`})...)))
}

func (p clientWriter) messages(path []turn) []byte {
	var all []string
	for _, t := range path {
		all = append(all, string(p.message(t)))
	}
	return []byte(p.space() + p.array(all) + p.space())
}

// seen decodes a message of an example as a training program would, with its weight.
func seen(raw stdjson.RawMessage) (t turn, weight any, err error) {
	var m struct {
		Role       string             `json:"role"`
		Content    stdjson.RawMessage `json:"content"`
		Name       string             `json:"name"`
		ToolCallID string             `json:"tool_call_id"`
		Weight     any                `json:"weight"`
		ToolCalls  []struct {
			ID       string `json:"id"`
			Function struct {
				Name      string `json:"name"`
				Arguments string `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	}
	if err := stdjson.Unmarshal(raw, &m); err != nil {
		return t, nil, err
	}
	t = turn{Role: m.Role, Answer: m.ToolCallID, Name: m.Name}
	if t.Role == "developer" {
		t.Role = "system"
	}
	if t.Role == "assistant" {
		t.Name = ""
	}
	var text string
	var parts []struct {
		Type, Text string
		ImageURL   struct{ URL string } `json:"image_url"`
	}
	if stdjson.Unmarshal(m.Content, &text) == nil && text != "" {
		t.Parts = []string{text}
	} else if stdjson.Unmarshal(m.Content, &parts) == nil {
		for _, part := range parts {
			if part.Type != "thinking" {
				t.Parts = append(t.Parts, part.Text+part.ImageURL.URL)
			}
		}
	}
	for _, c := range m.ToolCalls {
		args := map[string]stdjson.RawMessage{}
		_ = stdjson.Unmarshal([]byte(c.Function.Arguments), &args)
		one := call{ID: c.ID, Name: c.Function.Name, Args: map[string]string{}}
		for name, value := range args {
			one.Args[name] = string(value)
		}
		t.Calls = append(t.Calls, one)
	}
	return t, m.Weight, nil
}
