package redact

import "bytes"

// An operand is what an assignment gives to a name.
type operand struct {
	from   int
	quote  byte // that it stands in, or 0
	tight  bool // it follows the operator at once, as in NAME=value
	comma  bool // it only follows the name in a list
	scheme bool // a word such as Bearer came before it
}

// assignment is the value that is given to what the word between at and end names.
func (s *scanner) assignment(to how, at, end int) (int, int, bool) {
	o, ok := s.operand(end, to != key)
	if !ok || to == key && s.public(at) {
		return 0, 0, false
	}
	last, ok := s.extent(o, to)
	if o.quote != 0 && (to == password || ok && to != key && s.odd(last)) {
		if end, closed := s.closed(o); closed {
			last, ok = end, true
		} else if to == password {
			o.quote, o.tight = 0, false
		}
	}
	if !ok {
		return 0, 0, false
	}
	return o.from, last, worth(to, s.text[o.from:last], o)
}

// odd reports whether what stands in quotes goes on at at, with a character that few tokens have.
func (s *scanner) odd(at int) bool {
	return at < len(s.text) && s.text[at] > ' ' && !oneOf("'\"`\\,;)", s.text[at])
}

// operand finds what is assigned to the name that goes on at at, in any of the ways in which code, headers, settings
// and JSON do that; in prose too, if it may.
func (s *scanner) operand(at int, prose bool) (operand, bool) {
	const gap = 24
	if prose && s.literal(" is ", at, false) {
		return s.opened(at+len(" is "), false), true
	}
	end := at
	for end < len(s.text) && end < at+gap && (is(s.text[end], name) || s.text[end] == ' ' || s.text[end] == '\t' || s.text[end] == '.') {
		end++
	}
	if about(s.text[at:end]) {
		return operand{}, false
	}
	end = s.blank(end, "'\"`]")
	const other = "value" // <add key="password" value="…"/> and {"name": "password", "value": "…"}
	if s.literal(other, end, true) {
		end = s.blank(end+len(other), "'\"`")
	}
	op := end
	for end < len(s.text) && end < op+3 && (s.text[end] == '=' || s.text[end] == ':' || s.text[end] == '>' || s.text[end] == '|' || s.text[end] == '?' || s.text[end] == ',') {
		end++
	}
	if end == op {
		return operand{}, false
	}
	o := s.opened(end, true)
	o.comma = s.text[op] == ','
	if o.comma && o.quote != 0 && s.literal(other, o.from, true) {
		if colon := s.blank(o.from+len(other), "'\"`"); colon < len(s.text) && s.text[colon] == ':' {
			o = s.opened(colon+1, true) // no longer only a list
		}
	}
	for _, scheme := range []string{"bearer ", "basic ", "token ", "apikey ", "api-token "} {
		if s.literal(scheme, o.from, true) {
			o.from, o.tight, o.scheme = o.from+len(scheme), false, true
		}
	}
	return o, true
}

// opened is the operand behind an operator that ends at at.
func (s *scanner) opened(at int, tight bool) operand {
	o := operand{from: s.blank(at, "'\"`=")}
	for i := o.from - 1; i >= at && o.quote == 0; i-- {
		if c := s.text[i]; c == '"' || c == '\'' || c == '`' {
			o.quote = c
		}
	}
	o.tight = tight && (o.from == at || o.quote != 0)
	return o
}

// blank is the end of the spaces and of some other characters from at on, if they are few.
func (s *scanner) blank(at int, others string) int {
	const most = 12
	end := at
	for end < len(s.text) && end < at+most {
		switch c := s.text[end]; {
		case c == '\\' && end+1 < len(s.text) && breaks(s.text[end+1]):
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

// extent is where an operand ends, if it is one word.
func (s *scanner) extent(o operand, to how) (int, bool) {
	if s.shut(o) {
		return 0, false
	}
	in := value
	if to == password {
		in = visible
	}
	end := s.run(in, o.from)
	if o.quote == 0 {
		end = o.from + len(trimmed(s.text[o.from:end]))
	}
	if end == len(s.text) {
		return end, true
	}
	return end, !oneOf("([{", s.text[end])
}

// shut reports whether there is no operand: the quote before it did not open, but close.
func (s *scanner) shut(o operand) bool {
	return o.from == len(s.text) || oneOf(":,}]", s.text[o.from])
}

// closed is the end of a password in quotes.
func (s *scanner) closed(o operand) (int, bool) {
	const longest = 256
	if s.shut(o) {
		return 0, false
	}
	for i := o.from; i < len(s.text) && i < o.from+longest; i++ {
		switch c := s.text[i]; {
		case c == o.quote:
			return o.from + len(bytes.TrimRight(s.text[o.from:i], `\`)), true
		case c <= ' ' || c == '"' || c == '\\' && i+1 < len(s.text) && breaks(s.text[i+1]):
			return 0, false
		}
	}
	return 0, false
}

func trimmed(text []byte) []byte { return bytes.TrimRight(text, ".:?") }

// about reports whether the rest of a name says that it names something about a secret, and no secret.
func about(rest []byte) bool {
	rest = bytes.TrimRight(rest, " \t")
	n := len(rest)
	for n > 0 && is(rest[n-1], alnum) {
		n--
	}
	if n > 0 && n < len(rest)-2 && is(rest[len(rest)-2], up) && is(rest[len(rest)-1], letter) {
		n = len(rest) - 2 // the Id of keyId
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

// public reports whether the key that is named at at is said to be public.
func (s *scanner) public(at int) bool {
	const what = "public"
	return at > len(what) && (s.literal(what, at-len(what)-1, true) || s.literal(what, at-len(what), true))
}
