package gateway

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"sovereign/internal/scan"
)

// A mould is the form of an event that brings a piece of text and nothing else. The events of a stream are alike: most differ from the
// one before in that text alone, so that it is enough to compare what stands around it. What does not fit is read in full.
type mould struct {
	parts [][]byte // around the holes
	shown [][]byte // the same, as the caller sees it
	text  int      // which of the holes holds the text
}

// maxHoles are the text, and what pads an event so that its length tells nothing.
const maxHoles = 2

// A casting is what an event holds in a mould's holes.
type casting [maxHoles][]byte

// fits takes an event apart, if it has the mould's form.
func (m *mould) fits(event []byte) (c casting, ok bool) {
	for i, part := range m.parts {
		if !bytes.HasPrefix(event, part) {
			return c, false
		}
		event = event[len(part):]
		if i == len(m.parts)-1 {
			return c, len(event) == 0
		}
		n := bytes.IndexByte(event, '"')
		if n < 0 || n == 0 && i == m.text || !literally(event[:n]) {
			return c, false
		}
		c[i], event = event[:n], event[n:]
	}
	return c, false
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

// cast makes a mould of a plain event that brought nothing but text, in its delta. cut is what the caller is not shown of it. It is nil where the
// event is not of that kind: then the next is read in full again.
func cast(event []byte, delta hole, text []byte, cut edit) *mould {
	at, ok := spoken(event, delta, text)
	if !ok || bytes.IndexByte(event, '\n') >= 0 || at.from < cut.to && at.to > cut.from {
		return nil
	}
	holes := []hole{at}
	var room [12]scan.Member
	if members, err := scan.Object(event, room[:0]); err == nil {
		for i := range members {
			m := &members[i]
			if m.Name != "obfuscation" {
				continue
			}
			if inner, ok := plainText(m.Value); ok && literally(inner) {
				holes = append(holes, hole{m.ValueStart() + 1, m.End - 1})
			}
		}
	}
	slices.SortFunc(holes, func(a, b hole) int { return a.from - b.from })
	m := &mould{text: slices.Index(holes, at)}
	event = bytes.Clone(event)
	from := 0
	for _, h := range append(holes, hole{len(event), len(event)}) {
		part := event[from:h.from]
		m.parts = append(m.parts, part)
		if from <= cut.from && cut.to <= h.from {
			part = slices.Concat(event[from:cut.from], event[cut.to:h.from])
		}
		m.shown = append(m.shown, part)
		from = h.to
	}
	last := len(m.shown) - 1
	m.shown[0] = slices.Concat([]byte("data: "), m.shown[0])
	m.shown[last] = slices.Concat(m.shown[last], []byte("\n\n"))
	return m
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
