// Package redact takes credentials out of text before it is kept. What looks like a credential becomes [redacted];
// everything else stays byte for byte as it came.
//
// A credential is found by its shape (the prefix that its issuer gives it), by what names it (a header, an assignment)
// or by what holds it (the userinfo of a URL, a PEM block). It is found however often JSON was put into a string of
// JSON: escapes are read five levels deep. It is not found when it was encoded in other ways: base64, percent signs,
// compression.
package redact

import "slices"

// Mark stands where a credential was.
const Mark = "[redacted]"

// JSON takes the credentials out of the strings of a JSON text, names of members included, and counts them. The result
// is valid where doc is. It is doc itself when nothing is found, and doc is never written to.
func JSON(doc []byte) (clean []byte, found int) { return redact(doc, true) }

// Text is JSON for text of any kind. It reads the escapes of JSON too, since text often quotes it.
func Text(text []byte) (clean []byte, found int) { return redact(text, false) }

// Rules names the kinds of credentials that are found.
func Rules() []string {
	var names []string
	for i := range rules {
		names = append(names, rules[i].name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// rounds is how often a text is gone over. Once is enough, but for credentials that stand back to back: what is left of one
// when its neighbour has gone may be known only then.
const rounds = 8

func redact(text []byte, json bool) (clean []byte, found int) {
	for range rounds {
		hits := find(text, json)
		if len(hits) == 0 {
			break
		}
		text = without(text, hits)
		found += len(hits)
	}
	return text, found
}

func without(text []byte, hits []hit) []byte {
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

// find is where the credentials of a text are, in order and apart. Most texts have no escapes that could hide any, and are
// gone over as they are.
func find(text []byte, json bool) []hit {
	s := scanner{reading: reading{text: text}, raw: text, json: json, wary: true}
	if s.scan() {
		return s.hits
	}
	s = scanner{reading: read(text), raw: text, json: json}
	s.scan()
	for i := range s.hits {
		s.hits[i].from, s.hits[i].to = s.origin(s.hits[i].from), s.origin(s.hits[i].to)
	}
	return s.hits
}
