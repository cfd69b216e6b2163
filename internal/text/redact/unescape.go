package redact

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"sort"
)

// hides reports whether escapes of a text may stand for characters of a credential. Those of quotes and line breaks do
// not, and the matchers read them where they are; so most texts need not be copied.
func hides(text []byte) bool {
	for at := 0; ; at++ {
		next := bytes.IndexByte(text[at:], '\\')
		if next < 0 {
			return false
		}
		if at += next; hidden(text[at:]) {
			return true
		}
	}
}

// hidden reports whether a text begins with such an escape.
func hidden(text []byte) bool {
	return len(text) > 1 && text[0] == '\\' && (text[1] == '/' || numbered(text))
}

// A reading is a text with its escapes resolved, and the way back.
type reading struct {
	text   []byte
	levels []level
}

// A level is what resolving escapes once has changed.
type level struct {
	marks []mark
	size  int // of the text before
	read  int // of the text after
}

// A mark says that from place at on, the text read stands at from on in the one before.
type mark struct{ at, from int32 }

// deepest is how often escapes are resolved: JSON is put into strings of JSON, and that once more, but hardly further.
const deepest = 5

// read resolves the escapes of a text until none is left that may hide something.
func read(text []byte) reading {
	r := reading{text: text}
	for more := true; more && len(r.levels) < deepest; {
		var next []byte
		var marks []mark
		next, marks, more = unescape(r.text, len(r.levels) > 0)
		r.levels = append(r.levels, level{marks, len(r.text), len(next)})
		r.text = next
	}
	return r
}

// unescape resolves \\, \/, \" and \u00xx. Line breaks stay escapes: \n may stand for one, or for a backslash and the n of
// a name, and which it is depends on a depth that nothing tells. It reports whether more has come to light. In place, it
// writes over what it has read.
func unescape(raw []byte, inPlace bool) (text []byte, marks []mark, more bool) {
	n := 0
	if text = raw; !inPlace {
		text = make([]byte, len(raw)+8)
	}
	marks = make([]mark, 0, bytes.Count(raw, []byte{'\\'}))
	for at := 0; at < len(raw); n++ {
		if at+8 <= len(raw) && (!inPlace || n+8 <= at) { // eight at a time, up to a backslash
			eight := binary.LittleEndian.Uint64(raw[at:])
			binary.LittleEndian.PutUint64(text[n:], eight)
			ahead := until(eight, '\\')
			at, n = at+ahead, n+ahead
			if ahead == 8 {
				n--
				continue
			}
		}
		if text[n] = raw[at]; raw[at] != '\\' || at+1 == len(raw) {
			at++
			continue
		}
		switch c := raw[at+1]; {
		case c == '\\' || c == '/' || c == '"':
			text[n] = c
			at += len(`\n`)
			more = more || hidden(raw[at-1:]) || c == '/' && n > 0 && text[n-1] == '\\'
		case numbered(raw[at:]):
			text[n] = nibble(raw[at+4])<<4 | nibble(raw[at+5])
			at += len(`\u0000`)
			more = more || is(text[n], hexAny) || text[n] == '\\' || text[n] == '/' || text[n] == 'u' // it may be part of another
		default:
			n++
			text[n] = c
			at += len(`\n`)
			continue
		}
		marks = append(marks, mark{int32(n + 1), int32(at)})
	}
	return text[:n], marks, more
}

// until is how many of eight bytes come before the first that is c.
func until(eight uint64, c byte) int {
	const ones = 0x0101010101010101
	x := eight ^ ones*uint64(c)
	return bits.TrailingZeros64((x-ones)&^x&(ones<<7)) / 8
}

// numbered reports whether a text begins with an escape that gives an ASCII character by its number.
func numbered(text []byte) bool {
	return len(text) >= len(`\u0000`) && text[1] == 'u' && text[2] == '0' && text[3] == '0' && text[4] >= '0' && text[4] < '8' && is(text[5], hexAny)
}

func nibble(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

// origin is where a place of the text read stands in the raw one; of what was an escape, where that begins.
func (r *reading) origin(at int) int {
	for i := len(r.levels) - 1; i >= 0; i-- {
		at = r.levels[i].origin(at)
	}
	return at
}

func (l *level) origin(at int) int {
	if at == l.read {
		return l.size
	}
	i := sort.Search(len(l.marks), func(i int) bool { return int(l.marks[i].at) > at })
	if i == 0 {
		return at
	}
	return int(l.marks[i-1].from-l.marks[i-1].at) + at
}
