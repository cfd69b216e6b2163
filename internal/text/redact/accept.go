package redact

import (
	"bytes"
	"encoding/base64"
)

// accept completes the match of an anchor whose shape matched at at, with the secret between from and to. It returns
// the extent of the credential.
func (s *scanner) accept(a *anchor, at, from, to int) (int, int, bool) {
	r := &rules[a.rule]
	switch r.kind {
	case token, random:
		if r.lead.most > 0 {
			return s.matchLead(r.lead, at, to)
		}
		secret := s.text[from:to]
		return from, to, hasVariety(secret) && (r.kind == token || statsOf(secret).looksRandom(2.8))
	case jwt:
		return s.jwt(at, to)
	case privateKey:
		return s.privateKey(at, to)
	case userinfo:
		if s.afterEscape(at + 1) { // the t of \t is no scheme
			return 0, 0, false
		}
		return s.userinfo(to)
	case account:
		return s.account(to - 1)
	case scheme:
		return s.scheme(at, to)
	case awsSecret:
		return s.awsSecret(at, to)
	default: // an assignment
	}
	end := at + len(a.shape.pieces[0].literal)
	from, to, ok := s.assignment(r.kind, at, end)
	if c := s.text[at] | 0x20; !ok && r.kind == secret && (c == 's' || c == 'c') { // a secret, or credentials
		return s.awsSecret(at, end)
	}
	return from, to, ok
}

// matchLead matches a secret that ends at to and begins with the lead before at.
func (s *scanner) matchLead(by lead, at, to int) (int, int, bool) {
	from := s.runStart(by.of, at, by.most)
	if at-from < by.least || !s.atWordStart(from, false) || !hasVariety(s.text[from:to]) {
		return 0, 0, false
	}
	return from, to, true
}

// runStart returns the start of the run of a class that ends at at, at most most characters back. The letters and
// digits of an escape are not part of the run.
func (s *scanner) runStart(of class, at, most int) int {
	from := at
	for from > s.floor && at-from < most && is(s.text[from-1], of) {
		from--
	}
	s.steps += at - from
	for i := from; i < at && i < from+len("u0000"); i++ {
		if s.afterEscape(i + 1) {
			return i + 1
		}
	}
	return from
}

// jwt matches a JWT whose second part begins with the dot at at and ends at to. The signature may be missing.
func (s *scanner) jwt(at, to int) (int, int, bool) {
	from := s.runStart(path, at, unbounded)
	if at-from < 17 || s.text[from] != 'e' || s.text[from+1] != 'y' {
		return 0, 0, false
	}
	for to < len(s.text) && s.text[to] == '.' {
		end := s.run(path, to+1)
		if end == to+1 {
			break
		}
		to = end
	}
	return from, to, true
}

// userinfo matches the password of a URL whose authority begins at at: from the first colon to the last @. The user
// name stays, so that the account can be identified, unless it looks like a token itself.
func (s *scanner) userinfo(at int) (int, int, bool) {
	const longest = 512
	colon, last := -1, -1
	for i := at; i < len(s.text) && i < at+longest; i++ {
		switch c := s.text[i]; {
		case c == ':' && colon < 0:
			colon = i
		case c == '@':
			last = i
		case c <= ' ' || c == '"' || c == '\'' || c == '`' || c == '<' || c == '>' || c == '/' || c == '?' ||
			c == '#' ||
			c == '\\' && i+1 < len(s.text) && isSpaceEscape(s.text[i+1]):
			i = len(s.text)
		}
	}
	if last < 0 || !startsHost(s.text[last+1:]) {
		return 0, 0, false
	}
	if colon < 0 || colon > last {
		colon = last
	}
	user, given := s.text[at:colon], s.text[min(colon+1, last):last]
	switch {
	case isPlaceholder(s.text[at:last]) || len(given) > 0 && isPlaceholder(given):
		return 0, 0, false
	case len(user) >= 8 && statsOf(user).looksRandom(2.2) && (colon < last || len(user) >= 20):
		return at, last, true
	}
	return colon + 1, last, len(given) > 0
}

// startsHost reports whether text may begin with a host name, an IP literal or a template variable.
func startsHost(text []byte) bool {
	return len(text) > 0 && (is(text[0], alnum) || text[0] == '[' || text[0] == '$' || text[0] == '{' || text[0] == '%')
}

// account matches the user:password after a command-line flag, quoted or not. It includes the user: often the user is the
// key and the password is empty.
func (s *scanner) account(at int) (int, int, bool) {
	const longest = 256
	from := at
	var quote byte
	for ; from < len(s.text) && from < at+12 && oneOf(" =\\\"'", s.text[from]); from++ {
		if c := s.text[from]; c == '"' || c == '\'' {
			quote = c
		}
	}
	colon, to := -1, from
	for ; to < len(s.text) && to < from+longest; to++ {
		c := s.text[to]
		if c == '"' || c == '\\' || c == quote || quote == 0 && (c <= ' ' || c == '\'') || c < ' ' {
			break
		}
		if c == ':' && colon < 0 {
			colon = to
		}
	}
	if colon < from+1 || to-from < 6 || all(s.text[from:to], func(c byte) bool { return c == ':' || is(c, digit) }) {
		return 0, 0, false
	}
	user, given := s.text[from:colon], s.text[colon+1:to]
	if bytes.HasPrefix(given, []byte("/")) || isPlaceholder(user) || len(given) > 0 && isPlaceholder(given) ||
		len(given) == 0 && !statsOf(user).looksRandom(2.5) {
		return 0, 0, false
	}
	return from, to, true
}

// awsSecret matches a secret access key of AWS, which has no prefix: a word of exactly forty characters of base64 that
// looks random, after a mention of a secret, of AWS or of an access key id between at and to.
func (s *scanner) awsSecret(at, to int) (int, int, bool) {
	const reach, size = 96, 40
	if !s.atWordStart(at, false) {
		return 0, 0, false
	}
	for at := to; at+probe <= len(s.text) && at < to+reach; at += probeStride {
		if one, two := load16(s.text, at); below('+', one, two) != 0 {
			continue
		}
		from, end := s.runStart(b64, at, size), s.run(b64, at)
		if end-from != size || from > 0 && oneOf("_-", s.text[from-1]) || end < len(s.text) &&
			oneOf("_-=", s.text[end]) {
			continue
		}
		if l := statsOf(s.text[from:end]); l.looksRandom(4.2) && l.caseChanges >= 2 {
			return from, end, true
		}
	}
	return 0, 0, false
}

// scheme matches the token after an authentication scheme such as Bearer, which is between at and to.
func (s *scanner) scheme(at, to int) (int, int, bool) {
	if !s.atWordStart(at, false) {
		return 0, 0, false
	}
	const breaks = 4 // escaped ones that may precede the token
	from := s.run(before, to)
	for i := 0; i < breaks && from+1 < len(s.text) && s.text[from] == '\\' && oneOf("nrt", s.text[from+1]); i++ {
		from = s.run(before, from+2)
	}
	end := s.runTrimmed(bearer, from)
	given := s.text[from:end]
	if s.text[at]|0x20 == 'b' && s.text[at+1]|0x20 == 'a' { // Basic
		return from, end, len(given) >= 8 && isBasicCredentials(given)
	}
	return from, end, len(given) >= 16 && statsOf(given).looksRandom(2.8)
}

// isBasicCredentials reports whether text is base64 of user:password.
func isBasicCredentials(text []byte) bool {
	var plain [384]byte
	text = bytes.TrimRight(text, "=")
	text = text[:min(len(text), 512)]
	n, err := base64.RawStdEncoding.Decode(plain[:], text[:len(text)-len(text)%4])
	if err != nil {
		return false
	}
	colon := false
	for _, c := range plain[:n] {
		if c < ' ' || c == 0x7f {
			return false
		}
		colon = colon || c == ':'
	}
	return colon
}

// privateKey matches the PEM block whose BEGIN is between at and to.
func (s *scanner) privateKey(at, to int) (int, int, bool) {
	const dashes, kind, longest = "-----", "PRIVATE KEY", 128
	from := at - len("----")
	if from < s.floor || !s.literal(dashes, from, false) {
		return 0, 0, false
	}
	close := bytes.Index(s.text[to:min(len(s.text), to+longest)], []byte(dashes))
	if close < 0 || !bytes.Contains(s.text[to:to+close], []byte(kind)) {
		return 0, 0, false
	}
	body := to + close + len(dashes)
	if end := s.nextPEMEnd(body); end >= 0 && end <= s.run(armor, body) {
		last := end + len("-----END")
		if close = bytes.Index(s.text[last:min(len(s.text), last+longest)], []byte(dashes)); close >= 0 {
			return from, last + close + len(dashes), true
		}
	}
	return s.truncatedPEM(from, body)
}

// nextPEMEnd returns the offset of the next END line of a PEM block from at on, or -1. The last result is cached.
func (s *scanner) nextPEMEnd(at int) int {
	if s.pemEnd.from <= at && at <= s.pemEnd.to {
		return s.pemEnd.to
	}
	if s.pemEnd.to == unbounded {
		return -1
	}
	next := bytes.Index(s.text[at:], []byte("-----END"))
	if next < 0 {
		s.steps += len(s.text) - at
		s.pemEnd = span{at, unbounded}
		return -1
	}
	s.steps += next
	s.pemEnd = span{at, at + next}
	return at + next
}

// truncatedPEM matches a PEM block without END: the long words of base64 that follow, and a short one after them.
func (s *scanner) truncatedPEM(from, at int) (int, int, bool) {
	const long = 16
	to := -1
	for {
		for at < len(s.text) {
			c := s.text[at]
			if c == '\\' && at+1 < len(s.text) && isSpaceEscape(s.text[at+1]) {
				at += 2
				continue
			}
			if c != ' ' && c != '\n' && c != '\r' && c != '\t' && c != '\\' {
				break
			}
			at++
		}
		end := s.run(b64, at)
		for end < len(s.text) && s.text[end] == '=' {
			end++
		}
		if end-at < long {
			if to >= 0 && end > at {
				to = end
			}
			return from, to, to >= 0
		}
		at, to = end, end
	}
}
