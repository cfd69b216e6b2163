// Package scan finds the members of a JSON object without decoding it, so that a body can be passed on as it came with
// a few of its members changed. It reads the top level and no more: what lies inside a value is skipped by its brackets
// and quotes, and left to whoever the value is for.
package scan

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
)

// A Member is one name and value of an object. Offsets are into the scanned text.
type Member struct {
	Name       string
	Value      []byte
	Start, End int // from the opening quote of the name to the end of the value
}

// ValueStart is where the value begins.
func (m Member) ValueStart() int { return m.End - len(m.Value) }

// maxDepth bounds how deep values nest.
const maxDepth = 256

// The ways in which a text is no object.
var (
	ErrSyntax    = errors.New("is not a JSON object")
	ErrDepth     = fmt.Errorf("is nested deeper than %d levels", maxDepth)
	ErrDuplicate = errors.New("has two members of one name")
	ErrText      = errors.New("is not UTF-8, or holds a NUL byte")
)

// Object lists the members of the object that text is. Two members of one name are refused: which of them counts
// would depend on who reads.
func Object(text []byte, members []Member) ([]Member, error) {
	if bytes.IndexByte(text, 0) >= 0 || !utf8.Valid(text) {
		return nil, ErrText
	}
	at := space(text, 0)
	if at == len(text) || text[at] != '{' {
		return nil, ErrSyntax
	}
	at = space(text, at+1)
	if at < len(text) && text[at] == '}' {
		return members, end(text, at+1)
	}
	for {
		m, next, err := member(text, at)
		if err != nil {
			return nil, err
		}
		for i := range members {
			if members[i].Name == m.Name {
				return nil, fmt.Errorf("%w: %q", ErrDuplicate, m.Name)
			}
		}
		if len(members) == maxMembers {
			return nil, fmt.Errorf("has more than %d members", maxMembers)
		}
		members = append(members, m)
		if at = space(text, next); at == len(text) {
			return nil, ErrSyntax
		}
		switch text[at] {
		case ',':
			at = space(text, at+1)
		case '}':
			return members, end(text, at+1)
		default:
			return nil, ErrSyntax
		}
	}
}

// maxMembers bounds the search for two of one name.
const maxMembers = 256

func end(text []byte, at int) error {
	if space(text, at) != len(text) {
		return ErrSyntax
	}
	return nil
}

func member(text []byte, at int) (m Member, next int, err error) {
	m.Start = at
	if at >= len(text) || text[at] != '"' {
		return m, 0, ErrSyntax
	}
	closed := quoted(text, at)
	if closed < 0 {
		return m, 0, ErrSyntax
	}
	raw := text[at:closed]
	if bytes.IndexByte(raw, '\\') < 0 {
		m.Name = string(raw[1 : len(raw)-1])
	} else if m.Name, err = unescaped(raw); err != nil {
		return m, 0, ErrSyntax
	}
	if at = space(text, closed); at == len(text) || text[at] != ':' {
		return m, 0, ErrSyntax
	}
	at = space(text, at+1)
	if m.End, err = skip(text, at); err != nil {
		return m, 0, err
	}
	m.Value = text[at:m.End]
	return m, m.End, nil
}

func space(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t') {
		at++
	}
	return at
}

// quoted is the end of the string that begins at at, or -1.
func quoted(text []byte, at int) int {
	for from := at + 1; ; {
		n := bytes.IndexByte(text[from:], '"')
		if n < 0 {
			return -1
		}
		quote := from + n
		escapes := 0
		for quote-1-escapes >= from && text[quote-1-escapes] == '\\' {
			escapes++
		}
		from = quote + 1
		if escapes%2 == 0 {
			return from
		}
	}
}

// skip is the end of the value that begins at at.
func skip(text []byte, at int) (int, error) {
	if at == len(text) {
		return 0, ErrSyntax
	}
	switch text[at] {
	case '"':
		if closed := quoted(text, at); closed > 0 {
			return closed, nil
		}
		return 0, ErrSyntax
	case '{', '[':
		return nested(text, at)
	default:
		from := at
		for at < len(text) && literal[text[at]] {
			at++
		}
		if at == from {
			return 0, ErrSyntax
		}
		return at, nil
	}
}

// literal bytes make up numbers, true, false and null.
var literal = func() (set [256]bool) {
	for _, c := range []byte("0123456789+-.eEtrufalsn") {
		set[c] = true
	}
	return set
}()

// nested is the end of the array or object that begins at at.
func nested(text []byte, at int) (int, error) {
	var room [maxDepth]byte
	closing := room[:0] // the brackets that are open, by what closes them
	for at < len(text) {
		switch c := text[at]; c {
		case '"':
			closed := quoted(text, at)
			if closed < 0 {
				return 0, ErrSyntax
			}
			at = closed
			continue
		case '{', '[':
			if len(closing) == maxDepth {
				return 0, ErrDepth
			}
			closing = append(closing, c+2) // either stands two before what closes it
		case '}', ']':
			last := len(closing) - 1
			if closing[last] != c {
				return 0, ErrSyntax
			}
			if closing = closing[:last]; last == 0 {
				return at + 1, nil
			}
		}
		at++
	}
	return 0, ErrSyntax
}

// Count is how many elements an array has; false when the value is none. It stops above most.
func Count(value []byte, most int) (n int, ok bool) {
	if len(value) == 0 || value[0] != '[' {
		return 0, false
	}
	at := space(value, 1)
	if at < len(value) && value[at] == ']' {
		return 0, true
	}
	for n <= most {
		next, err := skip(value, at)
		if err != nil {
			return 0, false
		}
		n++
		at = space(value, next)
		if at == len(value) {
			return 0, false
		}
		if value[at] == ']' {
			return n, true
		}
		if value[at] != ',' {
			return 0, false
		}
		at = space(value, at+1)
	}
	return n, true
}

// unescaped has its own frame: a name whose address is taken would put every member on the heap.
func unescaped(raw []byte) (name string, err error) {
	err = json.Unmarshal(raw, &name)
	return name, err
}
