package redact

import "bytes"

// netrc matches the password of a .netrc file, where words alternate between names and values: machine example.com
// login me password mine. The word password is between at and end.
func (s *scanner) netrc(at, end int) (int, int, bool) {
	const pairs = 3 // machine, login and account
	from := s.skipBlank(end, "")
	if from == end {
		return 0, 0, false
	}
	login, machine := false, false
	for range pairs {
		value := s.wordBefore(at)
		name := s.wordBefore(value.from)
		switch string(bytes.ToLower(s.text[name.from:name.to])) {
		case "machine":
			machine = true
		case "login", "account":
			login = true
		}
		machine = machine || login && string(s.text[value.from:value.to]) == "default"
		at = name.from
	}
	to := from
	for to < len(s.text) && to < from+maxWord && s.text[to] > ' ' && !oneOf("\"'`\\", s.text[to]) {
		to++
	}
	given := s.text[from:to]
	if !login && !machine || len(given) == 0 || isPlaceholder(given) {
		return 0, 0, false
	}
	return from, to, machine && login || plausibleSecret(password, given, operand{tight: true})
}

// maxWord bounds a word of a .netrc file.
const maxWord = 128

// wordBefore returns the word before at, or an empty one if no white space separates it.
func (s *scanner) wordBefore(at int) span {
	to := at
	for to > s.floor && (s.text[to-1] <= ' ' || s.text[to-1] == '\\' || s.spaceEscapeEndsAt(to)) {
		to--
	}
	if to == at {
		return span{at, at}
	}
	from := to
	for from > s.floor && to-from < maxWord && s.text[from-1] > ' ' && !oneOf("\"'`", s.text[from-1]) &&
		!s.spaceEscapeEndsAt(from) {
		from--
	}
	s.steps += at - from
	return span{from, to}
}

// spaceEscapeEndsAt reports whether the escape of a white-space character ends at at.
func (s *scanner) spaceEscapeEndsAt(at int) bool {
	return at >= 2 && s.text[at-2] == '\\' && isSpaceEscape(s.text[at-1])
}
