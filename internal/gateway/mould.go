package gateway

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
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

// cast makes a mould of an event that brought nothing but text. cut is what the caller is not shown of it. It is nil where the event is not of
// that kind: then the next is read in full again.
func cast(event []byte, text []byte, cut edit) *mould {
	at, ok := spoken(event, text)
	if !ok || bytes.IndexByte(event, '\n') >= 0 || at.from < cut.to && at.to > cut.from {
		return nil
	}
	holes := []hole{at}
	if members, err := scan.Object(event, nil); err == nil {
		for _, m := range members {
			if inner, ok := plainText(m.Value); ok && m.Name == "obfuscation" && literally(inner) {
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

// spoken is where the text of an event with one choice stands in it, if it stands there literally.
func spoken(event, text []byte) (hole, bool) {
	choices, ok := inObject(event, 0, len(event), "choices")
	if !ok || event[choices.from] != '[' {
		return hole{}, false
	}
	first := choices.from + 1 + bytes.IndexByte(event[choices.from+1:choices.to], '{')
	last := bytes.LastIndexByte(event[:choices.to], '}') + 1
	delta, ok := inObject(event, first, last, "delta")
	if !ok {
		return hole{}, false
	}
	for name := range prose {
		at, ok := inObject(event, delta.from, delta.to, name)
		if !ok {
			continue
		}
		inner, ok := plainText(event[at.from:at.to])
		if ok && len(inner) > 0 && bytes.Equal(inner, text) && literally(inner) {
			return hole{at.from + 1, at.to - 1}, true
		}
	}
	return hole{}, false
}

// inObject is where the value of a member stands, of the object that is a part of an event.
func inObject(event []byte, from, to int, name string) (hole, bool) {
	if from < 0 || from >= to {
		return hole{}, false
	}
	members, err := scan.Object(event[from:to], nil)
	if err != nil {
		return hole{}, false
	}
	var found hole
	for _, m := range members {
		switch {
		case m.Name == name:
			found = hole{from + m.ValueStart(), from + m.End}
		case folded(m.Name) == folded(name): // who decodes it may take it for the same
			return hole{}, false
		}
	}
	return found, found.to > 0
}

// folded is a name as those read it who do not mind how it is written.
func folded(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' {
			return -1
		}
		return unicode.ToLower(r)
	}, name)
}
