package redact

import "bytes"

// An Exchange is texts that go together, such as a question and its answer. What is a credential in one of them is taken out of all, also
// where nothing but a part of it is left and no rule would know it: a model may say again what it was told, and less of it.
type Exchange struct{ parts [][]byte }

// A part of a credential is remembered from this length on, and so many of them: a key in a PEM block has many lines.
const (
	leastPart = 16
	mostParts = 64
)

// JSON is the function JSON, and remembers what it finds.
func (e *Exchange) JSON(doc []byte) []byte { return e.redact(doc, true) }

// Text is the function Text, and remembers what it finds.
func (e *Exchange) Text(text []byte) []byte { return e.redact(text, false) }

func (e *Exchange) redact(text []byte, json bool) []byte {
	for range rounds {
		hits := find(text, json)
		if len(hits) == 0 {
			break
		}
		for _, h := range hits {
			e.learn(text[h.from:h.to])
		}
		text = without(text, hits)
	}
	return text
}

// learn remembers the long words of a credential. Those without a letter are left: they may be numbers of JSON, outside its strings.
func (e *Exchange) learn(secret []byte) {
	for at := 0; at < len(secret); {
		from := at
		for at < len(secret) && is(secret[at], alnum) {
			at++
		}
		part := secret[from:at]
		if len(part) >= leastPart && len(e.parts) < mostParts && bytes.ContainsFunc(part, func(r rune) bool { return r > '9' }) {
			e.parts = append(e.parts, bytes.Clone(part))
		}
		for at < len(secret) && secret[at] == '\\' { // of an escape, what is escaped is no part of the word
			at++
			if at < len(secret) && secret[at] != '\\' {
				break
			}
		}
		at++
	}
}

// Again takes out of a text, which was cleaned before, what was found in the others.
func (e *Exchange) Again(text []byte) []byte {
	for _, part := range e.parts {
		if bytes.Contains(text, part) {
			text = bytes.ReplaceAll(text, part, []byte(Mark))
		}
	}
	return text
}
