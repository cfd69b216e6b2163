package fold

import (
	"bytes"
	"iter"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// A node is a value of a JSON text. The nodes are in document order: the descendants of a node follow it directly.
type node struct {
	kind     byte   // one of { [ " 0 t f n
	name     []byte // the decoded name, of a member
	text     []byte // the decoded text of a string, or the literal of a number
	start    int    // the offset of the name, or of the value if it has no name
	from, to int    // the extent of the value
	next     int    // the index of the first node after this one and its descendants
}

// scratch holds the buffers for reading and writing messages. They are pooled, so that a message costs no allocation.
type scratch struct {
	nodes   []node
	decoded []byte // the decoded text of strings with escapes
	order   []int  // the members that are being sorted
	out     []byte
	keys    []Key
	steps   int // nodes read and bytes hashed, counted for the test of linear time
}

var pool = sync.Pool{New: func() any { return &scratch{} }}

func borrow() *scratch { return pool.Get().(*scratch) }

// release returns the buffers to the pool, unless they are larger than usual. It drops references to the text.
func (s *scratch) release() {
	const most = 1 << 20
	s.reset()
	s.order, s.out, s.keys, s.steps = s.order[:0], s.out[:0], s.keys[:0], 0
	if cap(s.decoded)+cap(s.out) <= most && cap(s.nodes) <= most/100 && cap(s.order)+cap(s.keys) <= most/10 {
		pool.Put(s)
	}
}

func (s *scratch) reset() {
	clear(s.nodes)
	s.nodes, s.decoded = s.nodes[:0], s.decoded[:0]
}

// valid reports whether a text is UTF-8 and JSON without duplicate names. An unpaired surrogate escape is accepted and
// decoded as U+FFFD: some clients cut texts in the middle of an emoji.
func valid(text []byte) bool {
	return utf8.Valid(text) && jsontext.Value(text).IsValid(jsontext.AllowInvalidUTF8(true))
}

// first returns the first byte of a valid text after white space.
func first(text []byte) byte { return text[skipSpace(text, 0)] }

func skipSpace(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t') {
		at++
	}
	return at
}

// next returns the offset of the next element, or of the closing bracket, after the element that ends at at.
func next(text []byte, at int) int {
	if at = skipSpace(text, at); text[at] == ',' {
		at = skipSpace(text, at+1)
	}
	return at
}

// read parses the value at at of a valid text as node 0, and discards the previous nodes. It returns the value's end.
func (s *scratch) read(text []byte, at int) int {
	s.reset()
	return s.value(text, at, node{start: at})
}

// value appends the value at at as node n, followed by its descendants. It returns the value's end.
func (s *scratch) value(text []byte, at int, n node) int {
	i := len(s.nodes)
	n.from, n.kind = at, text[at]
	s.nodes = append(s.nodes, n)
	switch n.kind {
	case '{':
		for at = skipSpace(text, at+1); text[at] != '}'; at = next(text, at) {
			end := stringEnd(text, at)
			member := node{name: s.unquote(text[at:end]), start: at}
			colon := skipSpace(text, end)
			at = s.value(text, skipSpace(text, colon+1), member)
		}
		at++
	case '[':
		for at = skipSpace(text, at+1); text[at] != ']'; at = next(text, at) {
			at = s.value(text, at, node{start: at})
		}
		at++
	case '"':
		at = stringEnd(text, at)
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

// stringEnd returns the offset after the string that begins at at.
func stringEnd(text []byte, at int) int {
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

// unquote decodes a string. The result is valid until the next read.
func (s *scratch) unquote(raw []byte) []byte {
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	from := len(s.decoded)
	s.decoded, _ = jsontext.AppendUnquote(s.decoded, raw) // the only possible error is an unpaired surrogate
	return s.decoded[from:]
}

// children iterates over the members of an object or the elements of an array.
func (s *scratch) children(i int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for child := i + 1; child < s.nodes[i].next; child = s.nodes[child].next {
			if !yield(child) {
				return
			}
		}
	}
}

// none is the result of a failed lookup. Node 0 is the root, which is never a member.
const none = 0

// member returns the index of an object's member with that name, or none when it is absent or null.
func (s *scratch) member(i int, name string) int {
	for child := range s.children(i) {
		if string(s.nodes[child].name) == name && s.nodes[child].kind != 'n' {
			return child
		}
	}
	return none
}

// equals reports whether a value is a string with that text.
func (s *scratch) equals(i int, text string) bool {
	return s.nodes[i].kind == '"' && string(s.nodes[i].text) == text
}
