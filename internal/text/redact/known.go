package redact

import "strings"

// minFragment is the shortest part of a known secret that is removed, and minEnd the shortest end of one beside a mask.
const (
	minFragment = 8
	minEnd      = 3
)

// Known removes a secret that the server knows from a text, and every part of it of at least eight characters. It also
// removes what a mask has left of it: providers write sk-abc***wxyz.
func Known(text, secret string) string {
	if len(secret) < minFragment {
		if secret == "" {
			return text
		}
		return strings.ReplaceAll(text, secret, Mark)
	}
	return removeFragments(removeMasked(text, secret), secret)
}

// removeFragments replaces the runs of a text that consist of parts of a secret.
func removeFragments(text, secret string) string {
	parts := make(map[string]bool, len(secret))
	for at := 0; at+minFragment <= len(secret); at++ {
		parts[secret[at:at+minFragment]] = true
	}
	var hits []hit
	for at := 0; at+minFragment <= len(text); at++ {
		if !parts[text[at:at+minFragment]] {
			continue
		}
		if last := len(hits) - 1; last >= 0 && hits[last].to >= at {
			hits[last].to = at + minFragment
		} else {
			hits = append(hits, hit{from: at, to: at + minFragment})
		}
	}
	return replaced(text, hits)
}

// removeMasked replaces masks, such as *** or …, together with the ends of a secret that stand beside them.
func removeMasked(text, secret string) string {
	var hits []hit
	floor := 0
	for at := 0; at < len(text); {
		n := maskLength(text[at:])
		if n == 0 {
			at++
			continue
		}
		from, to := at, at+n
		for from > floor && is(text[from-1], name) {
			from--
		}
		for to < len(text) && is(text[to], name) {
			to++
		}
		head, tail := text[from:at], text[at+n:to]
		if len(head) >= minEnd && strings.HasPrefix(secret, head) || len(tail) >= minEnd &&
			strings.HasSuffix(secret, tail) {
			hits = append(hits, hit{from: from, to: to})
			floor, at = to, to
		} else {
			floor, at = at+n, at+n
		}
	}
	return replaced(text, hits)
}

// maskLength returns the length of the mask at the beginning of a text, or 0: at least two of the characters that stand
// for others, or an ellipsis.
func maskLength(text string) int {
	const masks, ellipsis = "*•●·.", "…"
	rest := strings.TrimLeft(text, masks+ellipsis)
	n := len(text) - len(rest)
	if n == 1 {
		return 0
	}
	return n
}

func replaced(text string, hits []hit) string {
	if len(hits) == 0 {
		return text
	}
	return string(replaceHits([]byte(text), hits))
}
