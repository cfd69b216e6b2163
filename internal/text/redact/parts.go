package redact

import (
	"bytes"

	"sovereign/internal/text/scan"
)

// Messages is JSON for a list of messages, or for one message. It also finds a credential that is split over several
// text parts of one message: a model reads them as one text.
func (e *Exchange) Messages(doc []byte) []byte {
	if bytes.Contains(doc, []byte(`"text"`)) {
		if hits, secrets := findSplit(doc); len(hits) > 0 {
			for _, secret := range secrets {
				e.remember(secret)
			}
			doc = replaceHits(doc, hits)
		}
	}
	return e.JSON(doc)
}

// findSplit returns the credentials in the joined text parts of each message, and where their pieces are in doc.
func findSplit(doc []byte) (hits []hit, secrets [][]byte) {
	for message := range messages(doc) {
		var j joined
		for part := range scan.Elements(member(message, "content")) {
			if text := member(part, "text"); len(text) > 2 && text[0] == '"' {
				j.add(text[1:len(text)-1], offsetIn(doc, text)+1)
			}
		}
		if len(j.segments) < 2 {
			continue
		}
		for _, h := range find(j.text, true) {
			if pieces := j.pieces(h); len(pieces) > 0 {
				hits, secrets = append(hits, pieces...), append(secrets, j.text[h.from:h.to])
			}
		}
	}
	return hits, secrets
}

// messages iterates over a list of messages, or over the one that doc is.
func messages(doc []byte) func(func([]byte) bool) {
	if rest := bytes.TrimLeft(doc, " \t\r\n"); len(rest) > 0 && rest[0] == '{' {
		return func(yield func([]byte) bool) { yield(rest) }
	}
	return scan.Elements(doc)
}

// member returns the value of an object's member, or nil. It allocates nothing for the objects of messages.
func member(object []byte, name string) []byte {
	var buffer [16]scan.Member
	members, err := scan.Object(object, buffer[:0])
	if err != nil {
		return nil
	}
	for i := range members {
		if members[i].Name == name {
			return members[i].Value
		}
	}
	return nil
}

// offsetIn returns the offset of a part of doc. Both slices have the same end of their capacity.
func offsetIn(doc, part []byte) int { return cap(doc) - cap(part) }

// A joined text consists of the text parts of a message. Of a long part only the edges are joined, because a credential
// that is split stands there, and what is in the middle is searched anyway.
type joined struct {
	text     []byte
	segments []segment
}

// A segment is a stretch of a joined text from at to end, which stands in the document from the offset from on. The
// part may have been cut before or after it.
type segment struct {
	at, end, from       int
	cutBefore, cutAfter bool
}

// edge is how much of each end of a long part is joined: more than the longest credential.
const edge = 4 << 10

// add adds a part that stands in the document from the offset from on.
func (j *joined) add(part []byte, from int) {
	if len(part) <= 2*edge {
		j.append(part, segment{from: from})
		return
	}
	j.append(part[:edge], segment{from: from, cutAfter: true})
	j.text = append(j.text, '\n')
	j.append(part[len(part)-edge:], segment{from: from + len(part) - edge, cutBefore: true})
}

func (j *joined) append(part []byte, s segment) {
	s.at = len(j.text)
	j.text = append(j.text, part...)
	s.end = len(j.text)
	j.segments = append(j.segments, s)
}

// pieces returns where a credential of the joined text stands in the document: a piece in each part that it touches. It
// returns none if the credential touches the place where a part was cut, which may be inside of an escape.
func (j *joined) pieces(h hit) (all []hit) {
	const escape = len(`\u0000`)
	for _, s := range j.segments {
		if h.to <= s.at || h.from >= s.end {
			continue
		}
		if s.cutAfter && h.to > s.end-escape || s.cutBefore && h.from < s.at+escape {
			return nil
		}
		from, to := max(h.from, s.at), min(h.to, s.end)
		all = append(all, hit{h.rule, s.from + from - s.at, s.from + to - s.at})
	}
	return all
}
