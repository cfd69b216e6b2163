package scan_test

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/text/scan"
)

// referenceObject is Object written byte by byte, without SWAR and SIMD. Object must give the same results.
func referenceObject(text []byte, members []scan.Member) ([]scan.Member, error) {
	if bytes.IndexByte(text, 0) >= 0 || !utf8.Valid(text) {
		return nil, scan.ErrText
	}
	at := plainSpace(text, 0)
	if at == len(text) || text[at] != '{' {
		return nil, scan.ErrSyntax
	}
	at = plainSpace(text, at+1)
	if at < len(text) && text[at] == '}' {
		return members, plainEnd(text, at+1)
	}
	for {
		m, next, err := plainMember(text, at)
		if err != nil {
			return nil, err
		}
		for i := range members {
			if members[i].Name == m.Name {
				return nil, fmt.Errorf("%w: %q", scan.ErrDuplicate, m.Name)
			}
		}
		if len(members) == most {
			return nil, fmt.Errorf("has more than %d members", most)
		}
		members = append(members, m)
		if at = plainSpace(text, next); at == len(text) {
			return nil, scan.ErrSyntax
		}
		switch text[at] {
		case ',':
			at = plainSpace(text, at+1)
		case '}':
			return members, plainEnd(text, at+1)
		default:
			return nil, scan.ErrSyntax
		}
	}
}

func plainEnd(text []byte, at int) error {
	if plainSpace(text, at) != len(text) {
		return scan.ErrSyntax
	}
	return nil
}

func plainMember(text []byte, at int) (m scan.Member, next int, err error) {
	m.Start = at
	if at >= len(text) || text[at] != '"' {
		return m, 0, scan.ErrSyntax
	}
	closed := plainQuoted(text, at)
	if closed < 0 {
		return m, 0, scan.ErrSyntax
	}
	raw := text[at:closed]
	if bytes.IndexByte(raw, '\\') < 0 {
		m.Name = string(raw[1 : len(raw)-1])
	} else if m.Name, err = plainName(raw); err != nil {
		return m, 0, scan.ErrSyntax
	}
	if at = plainSpace(text, closed); at == len(text) || text[at] != ':' {
		return m, 0, scan.ErrSyntax
	}
	at = plainSpace(text, at+1)
	if m.End, err = plainSkip(text, at); err != nil {
		return m, 0, err
	}
	m.Value = text[at:m.End]
	if first := m.Value[0]; first != '"' && first != '{' && first != '[' && !jsontext.Value(m.Value).IsValid() {
		return m, 0, scan.ErrSyntax
	}
	return m, m.End, nil
}

func plainSpace(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t') {
		at++
	}
	return at
}

// plainQuoted returns the offset after the string that begins at at, or -1.
func plainQuoted(text []byte, at int) int {
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

// plainSkip returns the offset after the value that begins at at.
func plainSkip(text []byte, at int) (int, error) {
	if at == len(text) {
		return 0, scan.ErrSyntax
	}
	switch text[at] {
	case '"':
		if closed := plainQuoted(text, at); closed > 0 {
			return closed, nil
		}
		return 0, scan.ErrSyntax
	case '{', '[':
		return plainNested(text, at)
	default:
		from := at
		for at < len(text) && literals[text[at]] {
			at++
		}
		if at == from {
			return 0, scan.ErrSyntax
		}
		return at, nil
	}
}

// literals are the bytes of numbers, true, false and null.
var literals = func() (set [256]bool) {
	for _, c := range []byte("0123456789+-.eEtrufalsn") {
		set[c] = true
	}
	return set
}()

// plainNested returns the offset after the array or object that begins at at.
func plainNested(text []byte, at int) (int, error) {
	var buffer [most]byte
	closing := buffer[:0] // the closing brackets that are due
	for at < len(text) {
		switch c := text[at]; c {
		case '"':
			closed := plainQuoted(text, at)
			if closed < 0 {
				return 0, scan.ErrSyntax
			}
			at = closed
			continue
		case '{', '[':
			if len(closing) == most {
				return 0, scan.ErrDepth
			}
			closing = append(closing, c+2) // in ASCII, '}' is '{'+2 and ']' is '['+2
		case '}', ']':
			last := len(closing) - 1
			if closing[last] != c {
				return 0, scan.ErrSyntax
			}
			if closing = closing[:last]; last == 0 {
				return at + 1, nil
			}
		}
		at++
	}
	return 0, scan.ErrSyntax
}

// referenceCount returns the number of elements of an array, and false for other values. It stops above most.
func referenceCount(value []byte, most int) (n int, ok bool) {
	if len(value) == 0 || value[0] != '[' {
		return 0, false
	}
	at := plainSpace(value, 1)
	if at < len(value) && value[at] == ']' {
		return 0, true
	}
	for n <= most {
		next, err := plainSkip(value, at)
		if err != nil {
			return 0, false
		}
		n++
		at = plainSpace(value, next)
		if at == len(value) {
			return 0, false
		}
		if value[at] == ']' {
			return n, true
		}
		if value[at] != ',' {
			return 0, false
		}
		at = plainSpace(value, at+1)
	}
	return n, true
}

func plainName(raw []byte) (name string, err error) {
	err = json.Unmarshal(raw, &name)
	return name, err
}
