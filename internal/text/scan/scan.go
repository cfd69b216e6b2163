// Package scan finds the members of a JSON object without decoding them, so that a body can be forwarded byte for byte
// with a few members replaced. It parses the top level only, where numbers must be JSON's. Nested values are skipped by
// matching brackets and quotes; their contents are not validated as JSON, except that the whole text must be UTF-8
// without NUL bytes.
//
// Long strings are scanned with SIMD instructions where the processor has them (SSE2 and AVX2 on amd64), and with SWAR
// (eight bytes in a 64-bit word) elsewhere. Both give the same results; the tests compare them.
package scan

import (
	"errors"
	"fmt"
)

// A Member is one name/value pair of an object. Offsets are into the scanned text.
type Member struct {
	Name       string
	Value      []byte
	Start, End int     // from the opening quote of the name to the end of the value
	Elements   int     // the number of elements of an array; -1 for any other value and for misplaced commas
	Seen       WordSet // which of the wanted words occur in the value, as whole strings without escapes
}

// ValueStart returns the offset of the value's first byte.
func (m Member) ValueStart() int { return m.End - len(m.Value) }

// maxDepth bounds the nesting depth of values.
const maxDepth = 256

// The errors of Object and ObjectWithWords. They complete a sentence such as "the body …".
var (
	ErrSyntax    = errors.New("is not a JSON object")
	ErrDepth     = fmt.Errorf("is nested deeper than %d levels", maxDepth)
	ErrDuplicate = errors.New("has two members of one name")
	ErrText      = errors.New("is not UTF-8, or holds a NUL byte")
)

// Object appends the members of the JSON object in text to members. It refuses two members with the same decoded name:
// parsers differ in which of the two they use.
func Object(text []byte, members []Member) ([]Member, error) {
	return ObjectWithWords(text, members, nil)
}

// ObjectWithWords is Object, and also sets Seen of every member. It tests each string of the value while the scanner
// passes it, which is cheaper than a second pass over the text.
func ObjectWithWords(text []byte, members []Member, words *Words) ([]Member, error) {
	s := scanner{text: text, words: words}
	members, err := s.readObject(members)
	if !s.validText() {
		return nil, ErrText
	}
	return members, err
}

// A scanner makes one pass over a text.
type scanner struct {
	text      []byte
	validated int  // text[:validated] was checked for UTF-8 without NUL,
	invalid   bool // and the check failed
	words     *Words
	seen      WordSet
	closing   [maxDepth]byte // the closing brackets that are due, outermost first
}

func (s *scanner) readObject(members []Member) ([]Member, error) {
	text := s.text
	at := skipSpace(text, 0)
	if at == len(text) || text[at] != '{' {
		return nil, ErrSyntax
	}
	at = skipSpace(text, at+1)
	if at < len(text) && text[at] == '}' {
		return members, expectEnd(text, at+1)
	}
	if members == nil {
		members = make([]Member, 0, 8)
	}
	for {
		before := members
		members = append(members, Member{})
		m := &members[len(before)]
		if err := s.readMember(at, m); err != nil {
			return nil, err
		}
		for i := range before {
			if before[i].Name == m.Name {
				return nil, fmt.Errorf("%w: %q", ErrDuplicate, m.Name)
			}
		}
		if len(before) == maxMembers {
			return nil, fmt.Errorf("has more than %d members", maxMembers)
		}
		if at = skipSpace(text, m.End); at == len(text) {
			return nil, ErrSyntax
		}
		switch text[at] {
		case ',':
			at = skipSpace(text, at+1)
		case '}':
			return members, expectEnd(text, at+1)
		default:
			return nil, ErrSyntax
		}
	}
}

// maxMembers bounds the quadratic search for duplicate names.
const maxMembers = 256

// expectEnd returns ErrSyntax unless only white space follows at.
func expectEnd(text []byte, at int) error {
	if skipSpace(text, at) != len(text) {
		return ErrSyntax
	}
	return nil
}

// readMember reads the member whose name begins at at.
func (s *scanner) readMember(at int, m *Member) (err error) {
	text := s.text
	m.Start = at
	if at >= len(text) || text[at] != '"' {
		return ErrSyntax
	}
	closed := stringEnd(text, at)
	if closed < 0 {
		return ErrSyntax
	}
	if m.Name, err = decodeName(text[at:closed]); err != nil {
		return ErrSyntax
	}
	if at = skipSpace(text, closed); at == len(text) || text[at] != ':' {
		return ErrSyntax
	}
	at = skipSpace(text, at+1)
	s.seen = 0
	if at < len(text) && text[at] == '[' {
		m.End, m.Elements, err = s.skipArray(at)
	} else {
		m.Elements = -1
		m.End, err = s.skipValue(at, 0)
	}
	if err != nil {
		return err
	}
	m.Value, m.Seen = text[at:m.End], s.seen
	if kinds[text[at]] == literal && !validLiteral(m.Value) {
		return ErrSyntax
	}
	return nil
}

// skipString returns the offset after the string that begins at at, or -1 when it does not end. It validates plain
// ASCII on the way and records the wanted words.
func (s *scanner) skipString(at int) int {
	next, end := scanShortString(s.text, at+1)
	if end == 0 {
		end = scanLongString(s.text, next, next+s.skipASCII(next))
	}
	if s.words != nil && end > 0 && end-at < len(s.words.byLength)+len(`""`) {
		s.seen |= s.words.match(s.text[at+1 : end-1])
	}
	return end
}

// skipASCII returns how many bytes from at on are known to be ASCII without NUL and without quotes, and marks them as
// validated. Most long strings are nearly all such bytes. One pass that tests for both costs little more than a pass
// that searches for quotes alone.
func (s *scanner) skipASCII(at int) int {
	n := unquotedASCII(s.text[at:])
	if n > 0 {
		s.validate(at, at+n)
	}
	return n
}

// validate checks the text between validated and from. The caller knows that text[from:to] is ASCII without NUL.
func (s *scanner) validate(from, to int) {
	if gap := s.text[s.validated:max(from, s.validated)]; len(gap) > 0 {
		// rounded up to whole blocks; the excess lies in the known ASCII
		over := s.validated + (len(gap)+blockSize-1)/blockSize*blockSize
		s.invalid = s.invalid || (over > to || asciiPrefix(s.text[s.validated:over]) < len(gap)) && !validText(gap)
	}
	s.validated = max(s.validated, to)
}

// validText reports whether the whole text is UTF-8 without NUL.
func (s *scanner) validText() bool { return !s.invalid && validText(s.text[s.validated:]) }

func skipSpace(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t') {
		at++
	}
	return at
}

// skipValue returns the offset after the value that begins at at, at this nesting depth.
func (s *scanner) skipValue(at, depth int) (int, error) {
	text := s.text
	if at == len(text) {
		return 0, ErrSyntax
	}
	switch text[at] {
	case '"':
		if closed := s.skipString(at); closed > 0 {
			return closed, nil
		}
		return 0, ErrSyntax
	case '{', '[':
		return s.skipNested(at, depth)
	default:
		from := at
		for at < len(text) && kinds[text[at]] == literal {
			at++
		}
		if at == from {
			return 0, ErrSyntax
		}
		return at, nil
	}
}

// A kind classifies a byte outside strings.
type kind uint8

const (
	plain   kind = iota
	literal      // may be part of a number, true, false or null
	quote
	opening
	closing
)

var kinds = func() (of [256]kind) {
	for all, kind := range map[string]kind{
		"0123456789+-.eEtrufalsn": literal, `"`: quote, "{[": opening, "}]": closing,
	} {
		for _, c := range []byte(all) {
			of[c] = kind
		}
	}
	return of
}()

// skipArray returns the offset after the array that begins at at, and the number of its elements. When the elements are
// not separated by single commas, it rescans once by brackets alone and returns -1 elements.
func (s *scanner) skipArray(at int) (end, n int, err error) {
	text, from := s.text, at
	if at = skipSpace(text, at+1); at < len(text) && text[at] == ']' {
		return at + 1, 0, nil
	}
	for {
		if at, err = s.skipValue(at, 1); err != nil {
			break
		}
		n++
		if at = skipSpace(text, at); at == len(text) {
			break
		}
		if text[at] == ']' {
			return at + 1, n, nil
		}
		if text[at] != ',' {
			break
		}
		at = skipSpace(text, at+1)
	}
	end, err = s.skipNested(from, 0)
	return end, -1, err
}

// skipNested returns the offset after the array or object that begins at at, at this nesting depth. It matches brackets
// and skips strings. After wordSize bytes without structure it searches word by word for the next structural byte.
func (s *scanner) skipNested(at, depth int) (int, error) {
	outer, unstructured := depth, 0
	for text := s.text; at < len(text); at++ {
		c := text[at]
		switch kinds[c] {
		case plain, literal:
			if unstructured++; unstructured == wordSize { // a list of numbers, or indentation
				at, unstructured = nextStructural(text, at+1)-1, 0
			}
			continue
		case quote:
			closed := s.skipString(at)
			if closed < 0 {
				return 0, ErrSyntax
			}
			at = closed - 1
		case opening:
			if depth == maxDepth {
				return 0, ErrDepth
			}
			s.closing[depth] = c + 2 // in ASCII, '}' is '{'+2 and ']' is '['+2
			depth++
		case closing:
			depth--
			if s.closing[depth] != c {
				return 0, ErrSyntax
			}
			if depth == outer {
				return at + 1, nil
			}
		}
		unstructured = 0
	}
	return 0, ErrSyntax
}
