// Package scan finds the members of a JSON object without decoding it, so that a body can be passed on as it came with
// a few of its members changed. It reads the top level and no more: what lies inside a value is skipped by its brackets
// and quotes, and left to whoever the value is for.
package scan

import (
	"errors"
	"fmt"
)

// A Member is one name and value of an object. Offsets are into the scanned text.
type Member struct {
	Name       string
	Value      []byte
	Start, End int // from the opening quote of the name to the end of the value
	Elements   int // of an array, and -1 of what is none: another value, or what has too many commas or too few
	Seen       Set // the words that stand in the value as strings, of those that were looked for
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
func Object(text []byte, members []Member) ([]Member, error) { return Seek(text, members, nil) }

// Seek is Object, and tells of every member which of some words stand in its value, as whole strings without escapes. It costs next
// to nothing, where a search of its own would read the text again.
func Seek(text []byte, members []Member, words *Words) ([]Member, error) {
	s := scanner{text: text, words: words}
	members, err := s.object(members)
	if !s.isText() {
		return nil, ErrText
	}
	return members, err
}

// A scanner goes over a text once.
type scanner struct {
	text    []byte
	proven  int  // how far it was looked at whether it is text,
	wrong   bool // and is not
	words   *Words
	seen    Set
	closing [maxDepth]byte // the brackets that are open, by what closes them
}

func (s *scanner) object(members []Member) ([]Member, error) {
	text := s.text
	at := space(text, 0)
	if at == len(text) || text[at] != '{' {
		return nil, ErrSyntax
	}
	at = space(text, at+1)
	if at < len(text) && text[at] == '}' {
		return members, end(text, at+1)
	}
	if members == nil {
		members = make([]Member, 0, 8)
	}
	for {
		before := members
		members = append(members, Member{})
		m := &members[len(before)]
		if err := s.member(at, m); err != nil {
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
		if at = space(text, m.End); at == len(text) {
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

func (s *scanner) member(at int, m *Member) (err error) {
	text := s.text
	m.Start = at
	if at >= len(text) || text[at] != '"' {
		return ErrSyntax
	}
	closed := quoted(text, at)
	if closed < 0 {
		return ErrSyntax
	}
	if m.Name, err = named(text[at:closed]); err != nil {
		return ErrSyntax
	}
	if at = space(text, closed); at == len(text) || text[at] != ':' {
		return ErrSyntax
	}
	at = space(text, at+1)
	s.seen = 0
	if at < len(text) && text[at] == '[' {
		m.End, m.Elements, err = s.array(at)
	} else {
		m.Elements = -1
		m.End, err = s.skip(at, 0)
	}
	if err != nil {
		return err
	}
	m.Value, m.Seen = text[at:m.End], s.seen
	return nil
}

// quoted is the end of the string that begins at at, or -1.
func (s *scanner) quoted(at int) int {
	next, end := begun(s.text, at+1)
	if end == 0 {
		end = closed(s.text, next, next+s.prose(next))
	}
	if s.words != nil && end > 0 && end-at < len(s.words.byLength)+len(`""`) {
		s.seen |= s.words.match(s.text[at+1 : end-1])
	}
	return end
}

// prose is for how many bytes from at on there are neither quotes nor anything but ASCII. Of most long strings that is nearly all, and it is
// text: to look at it once for both takes little longer than for either.
func (s *scanner) prose(at int) int {
	n := prose(s.text[at:])
	if n > 0 {
		s.prove(at, at+n)
	}
	return n
}

// prove looks whether it is text up to from, and takes what stands from there up to to for ASCII.
func (s *scanner) prove(from, to int) {
	if gap := s.text[s.proven:max(from, s.proven)]; len(gap) > 0 {
		over := s.proven + (len(gap)+block-1)/block*block // into what is ASCII, so that there is no end of a block to look at
		s.wrong = s.wrong || (over > to || ascii(s.text[s.proven:over]) < len(gap)) && !isText(gap)
	}
	s.proven = max(s.proven, to)
}

// isText reports whether all of it is.
func (s *scanner) isText() bool { return !s.wrong && isText(s.text[s.proven:]) }

func space(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t') {
		at++
	}
	return at
}

// skip is the end of the value that begins at at, inside so many arrays and objects.
func (s *scanner) skip(at, depth int) (int, error) {
	text := s.text
	if at == len(text) {
		return 0, ErrSyntax
	}
	switch text[at] {
	case '"':
		if closed := s.quoted(at); closed > 0 {
			return closed, nil
		}
		return 0, ErrSyntax
	case '{', '[':
		return s.nested(at, depth)
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

// A kind is what a byte outside strings is to the scanner.
type kind uint8

const (
	plain   kind = iota
	literal      // makes up numbers, true, false and null
	quote
	opening
	closing
)

var kinds = func() (of [256]kind) {
	for all, kind := range map[string]kind{"0123456789+-.eEtrufalsn": literal, `"`: quote, "{[": opening, "}]": closing} {
		for _, c := range []byte(all) {
			of[c] = kind
		}
	}
	return of
}()

// array is the end of the array that begins at at, and how many elements it has. One whose elements are not told apart by single
// commas ends where its bracket does, as any other value.
func (s *scanner) array(at int) (end, n int, err error) {
	text, from := s.text, at
	if at = space(text, at+1); at < len(text) && text[at] == ']' {
		return at + 1, 0, nil
	}
	for {
		if at, err = s.skip(at, 1); err != nil {
			break
		}
		n++
		if at = space(text, at); at == len(text) {
			break
		}
		if text[at] == ']' {
			return at + 1, n, nil
		}
		if text[at] != ',' {
			break
		}
		at = space(text, at+1)
	}
	end, err = s.nested(from, 0)
	return end, -1, err
}

// nested is the end of the array or object that begins at at, inside so many others.
func (s *scanner) nested(at, depth int) (int, error) {
	outer, dull := depth, 0
	for text := s.text; at < len(text); at++ {
		c := text[at]
		switch kinds[c] {
		case plain, literal:
			if dull++; dull == size { // a vector of numbers, or an indentation
				at, dull = structure(text, at+1)-1, 0
			}
			continue
		case quote:
			closed := s.quoted(at)
			if closed < 0 {
				return 0, ErrSyntax
			}
			at = closed - 1
		case opening:
			if depth == maxDepth {
				return 0, ErrDepth
			}
			s.closing[depth] = c + 2 // either stands two before what closes it
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
		dull = 0
	}
	return 0, ErrSyntax
}
