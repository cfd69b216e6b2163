// Package redact removes credentials from text before it is stored. What looks like a credential is replaced by
// [redacted]; every other byte stays unchanged.
//
// A credential is recognized by its shape (the prefix that its issuer gives it), by its name (a header, an assignment)
// or by its container (the userinfo of a URL, a PEM block). JSON nested in strings of JSON is searched as well: escapes
// are decoded up to five levels deep. So is base64 that decodes to text, once. Credentials in other encodings
// (percent-encoding, compression) are not found.
//
// The time is linear in the length of the text: every character run and search result is cached (see scanner).
package redact

import "slices"

// Mark replaces a credential.
const Mark = "[redacted]"

// JSON replaces the credentials in the strings of a JSON text, member names included, and counts them. The result is
// valid JSON when doc is. It is doc itself when nothing is found. JSON never writes to doc.
func JSON(doc []byte) (clean []byte, found int) { return redact(doc, true) }

// Text is JSON for any text. It decodes JSON escapes too, since text often quotes JSON.
func Text(text []byte) (clean []byte, found int) { return redact(text, false) }

// String is Text for what a person wrote to be kept: a name, a description, a rubric, a note.
func String(text string) string {
	clean, found := Text([]byte(text))
	if found == 0 {
		return text
	}
	return string(clean)
}

// Rules returns the sorted names of all rules.
func Rules() []string {
	var names []string
	for i := range rules {
		names = append(names, rules[i].name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// maxPasses bounds the passes over one text. Adjacent credentials need more than one: the rest of a credential may be
// recognized only after its neighbour was replaced.
const maxPasses = 8

func redact(text []byte, json bool) (clean []byte, found int) {
	for range maxPasses {
		hits := find(text, json)
		if len(hits) == 0 {
			break
		}
		text = replaceHits(text, hits)
		found += len(hits)
	}
	return text, found
}

// replaceHits returns a copy of text with every hit replaced by Mark.
func replaceHits(text []byte, hits []hit) []byte {
	size := len(text) + len(hits)*len(Mark)
	for _, h := range hits {
		size -= h.to - h.from
	}
	clean, at := make([]byte, 0, size), 0
	for _, h := range hits {
		clean = append(append(clean, text[at:h.from]...), Mark...)
		at = h.to
	}
	return append(clean, text[at:]...)
}

// find returns the credentials of a text, in order and without overlap.
func find(text []byte, json bool) []hit {
	hits, _ := findCounting(text, json)
	return hits
}

// findCounting is find, and returns the scanner's step count for the test of linear time. Most texts have no escapes
// that could hide a credential and are scanned without decoding.
func findCounting(text []byte, json bool) ([]hit, int) {
	s := scanner{decoded: decoded{text: text}, raw: text, json: json, stopAtEscape: true}
	if s.scan() {
		s.findBase64()
		return s.hits, s.steps
	}
	steps := s.steps
	s = scanner{decoded: decode(text), raw: text, json: json}
	s.scan()
	s.findBase64()
	for i := range s.hits {
		s.hits[i].from, s.hits[i].to = s.origin(s.hits[i].from), s.origin(s.hits[i].to)
	}
	return s.hits, steps + s.steps
}
