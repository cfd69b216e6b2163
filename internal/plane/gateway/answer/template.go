package answer

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/plane/gateway/lenient"
	"sovereign/internal/text/scan"
)

// A Template is the form of an event that brings a piece of text and nothing else. Most events of a stream differ from
// the one before in that text alone, so it is enough to compare the bytes around it. An event of another form is
// decoded.
type Template struct {
	Verbatim bool // the caller is sent the event as the provider wrote it

	parts [][]byte // the provider's bytes around the slots
	shown [][]byte // the caller's bytes around the slots, with the framing of an event
	text  int      // index of the slot that holds the text

	bytes   []byte                     // backs parts and shown
	slices  [2 * (maxSlots + 1)][]byte // backs the slices of parts and shown
	unquote []byte                     // scratch space for a text with escapes
}

// The usual framing of an event.
const (
	eventStart = "data: "
	eventEnd   = "\n\n"
)

// maxSlots is the number of variable parts of an event: the text, and the padding that hides its length.
const maxSlots = 2

// Slots are the variable parts of an event: the contents of JSON strings, still escaped.
type Slots [maxSlots][]byte

// Match returns the slots of an event's data, if it has the template's form.
func (m *Template) Match(event []byte) (c Slots, ok bool) {
	c, rest, ok := m.match(event)
	return c, ok && len(rest) == 0
}

// Next returns the slots of the event at the front of a piece of a stream, and its size with the framing. The size is 0
// if the event has another form, or is incomplete.
func (m *Template) Next(piece []byte) (c Slots, size int) {
	if len(piece) < len(eventStart) || string(piece[:len(eventStart)]) != eventStart {
		return c, 0
	}
	c, rest, ok := m.match(piece[len(eventStart):])
	if !ok || len(rest) < len(eventEnd) || string(rest[:len(eventEnd)]) != eventEnd {
		return c, 0
	}
	return c, len(piece) - len(rest) + len(eventEnd)
}

// match returns the slots of the event at the front of a text. Slots may hold escapes, which may be invalid.
func (m *Template) match(text []byte) (c Slots, rest []byte, ok bool) {
	for i, part := range m.parts {
		if !bytes.HasPrefix(text, part) {
			return c, nil, false
		}
		if text = text[len(part):]; i == len(m.parts)-1 {
			break
		}
		n := stringLength(text)
		if n < 0 || n == 0 && i == m.text {
			return c, nil, false
		}
		c[i], text = text[:n], text[n:]
	}
	return c, text, true
}

// stringLength returns how many bytes of text come before the quote that ends a JSON string, or -1 if none does, or if
// they are not valid.
func stringLength(text []byte) int {
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

// Text returns the text of an event's slots. It returns false if that cannot be read. The text is valid until the next
// call, or as long as the event.
func (m *Template) Text(c *Slots) ([]byte, bool) {
	for i, slot := range c {
		if i != m.text && bytes.IndexByte(slot, '\\') >= 0 {
			return nil, false
		}
	}
	if bytes.IndexByte(c[m.text], '\\') < 0 {
		return c[m.text], true
	}
	m.unquote = append(append(append(m.unquote[:0], '"'), c[m.text]...), '"')
	text, err := jsontext.AppendUnquote(m.unquote, m.unquote)
	if err != nil {
		return nil, false
	}
	return text[len(m.unquote):], true
}

// Append appends the event with these slots, as the caller is sent it.
func (m *Template) Append(to []byte, c *Slots) []byte {
	for i, part := range m.shown {
		to = append(to, part...)
		if i < len(m.shown)-1 {
			to = append(to, c[i]...)
		}
	}
	return to
}

// isLiteral reports whether the content of a JSON string has no escapes and is valid UTF-8.
func isLiteral(inner []byte) bool {
	ascii := true
	for _, c := range inner {
		if c < ' ' || c == '\\' {
			return false
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	return ascii || utf8.Valid(inner)
}

// Learn makes the template of a plain event that brings nothing but text, in its delta. cut is the part that the caller
// is not sent. It returns false if the event is of another kind: then the next one must be decoded too.
func (m *Template) Learn(event []byte, delta lenient.Range, text []byte, cut lenient.Range) bool {
	at, ok := textRange(event, delta, text)
	if !ok || bytes.IndexByte(event, '\n') >= 0 || at.From < cut.To && at.To > cut.From {
		return false
	}
	array := [maxSlots + 1]lenient.Range{at}
	slots := array[:1]
	if padding, ok := paddingRange(event); ok {
		slots = append(slots, padding)
	}
	if len(slots) > 1 && slots[1].From < at.From {
		slots[0], slots[1] = slots[1], slots[0]
	}
	m.text, m.Verbatim = slices.Index(slots, at), cut.To == 0
	m.parts, m.shown = m.slices[:0:maxSlots+1], m.slices[maxSlots+1:maxSlots+1]
	m.bytes = append(slices.Grow(m.bytes[:0], 2*len(event)+len(eventStart)+len(eventEnd)), event...)
	event = m.bytes
	from := 0
	for i, h := range append(slots, lenient.Range{From: len(event), To: len(event)}) {
		m.parts = append(m.parts, event[from:h.From])
		start := len(m.bytes)
		if i == 0 {
			m.bytes = append(m.bytes, eventStart...)
		}
		if from <= cut.From && cut.To <= h.From {
			m.bytes = append(append(m.bytes, event[from:cut.From]...), event[cut.To:h.From]...)
		} else {
			m.bytes = append(m.bytes, event[from:h.From]...)
		}
		if i == len(slots) {
			m.bytes = append(m.bytes, eventEnd...)
		}
		m.shown = append(m.shown, m.bytes[start:])
		from = h.To
	}
	return true
}

// paddingRange returns where the padding of an event stands, if it has one.
func paddingRange(event []byte) (at lenient.Range, ok bool) {
	if !bytes.Contains(event, []byte(`"obfuscation"`)) {
		return at, false
	}
	var buffer [12]scan.Member
	members, err := scan.Object(event, buffer[:0])
	for i := range members {
		m := &members[i]
		if m.Name != "obfuscation" || err != nil {
			continue
		}
		if inner, plain := lenient.PlainString(m.Value); plain && isLiteral(inner) {
			return lenient.Range{From: m.ValueStart() + 1, To: m.End - 1}, true
		}
	}
	return at, false
}

// textRange returns where the text of an event stands in its delta, if it stands there without escapes, and once.
func textRange(event []byte, delta lenient.Range, text []byte) (at lenient.Range, ok bool) {
	if delta.To == 0 {
		return at, false
	}
	var buffer [8]scan.Member
	members, err := scan.Object(event[delta.From:delta.To], buffer[:0])
	if err != nil || len(text) == 0 {
		return at, false
	}
	for i := range members {
		m := &members[i]
		if textMembers[m.Name] && string(m.Value) != "null" && string(m.Value) != `""` {
			inner, literal := lenient.PlainString(m.Value)
			if ok || !literal || !bytes.Equal(inner, text) || !isLiteral(inner) {
				return at, false
			}
			at, ok = lenient.Range{From: delta.From + m.ValueStart() + 1, To: delta.From + m.End - 1}, true
		}
	}
	return at, ok
}
