package redact

import "bytes"

// An operand is the value of an assignment.
type operand struct {
	from   int
	quote  byte // the quote before it, or 0
	tight  bool // it follows the operator directly or in quotes, as in NAME=value
	comma  bool // it follows the name after a comma
	scheme bool // an authentication scheme such as Bearer precedes it
}

// assignment matches the value assigned to the name between at and end.
func (s *scanner) assignment(to ruleKind, at, end int) (int, int, bool) {
	if to == password {
		if from, last, ok := s.netrc(at, end); ok {
			return from, last, true
		}
	}
	o, ok := s.operand(end, to != key)
	if !ok || to == key && s.isPublicKey(at) {
		return 0, 0, false
	}
	last, ok := s.operandEnd(o, to)
	if o.quote != 0 && (to == password || ok && to != key && s.continuesUnusually(last)) {
		if end, closed := s.closingQuote(o); closed {
			last, ok = end, true
		} else if to == password {
			o.quote, o.tight = 0, false
		}
	}
	if !ok {
		return 0, 0, false
	}
	return o.from, last, plausibleSecret(to, s.text[o.from:last], o)
}

// continuesUnusually reports whether a quoted value continues at at with a character that few tokens have.
func (s *scanner) continuesUnusually(at int) bool {
	return at < len(s.text) && s.text[at] > ' ' && !oneOf("'\"`\\,;)", s.text[at])
}

// operand finds the value assigned to the name that continues at at, in the notations of code, headers, settings files
// and JSON. With prose it also accepts "name is value".
func (s *scanner) operand(at int, prose bool) (operand, bool) {
	const gap = 24
	if prose && s.literal(" is ", at, false) {
		return s.operandAt(at+len(" is "), false), true
	}
	end := at
	for end < len(s.text) && end < at+gap &&
		(is(s.text[end], name) || s.text[end] == ' ' || s.text[end] == '\t' || s.text[end] == '.') {
		end++
	}
	if namesMetadata(s.text[at:end]) {
		return operand{}, false
	}
	end = s.skipBlank(end, "'\"`]")
	const other = "value" // <add key="password" value="…"/> and {"name": "password", "value": "…"}
	if s.literal(other, end, true) {
		end = s.skipBlank(end+len(other), "'\"`")
	}
	op := end
	for end < len(s.text) && end < op+3 && (s.text[end] == '=' || s.text[end] == ':' || s.text[end] == '>' || s.text[end] == '|' || s.text[end] == '?' || s.text[end] == ',') {
		end++
	}
	if end == op {
		if is := bytes.Index(s.text[at:op], []byte(" is ")); prose && is >= 0 { // the token for the API is …
			return s.operandAt(at+is+len(" is "), false), true
		}
		return operand{}, false
	}
	o := s.operandAt(end, true)
	o.comma = s.text[op] == ','
	if o.comma && o.quote != 0 && s.literal(other, o.from, true) {
		if colon := s.skipBlank(o.from+len(other), "'\"`"); colon < len(s.text) && s.text[colon] == ':' {
			o = s.operandAt(colon+1, true) // an assignment after all; this clears comma
		}
	}
	for _, scheme := range []string{"bearer ", "basic ", "token ", "apikey ", "api-token "} {
		if s.literal(scheme, o.from, true) {
			o.from, o.tight, o.scheme = o.from+len(scheme), false, true
		}
	}
	return o, true
}

// operandAt returns the operand after an operator that ends at at.
func (s *scanner) operandAt(at int, tight bool) operand {
	o := operand{from: s.skipBlank(at, "'\"`=")}
	for i := o.from - 1; i >= at && o.quote == 0; i-- {
		if c := s.text[i]; c == '"' || c == '\'' || c == '`' {
			o.quote = c
		}
	}
	o.tight = tight && (o.from == at || o.quote != 0)
	return o
}

// skipBlank skips white space and the given other characters from at on, about twelve bytes at most.
func (s *scanner) skipBlank(at int, others string) int {
	const most = 12
	end := at
	for end < len(s.text) && end < at+most {
		switch c := s.text[end]; {
		case c == '\\' && end+1 < len(s.text) && isSpaceEscape(s.text[end+1]):
			end += 2
			continue
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\\' || oneOf(others, c):
			end++
			continue
		}
		break
	}
	return end
}

func oneOf(all string, c byte) bool {
	for i := range len(all) {
		if all[i] == c {
			return true
		}
	}
	return false
}

// operandEnd returns the end of an operand. It reports false when there is none, or when a bracket follows, as in a
// call.
func (s *scanner) operandEnd(o operand, to ruleKind) (int, bool) {
	if s.hasNoOperand(o) {
		return 0, false
	}
	in := value
	if to == password {
		in = visible
	}
	end := s.run(in, o.from)
	if o.quote == 0 {
		end = s.runTrimmed(in, o.from)
	}
	if end == len(s.text) {
		return end, true
	}
	return end, !oneOf("([{", s.text[end])
}

// hasNoOperand reports whether the operand is empty: the quote before it closed a string instead of opening one.
func (s *scanner) hasNoOperand(o operand) bool {
	return o.from == len(s.text) || oneOf(":,}]", s.text[o.from])
}

// closingQuote returns the end of a quoted password.
func (s *scanner) closingQuote(o operand) (int, bool) {
	const longest = 256
	if s.hasNoOperand(o) {
		return 0, false
	}
	for i := o.from; i < len(s.text) && i < o.from+longest; i++ {
		switch c := s.text[i]; {
		case c == o.quote:
			return o.from + len(bytes.TrimRight(s.text[o.from:i], `\`)), true
		case c <= ' ' || c == '"' || c == '\\' && i+1 < len(s.text) && isSpaceEscape(s.text[i+1]):
			return 0, false
		}
	}
	return 0, false
}

// namesMetadata reports whether the rest of a name says that it names metadata of a secret (its id, its length), or
// another word, and not the secret.
func namesMetadata(rest []byte) bool {
	rest = bytes.TrimRight(rest, " \t")
	n := len(rest)
	for n > 0 && is(rest[n-1], alnum) {
		n--
	}
	if n > 0 && n < len(rest)-2 && is(rest[len(rest)-2], up) && is(rest[len(rest)-1], letter) {
		n = len(rest) - 2 // the Id in keyId
	}
	last := rest[n:]
	if len(last) == 0 || len(last) > 8 {
		return false
	}
	var lower [8]byte
	for i, c := range last {
		lower[i] = c | 0x20
	}
	switch string(lower[:len(last)]) {
	case "id", "ids", "name", "names", "url", "uri", "type", "path", "file", "version", "size", "length", "limit", "count":
		return true
	case "ring", "board", "word", "or", "ors": // keyring, keyboard, keyword, author, accessors
		return true
	case "h1", "md5", "sha1", "sha256", "sha512": // checksums
		return true
	}
	return false
}

// isPublicKey reports whether the word "public" precedes the key named at at.
func (s *scanner) isPublicKey(at int) bool {
	const what = "public"
	return at > len(what) && (s.literal(what, at-len(what)-1, true) || s.literal(what, at-len(what), true))
}
