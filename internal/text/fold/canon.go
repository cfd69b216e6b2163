package fold

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// The roles that the canonical form distinguishes.
const (
	assistant = "assistant"
	system    = "system"
	developer = "developer"
)

// Canon appends the canonical form of a message. Two messages have the same form exactly when they are the same turn.
// The form makes a turn that a client sends back as history equal to the model's original answer.
//
//   - The order of members, white space and escapes do not matter. Numbers are as they are written: 1.0 is not 1.
//   - null equals an absent member. So does empty content: with tool calls some clients write "" and others null.
//   - A text equals a single part with that text. Several parts are not joined: models see the boundaries.
//   - The role developer equals system, its name in older APIs.
//   - cache_control, on a message or on a part, is ignored: clients move it to the last turn. So is weight, which the
//     model does not see.
//   - Of an assistant's turn only content, tool calls, a refusal and the id of audio count. Clients keep or drop the other
//     members of an answer (reasoning, annotations, …) and may add a name. Parts with reasoning are not content.
//   - Of a tool call the id, the type unless it is "function", and the function or custom tool count. Arguments that are a
//     JSON object are compared as JSON, since clients re-encode them; missing arguments equal {}. Others are text.
//
// An answer that a client changed in any other way, even by a trailing space, is a different turn.
func Canon(dst, message []byte) ([]byte, error) {
	s := borrow()
	defer s.release()
	if !valid(message) || first(message) != '{' {
		return dst, ErrMessages
	}
	s.read(message, skipSpace(message, 0))
	role, ok := s.role()
	if !ok {
		return dst, ErrMessages
	}
	s.message(role)
	return append(dst, s.out...), nil
}

// role returns the role of the message that was read. ok is false when it has none.
func (s *scratch) role() (role []byte, ok bool) {
	i := s.member(0, "role")
	return s.nodes[i].text, i != none && s.nodes[i].kind == '"'
}

// message writes the canonical form of the message that was read. Every value carries its length or an end mark, so
// that the form is unambiguous.
func (s *scratch) message(role []byte) {
	if string(role) == developer {
		role = []byte(system)
	}
	s.writeTagged('r', role)
	s.content(s.member(0, "content"), string(role) == assistant)
	if string(role) == assistant {
		s.answer()
	} else {
		s.object(0, "role", "content", "cache_control", "weight")
	}
}

// answer writes the parts of an assistant's turn other than its content.
func (s *scratch) answer() {
	if i := s.member(0, "refusal"); i != none && !s.equals(i, "") {
		s.out = append(s.out, 'x')
		s.writeValue(i)
	}
	if i := s.member(0, "audio"); i != none {
		s.out = append(s.out, 'a')
		s.writeValue(s.member(i, "id"))
	}
	if i := s.member(0, "function_call"); i != none {
		s.out = append(s.out, 'f')
		s.function(i)
	}
	calls := s.member(0, "tool_calls")
	if calls == none {
		return
	}
	if s.nodes[calls].kind != '[' {
		s.out = append(s.out, 't')
		s.writeValue(calls)
		return
	}
	for call := range s.children(calls) {
		s.out = append(s.out, 'c')
		s.call(call)
	}
}

func (s *scratch) call(i int) {
	if s.nodes[i].kind != '{' {
		s.writeValue(i)
		return
	}
	if id := s.member(i, "id"); id != none {
		s.out = append(s.out, 'i')
		s.writeValue(id)
	}
	if kind := s.member(i, "type"); kind != none && !s.equals(kind, "function") {
		s.out = append(s.out, 'y')
		s.writeValue(kind)
	}
	if function := s.member(i, "function"); function != none {
		s.out = append(s.out, 'f')
		s.function(function)
	}
	if custom := s.member(i, "custom"); custom != none {
		s.out = append(s.out, 'u')
		s.writeValue(custom)
	}
}

// function writes the name of a function and its arguments.
func (s *scratch) function(i int) {
	if s.nodes[i].kind != '{' {
		s.writeValue(i)
		return
	}
	s.writeValue(s.member(i, "name"))
	arguments := s.member(i, "arguments")
	if arguments == none {
		s.out = append(s.out, "{}"...)
		return
	}
	if text := s.nodes[arguments].text; s.nodes[arguments].kind == '"' {
		start := skipSpace(text, 0)
		if start == len(text) {
			s.out = append(s.out, "{}"...)
			return
		}
		if text[start] == '{' && valid(text) {
			arguments = len(s.nodes)
			s.value(text, start, node{})
		}
	}
	s.writeValue(arguments)
}

// content writes a text or parts. It writes nothing for empty content.
func (s *scratch) content(i int, answer bool) {
	if i == none {
		return
	}
	if s.nodes[i].kind != '[' {
		if !s.equals(i, "") {
			s.out = append(s.out, 'k')
			s.writeValue(i)
		}
		return
	}
	parts, last := 0, none
	for part := range s.children(i) {
		if !answer || !s.isReasoning(part) {
			parts, last = parts+1, part
		}
	}
	text, plain := s.plainText(last)
	switch {
	case parts == 0 || parts == 1 && plain && len(text) == 0:
	case parts == 1 && plain:
		s.out = append(s.out, 'k')
		s.writeTagged('"', text)
	default:
		s.out = append(s.out, 'k', '[')
		for part := range s.children(i) {
			if !answer || !s.isReasoning(part) {
				s.part(part)
			}
		}
		s.out = append(s.out, ']')
	}
}

// isReasoning reports whether a part holds a model's reasoning, as some providers return it.
func (s *scratch) isReasoning(i int) bool {
	kind := s.member(i, "type")
	return kind != none &&
		(s.equals(kind, "thinking") || s.equals(kind, "redacted_thinking") || s.equals(kind, "reasoning"))
}

func (s *scratch) part(i int) {
	text, plain := s.plainText(i)
	switch {
	case plain:
		s.writeTagged('"', text)
	case s.nodes[i].kind == '{':
		s.object(i, "cache_control")
	default:
		s.writeValue(i)
	}
}

// plainText returns the text of a part that holds nothing else.
func (s *scratch) plainText(i int) (text []byte, plain bool) {
	if s.nodes[i].kind == '"' {
		return s.nodes[i].text, true
	}
	typed := false
	for member := range s.children(i) {
		switch string(s.nodes[member].name) {
		case "type":
			typed = s.equals(member, "text")
		case "text":
			text, plain = s.nodes[member].text, s.nodes[member].kind == '"'
		case "cache_control":
		default:
			if s.nodes[member].kind != 'n' {
				return nil, false
			}
		}
	}
	return text, plain && typed
}

// object writes the members of an object sorted by name, except those that are null or listed in but.
func (s *scratch) object(i int, but ...string) {
	from := len(s.order)
	for member := range s.children(i) {
		if s.nodes[member].kind != 'n' && !slices.Contains(but, string(s.nodes[member].name)) {
			s.order = append(s.order, member)
		}
	}
	s.members(from)
}

// members writes the members in s.order[from:], sorted by name.
func (s *scratch) members(from int) {
	slices.SortFunc(s.order[from:], func(a, b int) int { return bytes.Compare(s.nodes[a].name, s.nodes[b].name) })
	s.out = append(s.out, '{')
	for at := from; at < len(s.order); at++ {
		s.writeTagged('"', s.nodes[s.order[at]].name)
		s.writeValue(s.order[at])
	}
	s.out = append(s.out, '}')
	s.order = s.order[:from]
}

// writeValue writes any value. Here null is a value like any other, and none is written as null.
func (s *scratch) writeValue(i int) {
	if i == none {
		s.out = append(s.out, 'n')
		return
	}
	switch kind := s.nodes[i].kind; kind {
	case '{':
		from := len(s.order)
		for member := range s.children(i) {
			s.order = append(s.order, member)
		}
		s.members(from)
	case '[':
		s.out = append(s.out, '[')
		for element := range s.children(i) {
			s.writeValue(element)
		}
		s.out = append(s.out, ']')
	case '"', '0':
		s.writeTagged(kind, s.nodes[i].text)
	default:
		s.out = append(s.out, kind)
	}
}

// writeTagged writes a tag byte, the length of a text as a varint, and the text.
func (s *scratch) writeTagged(tag byte, text []byte) {
	s.out = binary.AppendUvarint(append(s.out, tag), uint64(len(text)))
	s.out = append(s.out, text...)
}
