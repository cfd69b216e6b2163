package redact

import (
	"bytes"
	"encoding/binary"
)

type span struct{ from, to int }

// A hit is a credential that a rule has found.
type hit struct {
	rule     int
	from, to int
}

// A scanner goes over a text once.
type scanner struct {
	reading
	raw     []byte
	json    bool
	wary    bool // escapes have not been resolved
	stopped bool // at one that may hide something
	hits    []hit
	floor   int // no credential begins before
	runs    [classes]span
	ends    span // where the next END of a PEM block is, for every place between
}

// A window is three characters in a row, whatever their case. Of all that is looked for, one place was chosen where text
// seldom goes on that way (see rarest), and the windows there and one further on are known: so it is enough to look at
// every other place of a text, and nothing is passed over.
const (
	windowBits = 18
	slotBits   = 13
)

func window(three uint32) uint32 { return ((three | 0x202020) & 0xffffff) * 0x9E3779B1 }

// An anchor is something to look for: a shape, or what a rule begins to look around at.
type anchor struct {
	rule   int
	shape  shape
	window int // the place of its first window
}

// An index is what the rules look for, by its windows.
type index struct {
	windows [1 << (windowBits - 6)]uint64 // a bit for each that is known
	slots   [1 << slotBits]uint16         // into lists, by the first window
	lists   [][]int                       // of anchors
	anchors []anchor
}

var table = indexed(rules)

func indexed(rules []rule) *index {
	x := &index{lists: [][]int{nil}}
	x.addEscapes()
	for r := range rules {
		for _, text := range rules[r].shapes {
			a := anchor{rule: r, shape: shaped(text)}
			if rules[r].how > random { // it only says where to look
				a.shape.inside, a.shape.whole = true, false
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
	places := a.shape.first(16)
	a.window = rarest(places)
	x.anchors = append(x.anchors, a)
	first := places[a.window:]
	triples(first[:3], func(h uint32) {
		x.know(h)
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
	triples(first[1:4], x.know)
}

// addEscapes makes known what may hide a credential: \/ and \u00.
func (x *index) addEscapes() {
	whatever := make([]byte, 256)
	for i := range whatever {
		whatever[i] = byte(i)
	}
	triples([][]byte{{'\\'}, {'/'}, whatever}, x.know)
	triples([][]byte{whatever, {'\\'}, {'/'}}, x.know)
	triples([][]byte{{'\\'}, {'u'}, {'0'}}, x.know)
	triples([][]byte{{'u'}, {'0'}, {'0'}}, x.know)
}

func (x *index) know(h uint32) { x.windows[h>>(32-windowBits+6)] |= 1 << (h >> (32 - windowBits) & 63) }

// knows is 1 for a window that is known, and 0 for nearly all others.
func (x *index) knows(h uint32) uint64 {
	return x.windows[h>>(32-windowBits+6)] >> (h >> (32 - windowBits) & 63) & 1
}

// triples goes over the windows of three places, each with what may stand there.
func triples(places [][]byte, each func(uint32)) {
	for _, a := range places[0] {
		for _, b := range places[1] {
			for _, c := range places[2] {
				each(window(uint32(a) | uint32(b)<<8 | uint32(c)<<16))
			}
		}
	}
}

// rarest is the place whose windows come up least often in text.
func rarest(places [][]byte) int {
	best, least := 0, 1e9
	for at := 0; at+4 <= len(places); at++ {
		if p := often(places[at:at+3]) + often(places[at+1:at+4]); p < least {
			best, least = at, p
		}
	}
	return best
}

// often is about how often characters follow each other, each out of a set.
func often(places [][]byte) float64 {
	p := 1.0
	for i, set := range places {
		sum := 0.0
		for _, c := range set {
			sum += share(c)
		}
		if p *= sum; i > 0 && len(set) == 1 && len(places[i-1]) == 1 {
			if a, b := places[i-1][0], set[0]; is(a, letter) && is(b, letter) {
				if usual[(a|0x20)-'a']>>((b|0x20)-'a')&1 != 0 {
					p *= 3
				} else {
					p /= 3
				}
			}
		}
	}
	return p
}

// share is about how much of a text is a character, in either case.
func share(c byte) float64 {
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

// scan goes over the text, and reports whether it got to the end: it stops at the first escape that may hide something, if
// it is to look out for those.
func (s *scanner) scan() bool {
	text, x := s.text, table
	for at := 0; at+8 <= len(text); {
		eight := binary.LittleEndian.Uint64(text[at:])
		one, two, three := x.knows(window(uint32(eight))), x.knows(window(uint32(eight>>16))), x.knows(window(uint32(eight>>32)))
		if one|two|three == 0 {
			at += 6
			continue
		}
		switch {
		case one != 0 && s.known(at):
		case two != 0 && s.known(at+2):
		case three != 0 && s.known(at+4):
		default:
			at += 6
			continue
		}
		if s.stopped {
			return false
		}
		at = s.floor
	}
	return s.rest()
}

// rest goes over the last few characters.
func (s *scanner) rest() bool {
	for at := max(0, len(s.text)-8-6); at+3 <= len(s.text); at++ {
		if at >= s.floor && table.knows(window(s.three(at))) != 0 && s.known(at) {
			if s.stopped {
				return false
			}
			at = s.floor - 1
		}
	}
	return true
}

// known looks around at, where a window is, and reports whether there was something.
func (s *scanner) known(at int) bool {
	if s.wary && (hidden(s.text[at:]) || hidden(s.text[at+1:]) || at > 0 && hidden(s.text[at-1:])) {
		s.stopped = true
		return true
	}
	return at > 0 && s.look(at-1) || s.look(at)
}

// three is what stands at at, of which three characters count.
func (s *scanner) three(at int) uint32 {
	if at+4 <= len(s.text) {
		return binary.LittleEndian.Uint32(s.text[at:])
	}
	return uint32(s.text[at]) | uint32(s.text[at+1])<<8 | uint32(s.text[at+2])<<16
}

// look tries what may have its window at at, and reports whether there was a credential.
func (s *scanner) look(at int) bool {
	slot := table.slots[window(s.three(at))>>(32-slotBits)]
	for _, n := range table.lists[slot] {
		a := &table.anchors[n]
		begin := at - a.window
		if begin < s.floor {
			continue
		}
		from, to, ok := s.match(&a.shape, begin)
		if ok {
			from, to, ok = s.accept(a, begin, from, to)
		}
		if ok && from >= s.floor && !s.splits(from) {
			if s.wary && hides(s.text[at:min(len(s.text), to+len(`\u0000`))]) {
				s.stopped = true
				return true
			}
			s.hits = append(s.hits, hit{a.rule, from, to})
			s.floor = to
			return true
		}
	}
	return false
}

// splits reports whether a place is within an escape of JSON: the n of \n is no letter, nor are the digits of \ufffd any.
func (s *scanner) splits(at int) bool {
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
		odd = !odd
	}
	return odd
}
