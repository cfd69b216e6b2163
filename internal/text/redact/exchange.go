package redact

import "bytes"

// An Exchange redacts related texts, such as a request and its answer. A credential found in one text is removed from
// all of them, even where only a part of it appears that no rule recognizes: a model may repeat a part of a credential.
type Exchange struct{ parts [][]byte }

// minPart is the shortest part of a credential that is remembered, and maxParts bounds their number: a PEM block has
// many lines.
const (
	minPart  = 16
	maxParts = 64
)

// JSON is the function JSON, and remembers the credentials that it finds.
func (e *Exchange) JSON(doc []byte) []byte { return e.redact(doc, true) }

// Text is the function Text, and remembers the credentials that it finds.
func (e *Exchange) Text(text []byte) []byte { return e.redact(text, false) }

func (e *Exchange) redact(text []byte, json bool) []byte {
	for range maxPasses {
		hits := find(text, json)
		if len(hits) == 0 {
			break
		}
		for _, h := range hits {
			e.remember(text[h.from:h.to])
		}
		text = replaceHits(text, hits)
	}
	return text
}

// remember stores the long words of a credential. It skips words without letters: they may equal JSON numbers, and
// replacing a number would make the JSON invalid.
func (e *Exchange) remember(secret []byte) {
	for at := 0; at < len(secret); {
		from := at
		for at < len(secret) && is(secret[at], alnum) {
			at++
		}
		part := secret[from:at]
		if len(part) >= minPart && len(e.parts) < maxParts &&
			bytes.ContainsFunc(part, func(r rune) bool { return r > '9' }) {
			e.parts = append(e.parts, bytes.Clone(part))
		}
		for at < len(secret) && secret[at] == '\\' { // skip escapes: the escaped character is not part of a word
			at++
			if at < len(secret) && secret[at] != '\\' {
				break
			}
		}
		at++
	}
}

// RedactFound replaces, in a text that was already redacted, the parts of credentials found in the other texts.
func (e *Exchange) RedactFound(text []byte) []byte {
	for _, part := range e.parts {
		if bytes.Contains(text, part) {
			text = bytes.ReplaceAll(text, part, []byte(Mark))
		}
	}
	return text
}
