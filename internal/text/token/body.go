package token

import (
	"bytes"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// Medium is what High counts for a picture, a sound or a file in a message, whatever its size; Low counts nothing for it. It is the
	// allowance of a large picture or of some minutes of sound with most models, and not of a book or of an hour.
	Medium = 3_000
	// Preamble is what High adds to every body for what no caller wrote: the system prompt that some templates begin with.
	Preamble = 100
)

// Body bounds the prompt of a request for chat, for embeddings or for a response, from its JSON as it came.
//
// High counts every string as the text that it encodes, and names, numbers and punctuation too, which are more than what a
// template puts around each message; it does not count how the JSON is laid out. A string where a message carries a
// medium by its address or by its data counts as a Medium instead of as text. The same string anywhere
// else is a text to the model, and counts as one.
//
// Low counts what is surely prompt: the text of messages, inputs and prompts, and nothing of their JSON, of tools or of settings.
//
// Names are taken to be unique in their object and to be written without escapes. What is not JSON gets bounds too, but they mean
// nothing.
func Body(json []byte) Bounds {
	s := scanner{json: json}
	for s.at < len(json) {
		switch json[s.at] {
		case '"':
			s.literal()
			continue
		case ' ', '\n', '\r', '\t':
			s.flush(s.at)
			s.fed++
		case '{':
			s.open(unknown)
		case '[':
			s.open(each)
		case '}', ']':
			s.close()
		case ',':
			s.naming = key(s.path) != each
		case ':':
			s.naming = false
		}
		s.at++
	}
	s.flush(len(json))
	if len(json) == 0 {
		return Bounds{}
	}
	return Bounds{Low: s.low, High: s.meter.Bounds().High + s.media*Medium + Preamble}
}

// Most is no lower than the High of any body of so many bytes that holds no Media: every byte counts as a token.
func Most(bytes int) int64 { return int64(bytes) + spare + Preamble }

// Media are the names of the members of a message that hold a medium, which may be more tokens than bytes.
func Media() (all []string) {
	for _, known := range names {
		if known.key == medium {
			all = append(all, known.name)
		}
	}
	return all
}

// A key is a name in an object that says something of the strings below it.
type key uint8

const (
	unknown key = iota + 1
	each        // stands for the place in an array
	messages
	input
	prompt
	content
	text
	medium // what holds a medium, or the address of one
	inner  // what does so inside a medium
)

// A path is the keys from the outermost container to the innermost, which is in the low byte: an element of a list that the outermost object
// calls messages is at messages<<8 | each. Below so many levels it stays what it was above, and is then neither that of a text nor that of a medium.
type path uint64

const (
	levels = 6 // that a path tells: no text is at the last of them, and no medium is deeper

	ofMessage = path(messages)<<16 | path(each)<<8 | path(content)
	ofInput   = path(input)<<8 | path(each)
)

var (
	names = [...]struct {
		name string
		key  key
	}{
		{"messages", messages},
		{"input", input},
		{"prompt", prompt},
		{"content", content},
		{"text", text},
		{"image_url", medium},
		{"video_url", medium},
		{"input_audio", medium},
		{"file_url", medium},
		{"file_data", medium},
		{"file_id", medium},
		{"url", inner},
		{"data", inner},
	}
	texts = [...]path{
		ofMessage,
		ofMessage<<16 | path(each)<<8 | path(text),
		path(input),
		ofInput,
		ofInput<<8 | path(content),
		ofInput<<24 | path(content)<<16 | path(each)<<8 | path(text),
		path(prompt),
		path(prompt)<<8 | path(each),
	}
)

// A scanner walks over a body once. What it passes is fed to its meter as late as possible, so that long stretches are fed as they are.
type scanner struct {
	json   []byte
	at     int
	fed    int // what is before it was fed, or is not to be counted
	path   path
	depth  int
	naming bool // the next string is a name
	meter  Meter
	low    int64
	media  int64
}

func (s *scanner) flush(to int) {
	s.meter.Add(s.json[s.fed:to])
	s.fed = to
}

func (s *scanner) open(k key) {
	if s.depth < levels {
		s.path = s.path<<8 | path(k)
	}
	s.depth++
	s.naming = k != each
}

func (s *scanner) close() {
	if s.depth == 0 {
		return
	}
	s.depth--
	if s.depth < levels {
		s.path >>= 8
	}
}

// literal passes the string that begins here.
func (s *scanner) literal() {
	from := s.at + 1
	to, escaped := s.end(from)
	s.at = min(to+1, len(s.json))
	switch {
	case s.naming:
		s.path = s.path&^0xff | path(named(s.json[from:to]))
	case s.isMedium():
		s.flush(from - 1)
		s.fed = s.at
		s.media++
		return
	case s.isText():
		s.flush(from)
		before := s.meter.seen()
		s.feed(to)
		s.low += s.meter.seen() - before
		return
	}
	if escaped {
		s.flush(from)
		s.feed(to)
	}
}

// end is where the string that begins at from is closed, and whether there is an escape in it.
func (s *scanner) end(from int) (to int, escaped bool) {
	for {
		quote := bytes.IndexByte(s.json[from:], '"')
		if quote < 0 {
			return len(s.json), true
		}
		part := s.json[from : from+quote]
		escaped = escaped || bytes.IndexByte(part, '\\') >= 0
		if slashes := len(part) - len(bytes.TrimRight(part, `\`)); slashes%2 == 0 {
			return from + quote, escaped
		}
		from += quote + 1
	}
}

// feed feeds the inside of a string up to its end, as the text that it encodes.
func (s *scanner) feed(to int) {
	for {
		slash := bytes.IndexByte(s.json[s.fed:to], '\\')
		if slash < 0 {
			s.flush(to)
			return
		}
		s.flush(s.fed + slash)
		r, length := unescape(s.json[s.fed:to])
		var encoded [utf8.UTFMax]byte
		s.meter.Add(encoded[:utf8.EncodeRune(encoded[:], r)])
		s.fed += length
	}
}

// unescape reads the escape that in begins with. What is no escape stands for itself.
func unescape(in []byte) (r rune, length int) {
	if len(in) < 2 {
		return '\\', len(in)
	}
	if in[1] != 'u' {
		if short := strings.IndexByte("bfnrt", in[1]); short >= 0 {
			return rune("\b\f\n\r\t"[short]), 2
		}
		return rune(in[1]), 2
	}
	r, ok := codeUnit(in)
	if !ok {
		return 'u', 2
	}
	if utf16.IsSurrogate(r) {
		if low, ok := codeUnit(in[6:]); ok {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				return pair, 12
			}
		}
	}
	return r, 6
}

// codeUnit reads \uXXXX.
func codeUnit(in []byte) (unit rune, ok bool) {
	if len(in) < 6 || in[0] != '\\' || in[1] != 'u' {
		return 0, false
	}
	for _, digit := range in[2:6] {
		switch letter := digit | 0x20; {
		case '0' <= digit && digit <= '9':
			unit = unit<<4 | rune(digit-'0')
		case 'a' <= letter && letter <= 'f':
			unit = unit<<4 | rune(letter-'a'+10)
		default:
			return 0, false
		}
	}
	return unit, true
}

func named(name []byte) key {
	for _, known := range names {
		if string(name) == known.name {
			return known.key
		}
	}
	return unknown
}

func (s *scanner) isText() bool {
	for _, known := range texts {
		if s.path == known {
			return true
		}
	}
	return false
}

// isMedium reports whether the string that is being passed is the medium of a part of a message.
func (s *scanner) isMedium() bool {
	own, outer := key(s.path), key(s.path>>8)
	if own != medium && (own != inner || outer != medium) {
		return false
	}
	return s.under(ofMessage<<8|path(each), 4) || s.under(ofInput, 2)
}

// under reports whether the path leads through prefix, which is so many levels long, and further. It does not where the depth is
// more than the path tells.
func (s *scanner) under(prefix path, long int) bool {
	return s.depth > long && s.path>>(8*(s.depth-long)) == prefix
}
