package token

import (
	"bytes"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// Medium is the number of tokens that High adds for an image, audio or file in a message, whatever its size; Low
	// adds nothing. It covers a large image or some minutes of audio with most models, but not a book or an hour of
	// audio.
	Medium = 3_000
	// Preamble is the number of tokens that High adds to every body for the system prompt of some chat templates.
	Preamble = 100
)

// Body bounds the prompt tokens of a chat, embeddings or responses request from its JSON.
//
// High counts every string as the text that it encodes, and also names, numbers and punctuation, which are more than a
// chat template adds to each message. It does not count white space between tokens. A URL or data string of a medium in
// a message counts as Medium. The same string anywhere else counts as text.
//
// Low counts only the text of messages, inputs and prompts. It ignores JSON syntax, tools and settings.
//
// Names are assumed to be unique in their object and written without escapes. Bounds of invalid JSON are meaningless.
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
	return Bounds{Low: s.low, High: s.meter.Bounds().High + s.media*Medium + Preamble, Media: s.media}
}

// Most returns an upper bound of High for any body of this many bytes without Media: every byte counts as a token.
func Most(bytes int) int64 { return int64(bytes) + spare + Preamble }

// Media returns the names of message members that hold a medium, which can be more tokens than bytes.
func Media() (all []string) {
	for _, known := range names {
		if known.key == medium {
			all = append(all, known.name)
		}
	}
	return all
}

// A key is a member name that determines how the strings below it are counted.
type key uint8

const (
	unknown key = iota + 1
	each        // an array element
	messages
	input
	prompt
	content
	text
	medium // holds a medium or its URL
	inner  // holds the data or URL inside a medium
)

// A path holds the keys from the outermost container to the innermost, one byte each, the innermost lowest: an element
// of the top-level array "messages" has the path messages<<8 | each. Below levels containers the path no longer
// changes; such a path is never that of a text or a medium.
type path uint64

const (
	levels = 6 // the depth that a path records; no text is at the last level, and no medium is deeper

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

// A scanner makes one pass over a body. It feeds text to its meter as late as possible, so that long runs are fed in
// one call.
type scanner struct {
	json   []byte
	at     int
	fed    int // json[:fed] was fed to the meter, or is not counted
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

// literal handles the string that begins at s.at.
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

// end returns the offset of the closing quote of the string whose text begins at from, and whether it has escapes.
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

// feed feeds the rest of a string up to to, with escapes decoded.
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

// unescape decodes the escape at the start of in. An invalid escape stands for its own character.
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

// codeUnit decodes \uXXXX.
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

// isMedium reports whether the current string is a medium in a message part.
func (s *scanner) isMedium() bool {
	own, outer := key(s.path), key(s.path>>8)
	if own != medium && (own != inner || outer != medium) {
		return false
	}
	return s.under(ofMessage<<8|path(each), 4) || s.under(ofInput, 2)
}

// under reports whether the path continues below prefix, which has long levels. It is false when the depth exceeds
// levels.
func (s *scanner) under(prefix path, long int) bool {
	return s.depth > long && s.path>>(8*(s.depth-long)) == prefix
}
