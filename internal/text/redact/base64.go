package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// In base64 a credential has no shape that a rule could name. So the search probes a text for long runs of the
// characters of base64, and searches what a run decodes to, if that is text.
const (
	minBase64   = 39 // the shortest run that is always found: 29 characters in base64
	probe       = 16 // bytes that are tested at once
	probeStride = minBase64 - probe + 1
	base64Head  = 24 // characters that show whether a run is text
)

// base64Rule is the index of the rule of such runs.
var base64Rule = slices.IndexFunc(rules, func(r rule) bool { return r.kind == encoded })

const (
	eachByte = 0x0101010101010101
	highBits = eachByte << 7
)

func load16(text []byte, at int) (one, two uint64) {
	here := text[at : at+probe]
	return binary.LittleEndian.Uint64(here), binary.LittleEndian.Uint64(here[8:])
}

// below returns 0 if every byte of two words is an ASCII character from least on.
func below(least byte, one, two uint64) uint64 {
	all := eachByte * uint64(least)
	return ((one - all) | one | (two - all) | two) & highBits
}

// capitals returns how many capital letters two words have, or 0 if they have a backslash: five other characters count
// as well.
func capitals(one, two uint64) int {
	escapes := func(x uint64) uint64 { x ^= eachByte * '\\'; return (x - eachByte) &^ x & highBits }
	if escapes(one)|escapes(two) != 0 {
		return 0
	}
	return bits.OnesCount64(one>>6&^(one>>5)&eachByte) + bits.OnesCount64(two>>6&^(two>>5)&eachByte)
}

// findBase64 adds the runs of base64 that hide a credential to the hits. A probe excludes the characters + and /, which
// the base64 of text hardly has, and wants capitals, which it always has: so names and paths in code are excluded.
func (s *scanner) findBase64() {
	text, found := s.text, len(s.hits)
	for at := 0; at+probe <= len(text); at += probeStride {
		one, two := load16(text, at)
		if below('0', one, two) != 0 || capitals(one, two) < 2 {
			continue
		}
		at = max(at, s.tryBase64(at)-probeStride+1)
	}
	if found < len(s.hits) {
		s.hits = merged(s.hits)
	}
}

// tryBase64 examines the run around at, and returns about where it ends.
func (s *scanner) tryBase64(at int) int {
	from := at
	for from > 0 && is(s.text[from-1], path) {
		from--
	}
	s.steps += at - from
	if from > 0 && s.text[from-1] == '\\' { // an escape precedes it
		if from++; s.text[from-1] == 'u' {
			from += len("0000")
		}
	}
	if !s.isBase64Text(from) {
		return s.skipRun(at)
	}
	to, hides := s.searchBase64(from)
	if hides && !s.insideEscape(from) {
		s.hits = append(s.hits, hit{base64Rule, from, to})
	}
	return to
}

// sextets are the values of the characters of base64, of both alphabets. Other characters are 0xff.
var sextets = func() (of [256]byte) {
	for i := range of {
		of[i] = 0xff
	}
	for _, alphabet := range []string{upper + lower + digits + "+/", upper + lower + digits + "-_"} {
		for i := range len(alphabet) {
			of[alphabet[i]] = byte(i)
		}
	}
	return of
}()

// isBase64Text reports whether the characters from from on decode to text: UTF-8 without control characters. For most
// runs the first few show that they do not.
func (s *scanner) isBase64Text(from int) bool {
	if from+base64Head > len(s.text) {
		return false
	}
	var plain [base64Head / 4 * 3]byte
	for i := 0; i < base64Head; i += 4 {
		four := s.text[from+i : from+i+4]
		a, b, c, d := sextets[four[0]], sextets[four[1]], sextets[four[2]], sextets[four[3]]
		three := [...]byte{a<<2 | b>>4, b<<4 | c>>2, c<<6 | d}
		if a|b|c|d == 0xff || isControl(three[0]) || isControl(three[1]) || isControl(three[2]) {
			return false
		}
		copy(plain[i/4*3:], three[:])
	}
	text := plain[:]
	for i := 0; i < utf8.UTFMax && !utf8.Valid(text); i++ { // the last character may be cut off
		text = text[:len(text)-1]
	}
	return len(text) > len(plain)-utf8.UTFMax
}

func isControl(c byte) bool { return c < ' ' && c != '\n' && c != '\r' && c != '\t' || c == 0x7f }

// decodeBase64 decodes base64 of either alphabet, as far as it is whole.
func decodeBase64(into, text []byte) (int, bool) {
	coding := base64.RawStdEncoding
	if bytes.ContainsAny(text, "-_") {
		coding = base64.RawURLEncoding
	}
	if len(text)%4 == 1 {
		text = text[:len(text)-1]
	}
	n, err := coding.Decode(into, text)
	return n, err == nil
}

// skipRun returns where the run ends that begins at to. It tests eight characters at once: a run that is no text is an
// image, and long.
func (s *scanner) skipRun(to int) int {
	for ; to+8 <= len(s.text); to += 8 {
		t := s.text[to : to+8]
		if (classBits[t[0]]&classBits[t[1]]&classBits[t[2]]&classBits[t[3]]&
			classBits[t[4]]&classBits[t[5]]&classBits[t[6]]&classBits[t[7]])>>path&1 == 0 {
			break
		}
	}
	for to < len(s.text) && is(s.text[to], path) {
		to++
	}
	return to
}

// searchBase64 returns the end of the text that is encoded from from on, and whether a credential is in it. The text
// may be wrapped: after a line of the usual length, the next one belongs to it.
func (s *scanner) searchBase64(from int) (to int, hides bool) {
	var plain []byte
	firstLine := 0
	for next := from; next < len(s.text) && is(s.text[next], path); next = s.skipBlank(to, "") {
		for to = next; to < len(s.text) && is(s.text[to], path); {
			to++
		}
		line := s.text[next:to]
		s.steps += len(line)
		part := make([]byte, base64.RawStdEncoding.DecodedLen(len(line)))
		n, ok := decodeBase64(part, line)
		if plain = append(plain, part[:n]...); next == from {
			firstLine = n
		}
		if !ok || len(line) != 64 && len(line) != 76 {
			break
		}
	}
	for padded := to + len("=="); to < len(s.text) && to < padded && s.text[to] == '='; {
		to++
	}
	return to, s.holdsCredential(plain) || firstLine < len(plain) && s.holdsCredential(plain[:firstLine])
}

// holdsCredential reports whether a rule finds a credential in a decoded text.
func (s *scanner) holdsCredential(plain []byte) bool {
	inner := scanner{decoded: decoded{text: plain}, raw: plain}
	inner.scan()
	s.steps += inner.steps
	return len(inner.hits) > 0
}

// merged sorts hits and joins those that overlap.
func merged(hits []hit) []hit {
	slices.SortFunc(hits, func(a, b hit) int { return a.from - b.from })
	n := 0
	for _, h := range hits[1:] {
		if h.from < hits[n].to {
			hits[n].to = max(hits[n].to, h.to)
			continue
		}
		n++
		hits[n] = h
	}
	return hits[:n+1]
}
