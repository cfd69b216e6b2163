package fold

import (
	"bytes"
	"iter"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// A node is a value of a JSON text. The nodes of a text stand as they do in it, so that those inside a node follow it.
type node struct {
	kind     byte   // one of { [ " 0 t f n
	name     []byte // of a member, decoded
	text     []byte // of a string, decoded; of a number, as it is written
	start    int    // of the name, or of the value if it has none
	from, to int    // of the value
	next     int    // the node behind this one and all that is in it
}

// scratch is the room in which messages are read and written. It is lent, so that a message costs no allocation.
type scratch struct {
	nodes   []node
	decoded []byte // of strings that have escapes
	order   []int  // of members that are being sorted
	out     []byte
	keys    []Key
}

var room = sync.Pool{New: func() any { return &scratch{} }}

func borrow() *scratch { return room.Get().(*scratch) }

// giveBack keeps room that is not larger than most need, and no hold on what was read.
func (s *scratch) giveBack() {
	const most = 1 << 20
	s.forget()
	s.order, s.out, s.keys = s.order[:0], s.out[:0], s.keys[:0]
	if cap(s.decoded)+cap(s.out) <= most && cap(s.nodes) <= most/100 && cap(s.order)+cap(s.keys) <= most/10 {
		room.Put(s)
	}
}

func (s *scratch) forget() {
	clear(s.nodes)
	s.nodes, s.decoded = s.nodes[:0], s.decoded[:0]
}

// valid reports whether a text is JSON that has one meaning. Half a surrogate pair is let by, and is read as U+FFFD: clients
// cut texts in the middle of an emoji.
func valid(text []byte) bool {
	return utf8.Valid(text) && jsontext.Value(text).IsValid(jsontext.AllowInvalidUTF8(true))
}

// first is the first byte of a valid text.
func first(text []byte) byte { return text[space(text, 0)] }

func space(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t') {
		at++
	}
	return at
}

// next is where the next element begins, or the bracket that ends them, after the element that ends at at.
func next(text []byte, at int) int {
	if at = space(text, at); text[at] == ',' {
		at = space(text, at+1)
	}
	return at
}

// read makes the value at at of a valid text the first node, in place of what was read before. It returns its end.
func (s *scratch) read(text []byte, at int) int {
	s.forget()
	return s.value(text, at, node{start: at})
}

// value adds the value at at, as n, and all that is in it.
func (s *scratch) value(text []byte, at int, n node) int {
	i := len(s.nodes)
	n.from, n.kind = at, text[at]
	s.nodes = append(s.nodes, n)
	switch n.kind {
	case '{':
		for at = space(text, at+1); text[at] != '}'; at = next(text, at) {
			end := quoted(text, at)
			member := node{name: s.unquote(text[at:end]), start: at}
			colon := space(text, end)
			at = s.value(text, space(text, colon+1), member)
		}
		at++
	case '[':
		for at = space(text, at+1); text[at] != ']'; at = next(text, at) {
			at = s.value(text, at, node{start: at})
		}
		at++
	case '"':
		at = quoted(text, at)
		s.nodes[i].text = s.unquote(text[n.from:at])
	case 't', 'n':
		at += len("true")
	case 'f':
		at += len("false")
	default:
		s.nodes[i].kind = '0'
		for at < len(text) && bytes.IndexByte([]byte("0123456789+-.eE"), text[at]) >= 0 {
			at++
		}
		s.nodes[i].text = text[n.from:at]
	}
	s.nodes[i].to, s.nodes[i].next = at, len(s.nodes)
	return at
}

// quoted is the end of the string that begins at at.
func quoted(text []byte, at int) int {
	at++
	for {
		n := bytes.IndexByte(text[at:], '"')
		slash := n
		for slash > 0 && text[at+slash-1] == '\\' {
			slash--
		}
		if at += n + 1; (n-slash)%2 == 0 {
			return at
		}
	}
}

// unquote is what a string says. What it returns holds until the next read.
func (s *scratch) unquote(raw []byte) []byte {
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	from := len(s.decoded)
	s.decoded, _ = jsontext.AppendUnquote(s.decoded, raw) // its one error is half a surrogate pair
	return s.decoded[from:]
}

// in are the values directly in an object or array.
func (s *scratch) in(i int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for child := i + 1; child < s.nodes[i].next; child = s.nodes[child].next {
			if !yield(child) {
				return
			}
		}
	}
}

// none is where no member is: the first node is none.
const none = 0

// member is where an object has a member of that name that is not null, or none.
func (s *scratch) member(i int, name string) int {
	for child := range s.in(i) {
		if string(s.nodes[child].name) == name && s.nodes[child].kind != 'n' {
			return child
		}
	}
	return none
}

// says reports whether a value is that string.
func (s *scratch) says(i int, text string) bool {
	return s.nodes[i].kind == '"' && string(s.nodes[i].text) == text
}
