package fold

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// The roles that are told apart.
const (
	assistant = "assistant"
	system    = "system"
	developer = "developer"
)

// Canon appends the canonical form of a message: bytes that two messages share if they are the same turn, and only then. It
// makes what a client sends back as history equal to what the model answered.
//
//   - The order of members, white space and escapes do not matter. Numbers are as they are written: 1.0 is not 1.
//   - null is absent. So is content that is empty, since some write "" beside tool calls and others null.
//   - A text is equal to one part of that text. Several parts stay several: models see where one ends.
//   - developer is system, its name in older APIs.
//   - cache_control, on a message or on a part, does not matter: clients move it to the last turn as they go on. Nor does
//     weight, which is not said to the model.
//   - Of an assistant's turn only what it says counts: content, tool calls, a refusal, the id of a sound. Everything else that
//     answers have (reasoning, annotations, …) clients keep or drop as they like, and a name they add. Parts that hold
//     reasoning are no content.
//   - Of a tool call counts its id, its type, unless that is the usual one, and what is called. Arguments that are a JSON object
//     are compared as such, since clients parse them and write them anew, and none at all are {}; others are text.
//
// An answer that a client changed in any other way, if only by a space at its end, is another turn.
func Canon(dst, message []byte) ([]byte, error) {
	s := borrow()
	defer s.giveBack()
	if !valid(message) || first(message) != '{' {
		return dst, ErrMessages
	}
	s.read(message, space(message, 0))
	role, ok := s.role()
	if !ok {
		return dst, ErrMessages
	}
	s.message(role)
	return append(dst, s.out...), nil
}

// role is that of the message that was read, if it says one.
func (s *scratch) role() (role []byte, ok bool) {
	i := s.member(0, "role")
	return s.nodes[i].text, i != none && s.nodes[i].kind == '"'
}

// message writes the message that was read, as one of that role. Every value tells where it ends, so that no two forms can be
// confused.
func (s *scratch) message(role []byte) {
	if string(role) == developer {
		role = []byte(system)
	}
	s.tagged('r', role)
	s.content(s.member(0, "content"), string(role) == assistant)
	if string(role) == assistant {
		s.answer()
	} else {
		s.object(0, "role", "content", "cache_control", "weight")
	}
}

// answer writes what an assistant's turn says beside its content.
func (s *scratch) answer() {
	if i := s.member(0, "refusal"); i != none && !s.says(i, "") {
		s.out = append(s.out, 'x')
		s.any(i)
	}
	if i := s.member(0, "audio"); i != none {
		s.out = append(s.out, 'a')
		s.any(s.member(i, "id"))
	}
	if i := s.member(0, "function_call"); i != none {
		s.out = append(s.out, 'f')
		s.called(i)
	}
	calls := s.member(0, "tool_calls")
	if calls == none {
		return
	}
	if s.nodes[calls].kind != '[' {
		s.out = append(s.out, 't')
		s.any(calls)
		return
	}
	for call := range s.in(calls) {
		s.out = append(s.out, 'c')
		s.call(call)
	}
}

func (s *scratch) call(i int) {
	if s.nodes[i].kind != '{' {
		s.any(i)
		return
	}
	if id := s.member(i, "id"); id != none {
		s.out = append(s.out, 'i')
		s.any(id)
	}
	if kind := s.member(i, "type"); kind != none && !s.says(kind, "function") {
		s.out = append(s.out, 'y')
		s.any(kind)
	}
	if function := s.member(i, "function"); function != none {
		s.out = append(s.out, 'f')
		s.called(function)
	}
	if custom := s.member(i, "custom"); custom != none {
		s.out = append(s.out, 'u')
		s.any(custom)
	}
}

// called writes the name of a function and its arguments.
func (s *scratch) called(i int) {
	if s.nodes[i].kind != '{' {
		s.any(i)
		return
	}
	s.any(s.member(i, "name"))
	arguments := s.member(i, "arguments")
	if arguments == none {
		s.out = append(s.out, "{}"...)
		return
	}
	if text := s.nodes[arguments].text; s.nodes[arguments].kind == '"' {
		start := space(text, 0)
		if start == len(text) {
			s.out = append(s.out, "{}"...)
			return
		}
		if text[start] == '{' && valid(text) {
			arguments = len(s.nodes)
			s.value(text, start, node{})
		}
	}
	s.any(arguments)
}

// content writes a text or parts; what is empty it does not write.
func (s *scratch) content(i int, answer bool) {
	if i == none {
		return
	}
	if s.nodes[i].kind != '[' {
		if !s.says(i, "") {
			s.out = append(s.out, 'k')
			s.any(i)
		}
		return
	}
	parts, last := 0, none
	for part := range s.in(i) {
		if !answer || !s.reasons(part) {
			parts, last = parts+1, part
		}
	}
	text, plain := s.plain(last)
	switch {
	case parts == 0 || parts == 1 && plain && len(text) == 0:
	case parts == 1 && plain:
		s.out = append(s.out, 'k')
		s.tagged('"', text)
	default:
		s.out = append(s.out, 'k', '[')
		for part := range s.in(i) {
			if !answer || !s.reasons(part) {
				s.part(part)
			}
		}
		s.out = append(s.out, ']')
	}
}

// reasons reports whether a part is a model's reasoning, as some providers answer it.
func (s *scratch) reasons(i int) bool {
	kind := s.member(i, "type")
	return kind != none && (s.says(kind, "thinking") || s.says(kind, "redacted_thinking") || s.says(kind, "reasoning"))
}

func (s *scratch) part(i int) {
	text, plain := s.plain(i)
	switch {
	case plain:
		s.tagged('"', text)
	case s.nodes[i].kind == '{':
		s.object(i, "cache_control")
	default:
		s.any(i)
	}
}

// plain is the text of a part that holds nothing else.
func (s *scratch) plain(i int) (text []byte, plain bool) {
	if s.nodes[i].kind == '"' {
		return s.nodes[i].text, true
	}
	typed := false
	for member := range s.in(i) {
		switch string(s.nodes[member].name) {
		case "type":
			typed = s.says(member, "text")
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

// object writes the members of an object by their names, but for those that are null or named.
func (s *scratch) object(i int, but ...string) {
	from := len(s.order)
	for member := range s.in(i) {
		if s.nodes[member].kind != 'n' && !slices.Contains(but, string(s.nodes[member].name)) {
			s.order = append(s.order, member)
		}
	}
	s.members(from)
}

// members writes those that stand in the order from there on, sorted.
func (s *scratch) members(from int) {
	slices.SortFunc(s.order[from:], func(a, b int) int { return bytes.Compare(s.nodes[a].name, s.nodes[b].name) })
	s.out = append(s.out, '{')
	for at := from; at < len(s.order); at++ {
		s.tagged('"', s.nodes[s.order[at]].name)
		s.any(s.order[at])
	}
	s.out = append(s.out, '}')
	s.order = s.order[:from]
}

// any writes a value as it is: here null is a value like any other, and none is written as null.
func (s *scratch) any(i int) {
	if i == none {
		s.out = append(s.out, 'n')
		return
	}
	switch kind := s.nodes[i].kind; kind {
	case '{':
		from := len(s.order)
		for member := range s.in(i) {
			s.order = append(s.order, member)
		}
		s.members(from)
	case '[':
		s.out = append(s.out, '[')
		for element := range s.in(i) {
			s.any(element)
		}
		s.out = append(s.out, ']')
	case '"', '0':
		s.tagged(kind, s.nodes[i].text)
	default:
		s.out = append(s.out, kind)
	}
}

// tagged writes a text after what it is and how long.
func (s *scratch) tagged(tag byte, text []byte) {
	s.out = binary.AppendUvarint(append(s.out, tag), uint64(len(text)))
	s.out = append(s.out, text...)
}
