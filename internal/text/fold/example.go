package fold

import (
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrTools is returned when the tools of an exchange are not a JSON array.
var ErrTools = errors.New("tools are not a JSON array")

// Example appends one line of an export, without the line end: an object with the messages, the assistant's reply last,
// and the tools if there are any.
//
// The messages are copied byte for byte, without white space between tokens, which could break the line. The reply has
// the members that training formats accept: role, content, and a refusal or tool calls. It lacks the reasoning,
// annotations and indices of API answers. In a folded conversation every assistant's turn gets weight 1. Otherwise no
// turn has a weight, and a weight set by the caller is removed.
func Example(dst, messages, response, tools []byte, folded bool) ([]byte, error) {
	switch {
	case !validJSON(messages) || first(messages) != '[':
		return dst, ErrMessages
	case !validJSON(response) || first(response) != '{':
		return dst, ErrResponse
	case len(tools) > 0 && (!validJSON(tools) || first(tools) != '[' && first(tools) != 'n'):
		return dst, ErrTools
	}
	s := borrow()
	defer s.release()
	s.out = append(s.out, `{"messages":[`...)
	at := skipSpace(messages, skipSpace(messages, 0)+1)
	for messages[at] != ']' {
		if messages[at] != '{' {
			return dst, ErrMessages
		}
		at = s.read(messages, at)
		s.turn(messages, folded)
		s.out = append(s.out, ',')
		at = next(messages, at)
	}
	s.read(response, skipSpace(response, 0))
	s.reply(response, folded)
	s.out = append(s.out, ']')
	if len(tools) > 0 {
		if s.read(tools, skipSpace(tools, 0)); len(s.nodes) > 1 {
			s.out = append(s.out, `,"tools":`...)
			s.compact(tools)
		}
	}
	return append(append(dst, s.out...), '}'), nil
}

// validJSON reports whether a text is JSON. Duplicate names are accepted and copied.
func validJSON(text []byte) bool {
	return jsontext.Value(text).IsValid(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
}

const weight = `"weight":1`

// turn writes the message that was read.
func (s *scratch) turn(text []byte, folded bool) {
	role, _ := s.role()
	weigh := folded && string(role) == assistant
	s.out = append(s.out, '{')
	for member := range s.children(0) {
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
		for call := range s.children(calls) {
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

// pick writes an object with only the named members that are not null.
func (s *scratch) pick(text []byte, i int, names ...string) {
	s.out = append(s.out, '{')
	for member := range s.children(i) {
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

// end writes a closing bracket in place of a trailing comma, if there is one.
func (s *scratch) end(bracket byte) {
	if last := len(s.out) - 1; s.out[last] == ',' {
		s.out[last] = bracket
		return
	}
	s.out = append(s.out, bracket)
}

// compact writes JSON without white space between tokens.
func (s *scratch) compact(text []byte) {
	for at := 0; at < len(text); {
		switch text[at] {
		case ' ', '\n', '\r', '\t':
			at++
		case '"':
			end := stringEnd(text, at)
			s.out = append(s.out, text[at:end]...)
			at = end
		default:
			s.out = append(s.out, text[at])
			at++
		}
	}
}
