package redact

import (
	"bytes"
	"encoding/base64"
)

// accept goes on where the shape of an anchor matches at at, with the secret between from and to.
func (s *scanner) accept(a *anchor, at, from, to int) (int, int, bool) {
	r := &rules[a.rule]
	switch r.how {
	case token, random:
		if r.lead.most > 0 {
			return s.led(r.lead, at, to)
		}
		secret := s.text[from:to]
		return from, to, varied(secret) && (r.how == token || looks(secret).drawn(2.8))
	case jwt:
		return s.jwt(at, to)
	case privateKey:
		return s.privateKey(at, to)
	case userinfo:
		return s.userinfo(to)
	case account:
		return s.account(to - 1)
	case scheme:
		return s.scheme(at, to)
	default:
		return s.assignment(r.how, at, at+len(a.shape.pieces[0].literal))
	}
}

// led is the secret that ends at to, and begins with so many characters of a class before at.
func (s *scanner) led(by lead, at, to int) (int, int, bool) {
	from := s.back(by.of, at, by.most)
	if at-from < by.least || !s.begins(from, false) || !varied(s.text[from:to]) {
		return 0, 0, false
	}
	return from, to, true
}

// back is where the characters of a class that end at at begin, of which at most so many are wanted. The letters and
// digits of an escape are none of them.
func (s *scanner) back(of class, at, most int) int {
	from := at
	for from > s.floor && at-from < most && is(s.text[from-1], of) {
		from--
	}
	for i := from; i < at && i < from+len("u0000"); i++ {
		if s.escaped(i + 1) {
			return i + 1
		}
	}
	return from
}

// jwt is the token whose second part begins with the dot at at and ends at to. It may lack a signature.
func (s *scanner) jwt(at, to int) (int, int, bool) {
	from := s.back(path, at, unbounded)
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

// userinfo is the password of a URL whose authority begins at at: what is between the first colon and the last @ of it.
// The user stays, so that it can be told which account it was, unless it looks like a token itself.
func (s *scanner) userinfo(at int) (int, int, bool) {
	const longest = 512
	colon, last := -1, -1
	for i := at; i < len(s.text) && i < at+longest; i++ {
		switch c := s.text[i]; {
		case c == ':' && colon < 0:
			colon = i
		case c == '@':
			last = i
		case c <= ' ' || c == '"' || c == '\'' || c == '`' || c == '<' || c == '>' || c == '/' || c == '?' || c == '#' ||
			c == '\\' && i+1 < len(s.text) && breaks(s.text[i+1]):
			i = len(s.text)
		}
	}
	if last < 0 || !hosts(s.text[last+1:]) {
		return 0, 0, false
	}
	if colon < 0 || colon > last {
		colon = last
	}
	user, given := s.text[at:colon], s.text[min(colon+1, last):last]
	switch {
	case stands(s.text[at:last]) || len(given) > 0 && stands(given):
		return 0, 0, false
	case len(user) >= 8 && looks(user).drawn(2.2) && (colon < last || len(user) >= 20):
		return at, last, true
	}
	return colon + 1, last, len(given) > 0
}

// hosts reports whether a host may begin here.
func hosts(text []byte) bool {
	return len(text) > 0 && (is(text[0], alnum) || text[0] == '[' || text[0] == '$' || text[0] == '{' || text[0] == '%')
}

// account is the user:password that follows a flag, in quotes or not. It is taken out whole: often the user is the key, and
// there is no password.
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
	if bytes.HasPrefix(given, []byte("/")) || stands(user) || len(given) > 0 && stands(given) || len(given) == 0 && !looks(user).drawn(2.5) {
		return 0, 0, false
	}
	return from, to, true
}

// scheme is the token after a word such as Bearer, which stands between at and to.
func (s *scanner) scheme(at, to int) (int, int, bool) {
	if !s.begins(at, false) {
		return 0, 0, false
	}
	from := s.run(before, to)
	end := s.run(bearer, from)
	given := trimmed(s.text[from:end])
	end = from + len(given)
	if s.text[at]|0x20 == 'b' && s.text[at+1]|0x20 == 'a' { // Basic
		return from, end, len(given) >= 8 && pair(given)
	}
	return from, end, len(given) >= 16 && looks(given).drawn(2.8)
}

// pair reports whether text is base64 of a user, a colon and a password.
func pair(text []byte) bool {
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

// privateKey is the block whose BEGIN stands between at and to.
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
	if end := s.ending(body); end >= 0 && end <= s.run(armor, body) {
		last := end + len("-----END")
		if close = bytes.Index(s.text[last:min(len(s.text), last+longest)], []byte(dashes)); close >= 0 {
			return from, last + close + len(dashes), true
		}
	}
	return s.unended(from, body)
}

// ending is the next END of a block from at on, or -1.
func (s *scanner) ending(at int) int {
	if s.ends.from <= at && at <= s.ends.to {
		return s.ends.to
	}
	if s.ends.to == unbounded {
		return -1
	}
	next := bytes.Index(s.text[at:], []byte("-----END"))
	if next < 0 {
		s.ends = span{at, unbounded}
		return -1
	}
	s.ends = span{at, at + next}
	return at + next
}

// unended is a block that was cut off: as many long words of base64 as follow, and a short one at the end.
func (s *scanner) unended(from, at int) (int, int, bool) {
	const long = 16
	to := -1
	for {
		for at < len(s.text) {
			c := s.text[at]
			if c == '\\' && at+1 < len(s.text) && breaks(s.text[at+1]) {
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
