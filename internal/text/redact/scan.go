package redact

import (
	"bytes"
	"encoding/binary"
)

type span struct{ from, to int }

// A hit is a credential found by a rule.
type hit struct {
	rule     int
	from, to int
}

// A scanner makes one pass over a text.
type scanner struct {
	decoded
	raw          []byte
	json         bool
	stopAtEscape bool // text has not been decoded: stop at the first escape that may hide characters
	sawEscape    bool // the scan stopped at such an escape
	hits         []hit
	floor        int           // the end of the last hit; the next one begins at or after it
	runs         [classes]span // the last run of each class
	trims        [classes]trim // the last run of each class without trailing punctuation
	pemEnd       span          // to is the next END of a PEM block from any offset in the span on
	steps        int           // bytes examined by matchers, counted for the test of linear time
}

// A window is three adjacent characters, with case folded. For each shape the index chooses the offset whose windows
// are rarest in text (see rarestWindow), and stores the windows at that offset and at the next one. So it is enough to
// test every second offset of a text: one of the two windows is at a tested offset.
const (
	windowBits = 18
	slotBits   = 13
)

// window returns the hash of a window.
func window(three uint32) uint32 { return ((three | 0x202020) & 0xffffff) * 0x9E3779B1 }

// An anchor is one shape of a rule, and where its window is.
type anchor struct {
	rule   int
	shape  shape
	window int // the offset of its first stored window in the shape
}

// An index finds anchors by their windows. The bit set windows is a Bloom filter with one hash function.
type index struct {
	windows [1 << (windowBits - 6)]uint64 // one bit for each stored window
	slots   [1 << slotBits]uint16         // index into lists, by the anchor's first window
	lists   [][]int                       // indexes into anchors
	anchors []anchor
}

var table = newIndex(rules)

func newIndex(rules []rule) *index {
	x := &index{lists: [][]int{nil}}
	x.addEscapes()
	for r := range rules {
		for _, text := range rules[r].shapes {
			a := anchor{rule: r, shape: parseShape(text)}
			if rules[r].kind > random { // the shape only starts a matcher
				a.shape.inside, a.shape.wholeWord = true, false
			}
			if rules[r].lead.most > 0 {
				a.shape.inside = true
			}
			x.add(a)
		}
	}
	return x
}

func (x *index) add(a anchor) {
	n := len(x.anchors)
	places := a.shape.leadingChars(16)
	a.window = rarestWindow(places)
	x.anchors = append(x.anchors, a)
	first := places[a.window:]
	eachWindow(first[:3], func(h uint32) {
		x.addWindow(h)
		slot := &x.slots[h>>(32-slotBits)]
		if *slot == 0 {
			x.lists = append(x.lists, nil)
			*slot = uint16(len(x.lists) - 1)
		}
		list := &x.lists[*slot]
		if k := len(*list); k == 0 || (*list)[k-1] != n {
			*list = append(*list, n)
		}
	})
	eachWindow(first[1:4], x.addWindow)
}

// addEscapes adds the windows of escapes that may hide a credential: \/ and \u00.
func (x *index) addEscapes() {
	anyByte := make([]byte, 256)
	for i := range anyByte {
		anyByte[i] = byte(i)
	}
	eachWindow([][]byte{{'\\'}, {'/'}, anyByte}, x.addWindow)
	eachWindow([][]byte{anyByte, {'\\'}, {'/'}}, x.addWindow)
	eachWindow([][]byte{{'\\'}, {'u'}, {'0'}}, x.addWindow)
	eachWindow([][]byte{{'u'}, {'0'}, {'0'}}, x.addWindow)
}

func (x *index) addWindow(h uint32) {
	x.windows[h>>(32-windowBits+6)] |= 1 << (h >> (32 - windowBits) & 63)
}

// hasWindow returns 1 for every stored window, and 0 for nearly all others.
func (x *index) hasWindow(h uint32) uint64 {
	return x.windows[h>>(32-windowBits+6)] >> (h >> (32 - windowBits) & 63) & 1
}

// eachWindow calls each with the hash of every window of three positions, given the characters possible at each.
func eachWindow(places [][]byte, each func(uint32)) {
	for _, a := range places[0] {
		for _, b := range places[1] {
			for _, c := range places[2] {
				each(window(uint32(a) | uint32(b)<<8 | uint32(c)<<16))
			}
		}
	}
}

// rarestWindow returns the offset whose windows are the least frequent in text.
func rarestWindow(places [][]byte) int {
	best, least := 0, 1e9
	for at := 0; at+4 <= len(places); at++ {
		if p := windowFrequency(places[at:at+3]) + windowFrequency(places[at+1:at+4]); p < least {
			best, least = at, p
		}
	}
	return best
}

// windowFrequency estimates how often characters of these sets follow one another in text.
func windowFrequency(places [][]byte) float64 {
	p := 1.0
	for i, set := range places {
		sum := 0.0
		for _, c := range set {
			sum += charFrequency(c)
		}
		if p *= sum; i > 0 && len(set) == 1 && len(places[i-1]) == 1 {
			if a, b := places[i-1][0], set[0]; is(a, letter) && is(b, letter) {
				if commonBigrams[(a|0x20)-'a']>>((b|0x20)-'a')&1 != 0 {
					p *= 3
				} else {
					p /= 3
				}
			}
		}
	}
	return p
}

// charFrequency estimates the share of a character in text, in either case.
func charFrequency(c byte) float64 {
	const byShare = "etaoinsrhldcumfpgwybvkxjqz"
	if c |= 0x20; c >= 'a' && c <= 'z' {
		return 0.1 / float64(1+bytes.IndexByte([]byte(byShare), c))
	}
	switch c {
	case ' ':
		return 0.15
	case '.', ',', '"', '-', '_', '=', ':':
		return 0.01
	}
	return 0.005
}

// scan searches the text. It reports false when it stopped at an escape (see stopAtEscape).
//
// Each iteration loads eight bytes and tests the windows at offsets 0, 2 and 4. Invariant: no credential whose stored
// window is before at was missed.
func (s *scanner) scan() bool {
	text, x := s.text, table
	for at := 0; at+8 <= len(text); {
		eight := binary.LittleEndian.Uint64(text[at:])
		one, two, three := x.hasWindow(window(uint32(eight))), x.hasWindow(window(uint32(eight>>16))), x.hasWindow(window(uint32(eight>>32)))
		if one|two|three == 0 {
			at += 6
			continue
		}
		switch {
		case one != 0 && s.tryAround(at):
		case two != 0 && s.tryAround(at+2):
		case three != 0 && s.tryAround(at+4):
		default:
			at += 6
			continue
		}
		if s.sawEscape {
			return false
		}
		at = s.floor
	}
	return s.scanTail()
}

// scanTail searches the last 14 bytes at every offset: the loop of scan leaves up to seven bytes untested.
func (s *scanner) scanTail() bool {
	for at := max(0, len(s.text)-8-6); at+3 <= len(s.text); at++ {
		if at >= s.floor && table.hasWindow(window(s.load3(at))) != 0 && s.tryAround(at) {
			if s.sawEscape {
				return false
			}
			at = s.floor - 1
		}
	}
	return true
}

// tryAround tries the anchors whose first window is at at or one before. It reports whether there was a hit, or an
// escape to stop at.
func (s *scanner) tryAround(at int) bool {
	if s.stopAtEscape && (startsHidingEscape(s.text[at:]) || startsHidingEscape(s.text[at+1:]) || at > 0 && startsHidingEscape(s.text[at-1:])) {
		s.sawEscape = true
		return true
	}
	return at > 0 && s.tryAt(at-1) || s.tryAt(at)
}

// load3 loads the characters at at. Only the lower three bytes are used.
func (s *scanner) load3(at int) uint32 {
	if at+4 <= len(s.text) {
		return binary.LittleEndian.Uint32(s.text[at:])
	}
	return uint32(s.text[at]) | uint32(s.text[at+1])<<8 | uint32(s.text[at+2])<<16
}

// tryAt tries the anchors whose first window is at at, and reports whether one of them hit.
func (s *scanner) tryAt(at int) bool {
	slot := table.slots[window(s.load3(at))>>(32-slotBits)]
	for _, n := range table.lists[slot] {
		s.steps++
		a := &table.anchors[n]
		begin := at - a.window
		if begin < s.floor {
			continue
		}
		from, to, ok := s.match(&a.shape, begin)
		if ok {
			from, to, ok = s.accept(a, begin, from, to)
		}
		if ok && from >= s.floor && !s.insideEscape(from) {
			if s.stopAtEscape && hasHidingEscape(s.text[at:min(len(s.text), to+len(`\u0000`))]) {
				s.sawEscape = true
				return true
			}
			s.hits = append(s.hits, hit{a.rule, from, to})
			s.floor = to
			return true
		}
	}
	return false
}

// insideEscape reports whether an offset is inside a JSON escape: a credential must not begin with the n of \n or with
// a digit of \ufffd.
func (s *scanner) insideEscape(at int) bool {
	if !s.json {
		return false
	}
	at = s.origin(at)
	slash := at - 1
	for slash >= 0 && slash > at-len(`u0000`) && s.raw[slash] != '\\' {
		slash--
	}
	if slash < 0 || s.raw[slash] != '\\' || slash != at-1 && s.raw[slash+1] != 'u' {
		return false
	}
	odd := false
	for ; slash >= 0 && s.raw[slash] == '\\'; slash-- {
		s.steps++
		odd = !odd
	}
	return odd
}
