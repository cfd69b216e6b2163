package fold

import (
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrTools says that the tools of an exchange cannot be read.
var ErrTools = errors.New("tools are not a JSON array")

// Example appends a line of an export, without its end: an object of the messages, the assistant's reply last, and of the
// tools if there are any.
//
// The messages are as the caller wrote them, letter by letter, but for white space, which could break the line. The
// reply is what a model can be taught: role, content, and a refusal or tool calls where it has them, without the
// reasoning, annotations and indices that only answers have. In a folded conversation every assistant's turn has the weight 1, whoever
// wrote it; else no turn has any, and one that the caller set is left out.
func Example(dst, messages, response, tools []byte, folded bool) ([]byte, error) {
	switch {
	case !sound(messages) || first(messages) != '[':
		return dst, ErrMessages
	case !sound(response) || first(response) != '{':
		return dst, ErrResponse
	case len(tools) > 0 && (!sound(tools) || first(tools) != '[' && first(tools) != 'n'):
		return dst, ErrTools
	}
	s := borrow()
	defer s.giveBack()
	s.out = append(s.out, `{"messages":[`...)
	at := space(messages, space(messages, 0)+1)
	for messages[at] != ']' {
		if messages[at] != '{' {
			return dst, ErrMessages
		}
		at = s.read(messages, at)
		s.turn(messages, folded)
		s.out = append(s.out, ',')
		at = next(messages, at)
	}
	s.read(response, space(response, 0))
	s.reply(response, folded)
	s.out = append(s.out, ']')
	if len(tools) > 0 {
		if s.read(tools, space(tools, 0)); len(s.nodes) > 1 {
			s.out = append(s.out, `,"tools":`...)
			s.compact(tools)
		}
	}
	return append(append(dst, s.out...), '}'), nil
}

// sound reports whether a text is JSON. Members of one name are let by: they are passed on as they are.
func sound(text []byte) bool {
	return jsontext.Value(text).IsValid(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
}

const weight = `"weight":1`

// turn writes the message that was read.
func (s *scratch) turn(text []byte, folded bool) {
	role, _ := s.role()
	weigh := folded && string(role) == assistant
	s.out = append(s.out, '{')
	for member := range s.in(0) {
		if n := s.nodes[member]; string(n.name) != "weight" {
			s.compact(text[n.start:n.to])
			s.out = append(s.out, ',')
		}
	}
	if weigh {
		s.out = append(s.out, weight...)
	}
	s.end('}')
}

// reply writes the response that was read.
func (s *scratch) reply(text []byte, folded bool) {
	s.out = append(s.out, `{"role":"assistant","content":`...)
	if content := s.member(0, "content"); content != none {
		s.compact(text[s.nodes[content].from:s.nodes[content].to])
	} else {
		s.out = append(s.out, "null"...)
	}
	if refusal := s.member(0, "refusal"); refusal != none && s.nodes[refusal].kind == '"' {
		s.out = append(s.out, ',')
		s.compact(text[s.nodes[refusal].start:s.nodes[refusal].to])
	}
	if call := s.member(0, "function_call"); call != none {
		s.out = append(s.out, `,"function_call":`...)
		s.pick(text, call, "name", "arguments")
	}
	if calls := s.member(0, "tool_calls"); calls != none && s.nodes[calls].next > calls+1 {
		s.out = append(s.out, `,"tool_calls":[`...)
		for call := range s.in(calls) {
			s.pick(text, call, "id", "type", "function", "custom")
			s.out = append(s.out, ',')
		}
		s.end(']')
	}
	if folded {
		s.out = append(append(s.out, ','), weight...)
	}
	s.out = append(s.out, '}')
}

// pick writes an object with those of its members that are named.
func (s *scratch) pick(text []byte, i int, names ...string) {
	s.out = append(s.out, '{')
	for member := range s.in(i) {
		n := s.nodes[member]
		if n.kind == 'n' || !slices.Contains(names, string(n.name)) {
			continue
		}
		if string(n.name) == "function" {
			s.out = append(s.out, `"function":`...)
			s.pick(text, member, "name", "arguments")
		} else {
			s.compact(text[n.start:n.to])
		}
		s.out = append(s.out, ',')
	}
	s.end('}')
}

// end closes a list, in place of the comma after its last.
func (s *scratch) end(bracket byte) {
	if last := len(s.out) - 1; s.out[last] == ',' {
		s.out[last] = bracket
		return
	}
	s.out = append(s.out, bracket)
}

// compact writes JSON without the white space in it.
func (s *scratch) compact(text []byte) {
	for at := 0; at < len(text); {
		switch text[at] {
		case ' ', '\n', '\r', '\t':
			at++
		case '"':
			end := quoted(text, at)
			s.out = append(s.out, text[at:end]...)
			at = end
		default:
			s.out = append(s.out, text[at])
			at++
		}
	}
}
