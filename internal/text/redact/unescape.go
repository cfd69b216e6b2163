package redact

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"sort"
)

// hasHidingEscape reports whether a text has escapes that may stand for characters of a credential. Escapes of quotes
// and line breaks do not; the matchers handle those, so that most texts need not be copied.
func hasHidingEscape(text []byte) bool {
	for at := 0; ; at++ {
		next := bytes.IndexByte(text[at:], '\\')
		if next < 0 {
			return false
		}
		if at += next; startsHidingEscape(text[at:]) {
			return true
		}
	}
}

// startsHidingEscape reports whether a text begins with such an escape.
func startsHidingEscape(text []byte) bool {
	return len(text) > 1 && text[0] == '\\' && (text[1] == '/' || isUnicodeEscape(text))
}

// decoded is a text with its escapes decoded, and the mapping back to the original offsets.
type decoded struct {
	text   []byte
	levels []level
}

// A level maps the offsets of one decoding step.
type level struct {
	offsets    []offset
	sizeBefore int // of the text before
	sizeAfter  int // of the text after
}

// An offset says that decoded bytes from offset at on were at offset from on before decoding.
type offset struct{ at, from int32 }

// maxLevels bounds how often escapes are decoded. JSON in strings of JSON is common; deeper nesting is rare.
const maxLevels = 5

// decode decodes the escapes of a text repeatedly, until none is left that may hide characters.
func decode(text []byte) decoded {
	r := decoded{text: text}
	for more := true; more && len(r.levels) < maxLevels; {
		var next []byte
		var marks []offset
		next, marks, more = unescape(r.text, len(r.levels) > 0)
		r.levels = append(r.levels, level{marks, len(r.text), len(next)})
		r.text = next
	}
	return r
}

// unescape decodes \\, \/, \" and \u00xx once. It keeps the escapes of line breaks: \n may stand for a line break, or
// for a backslash and the n of a name, depending on a nesting depth that is not known. more reports whether decoding
// produced new escapes. With inPlace it overwrites raw.
func unescape(raw []byte, inPlace bool) (text []byte, marks []offset, more bool) {
	n := 0
	if text = raw; !inPlace {
		text = make([]byte, len(raw)+8)
	}
	marks = make([]offset, 0, bytes.Count(raw, []byte{'\\'}))
	for at := 0; at < len(raw); n++ {
		if at+8 <= len(raw) && (!inPlace || n+8 <= at) { // copy eight bytes at a time, up to a backslash
			eight := binary.LittleEndian.Uint64(raw[at:])
			binary.LittleEndian.PutUint64(text[n:], eight)
			ahead := bytesBefore(eight, '\\')
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
			more = more || startsHidingEscape(raw[at-1:]) || c == '/' && n > 0 && text[n-1] == '\\'
		case isUnicodeEscape(raw[at:]):
			text[n] = hexValue(raw[at+4])<<4 | hexValue(raw[at+5])
			at += len(`\u0000`)
			// it may be part of another escape
			more = more || is(text[n], hexAny) || text[n] == '\\' || text[n] == '/' || text[n] == 'u'
		default:
			n++
			text[n] = c
			at += len(`\n`)
			continue
		}
		marks = append(marks, offset{int32(n + 1), int32(at)})
	}
	return text[:n], marks, more
}

// bytesBefore returns how many of eight bytes precede the first c, or 8.
func bytesBefore(eight uint64, c byte) int {
	const ones = 0x0101010101010101
	x := eight ^ ones*uint64(c)
	return bits.TrailingZeros64((x-ones)&^x&(ones<<7)) / 8
}

// isUnicodeEscape reports whether a text that begins with a backslash begins with \u00xx for an ASCII character.
func isUnicodeEscape(text []byte) bool {
	return len(text) >= len(`\u0000`) && text[1] == 'u' && text[2] == '0' && text[3] == '0' && text[4] >= '0' &&
		text[4] < '8' && is(text[5], hexAny)
}

func hexValue(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

// origin maps an offset of the decoded text to the raw text. The offset of a decoded escape maps to the escape's start.
func (r *decoded) origin(at int) int {
	for i := len(r.levels) - 1; i >= 0; i-- {
		at = r.levels[i].origin(at)
	}
	return at
}

func (l *level) origin(at int) int {
	if at == l.sizeAfter {
		return l.sizeBefore
	}
	i := sort.Search(len(l.offsets), func(i int) bool { return int(l.offsets[i].at) > at })
	if i == 0 {
		return at
	}
	return int(l.offsets[i-1].from-l.offsets[i-1].at) + at
}
