package gateway

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/text/scan"
)

// A mould is the form of an event that brings a piece of text and nothing else. The events of a stream are alike: most differ from the
// one before in that text alone, so that it is enough to compare what stands around it. What does not fit is read in full.
type mould struct {
	parts [][]byte // around the holes
	shown [][]byte // the same, as the caller sees it, and as an event is sent
	same  bool     // the caller sees what the provider sends
	text  int      // which of the holes holds the text

	bytes []byte // of all of them
	room  [2 * (maxHoles + 1)][]byte
}

// An event as it is sent mostly stands between these.
const (
	opens  = "data: "
	closes = "\n\n"
)

// maxHoles are the text, and what pads an event so that its length tells nothing.
const maxHoles = 2

// A casting is what an event holds in a mould's holes: JSON strings, without their quotes.
type casting [maxHoles][]byte

// fits takes an event apart, if it has the mould's form.
func (m *mould) fits(event []byte) (c casting, ok bool) {
	c, rest, ok := m.match(event)
	return c, ok && len(rest) == 0
}

// next takes the event apart that a piece of a stream begins with. Its size is 0 when it has another form, or is not whole.
func (m *mould) next(piece []byte) (c casting, size int) {
	if len(piece) < len(opens) || string(piece[:len(opens)]) != opens {
		return c, 0
	}
	c, rest, ok := m.match(piece[len(opens):])
	if !ok || len(rest) < len(closes) || string(rest[:len(closes)]) != closes {
		return c, 0
	}
	return c, len(piece) - len(rest) + len(closes)
}

// match takes apart what has the mould's form at the front of a text. What stands in the holes may have escapes, of which not all are
// good.
func (m *mould) match(text []byte) (c casting, rest []byte, ok bool) {
	for i, part := range m.parts {
		if !bytes.HasPrefix(text, part) {
			return c, nil, false
		}
		if text = text[len(part):]; i == len(m.parts)-1 {
			break
		}
		n := inner(text)
		if n < 0 || n == 0 && i == m.text {
			return c, nil, false
		}
		c[i], text = text[:n], text[n:]
	}
	return c, text, true
}

// inner is how long a JSON string goes on, or -1 when it does not end or is none.
func inner(text []byte) int {
	ascii := true
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			if !ascii && !utf8.Valid(text[:i]) {
				return -1
			}
			return i
		case c == '\\':
			i++
		case c < ' ':
			return -1
		default:
			ascii = ascii && c < utf8.RuneSelf
		}
	}
	return -1
}

// deliver keeps the text of a casting. It is false when that cannot be read.
func (s *relay) deliver(c *casting, text int) bool {
	for i, held := range c {
		if i != text && bytes.IndexByte(held, '\\') >= 0 {
			return false
		}
	}
	if bytes.IndexByte(c[text], '\\') < 0 {
		s.keep(c[text])
		return true
	}
	s.quoted = append(append(append(s.quoted[:0], '"'), c[text]...), '"')
	plain, err := jsontext.AppendUnquote(s.quoted, s.quoted)
	if err == nil {
		s.keep(plain[len(s.quoted):])
	}
	return err == nil
}

// pour appends what the caller sees of an event.
func (m *mould) pour(to []byte, c *casting) []byte {
	for i, part := range m.shown {
		to = append(to, part...)
		if i < len(m.shown)-1 {
			to = append(to, c[i]...)
		}
	}
	return to
}

// literally reports whether what stands in a JSON string says itself.
func literally(inner []byte) bool {
	ascii := true
	for _, c := range inner {
		if c < ' ' || c == '\\' {
			return false
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	return ascii || utf8.Valid(inner)
}

// A hole is where a text stands in an event.
type hole struct{ from, to int }

// cast makes a mould of a plain event that brought nothing but text, in its delta. cut is what the caller is not shown of it. It is false where
// the event is not of that kind: then the next is read in full again.
func (m *mould) cast(event []byte, delta hole, text []byte, cut edit) bool {
	at, ok := spoken(event, delta, text)
	if !ok || bytes.IndexByte(event, '\n') >= 0 || at.from < cut.to && at.to > cut.from {
		return false
	}
	room := [maxHoles + 1]hole{at}
	holes := room[:1]
	if padding, ok := padded(event); ok {
		holes = append(holes, padding)
	}
	if len(holes) > 1 && holes[1].from < at.from {
		holes[0], holes[1] = holes[1], holes[0]
	}
	m.text, m.same = slices.Index(holes, at), cut.to == 0
	m.parts, m.shown = m.room[:0:maxHoles+1], m.room[maxHoles+1:maxHoles+1]
	m.bytes = append(slices.Grow(m.bytes[:0], 2*len(event)+len(opens)+len(closes)), event...)
	event = m.bytes
	from := 0
	for i, h := range append(holes, hole{len(event), len(event)}) {
		m.parts = append(m.parts, event[from:h.from])
		start := len(m.bytes)
		if i == 0 {
			m.bytes = append(m.bytes, opens...)
		}
		if from <= cut.from && cut.to <= h.from {
			m.bytes = append(append(m.bytes, event[from:cut.from]...), event[cut.to:h.from]...)
		} else {
			m.bytes = append(m.bytes, event[from:h.from]...)
		}
		if i == len(holes) {
			m.bytes = append(m.bytes, closes...)
		}
		m.shown = append(m.shown, m.bytes[start:])
		from = h.to
	}
	return true
}

// padded is where what pads an event stands, if something does.
func padded(event []byte) (at hole, ok bool) {
	if !bytes.Contains(event, []byte(`"obfuscation"`)) {
		return at, false
	}
	var room [12]scan.Member
	members, err := scan.Object(event, room[:0])
	for i := range members {
		m := &members[i]
		if m.Name != "obfuscation" || err != nil {
			continue
		}
		if inner, plain := plainText(m.Value); plain && literally(inner) {
			return hole{m.ValueStart() + 1, m.End - 1}, true
		}
	}
	return at, false
}

// spoken is where the text of an event stands in its delta, if it stands there literally, and once.
func spoken(event []byte, delta hole, text []byte) (at hole, ok bool) {
	if delta.to == 0 {
		return at, false
	}
	var room [8]scan.Member
	members, err := scan.Object(event[delta.from:delta.to], room[:0])
	if err != nil || len(text) == 0 {
		return at, false
	}
	for i := range members {
		m := &members[i]
		if prose[m.Name] && string(m.Value) != "null" && string(m.Value) != `""` {
			inner, literal := plainText(m.Value)
			if ok || !literal || !bytes.Equal(inner, text) || !literally(inner) {
				return at, false
			}
			at, ok = hole{delta.from + m.ValueStart() + 1, delta.from + m.End - 1}, true
		}
	}
	return at, ok
}
