package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A kind is a class of characters that the vocabulary's pattern distinguishes.
type kind uint8

const (
	sign  kind = iota // none of the others
	space             // white space other than a line end
	line              // \r or \n
	number
	upper
	lower
	letter // a letter without case
	mark   // a combining mark
)

func (k kind) isUpper() bool { return k == upper || k == letter || k == mark } // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
func (k kind) isLower() bool { return k == lower || k == letter || k == mark } // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
func (k kind) isSpace() bool { return k == space || k == line }                // \s

func kindOf(r rune) kind {
	switch {
	case r == '\r' || r == '\n':
		return line
	case unicode.IsLower(r):
		return lower
	case unicode.IsUpper(r) || unicode.IsTitle(r):
		return upper
	case unicode.IsLetter(r):
		return letter
	case unicode.IsSpace(r):
		return space
	case unicode.IsNumber(r):
		return number
	case unicode.IsMark(r):
		return mark
	}
	return sign
}

// onDecode, when set by a test, is called for every character that is decoded.
var onDecode func()

// first returns the kind of the first character and its length in bytes.
func first(text string) (kind, int) {
	if onDecode != nil {
		onDecode()
	}
	r, length := utf8.DecodeRuneInString(text)
	if length == 0 {
		return sign, 0
	}
	return kindOf(r), length
}

// while returns the length of the longest prefix of text whose characters all fit, at most most characters.
func while(text string, fit func(kind) bool, most int) (length int) {
	for ; most > 0 && length < len(text); most-- {
		k, n := first(text[length:])
		if !fit(k) {
			break
		}
		length += n
	}
	return length
}

// next returns the length of the first piece of text. No token spans two pieces. It implements the pattern of
// o200k_base, whose alternatives are tried in this order:
//
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	\p{N}{1,3}
//	 ?[^\s\p{L}\p{N}]+[\r\n/]*
//	\s*[\r\n]+
//	\s+(?!\S)
//	\s+
func next(text string) int {
	k, n := first(text)
	start := 0
	if k == sign || k == space { // a word may begin with one such character
		start = n
	}
	for _, word := range []func(string) int{lowerWord, upperWord} {
		if length := word(text[start:]); length > 0 {
			return start + length + contraction(text[start+length:])
		}
	}
	switch k {
	case number:
		return while(text, func(k kind) bool { return k == number }, 3)
	case space, line:
		if length := signs(strings.TrimPrefix(text, " ")); length > 0 && text[0] == ' ' {
			return 1 + length
		}
		return blanks(text)
	default:
		return signs(text)
	}
}

// lowerWord matches the first alternative without its optional first character and contraction, and returns the length.
func lowerWord(text string) int {
	length, last := 0, 0
	for length < len(text) {
		k, n := first(text[length:])
		if !k.isUpper() {
			break
		}
		length += n
		if k.isLower() {
			last = length
		}
	}
	if rest := while(text[length:], kind.isLower, len(text)); rest > 0 {
		return length + rest
	}
	return last
}

// upperWord matches the second alternative. After lowerWord failed, no lower-case letter follows the capitals.
func upperWord(text string) int { return while(text, kind.isUpper, len(text)) }

func contraction(text string) int {
	for _, ending := range []string{"'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'ſ"} {
		if len(text) >= len(ending) && strings.EqualFold(text[:len(ending)], ending) {
			return len(ending)
		}
	}
	return 0
}

func signs(text string) int {
	length := while(text, func(k kind) bool { return k == sign || k == mark }, len(text))
	if length == 0 {
		return 0
	}
	rest := strings.TrimLeft(text[length:], "\r\n/")
	return len(text) - len(rest)
}

// blanks matches the last three alternatives: white space up to its last line end, or else all but its last character,
// which belongs to the piece that follows.
func blanks(text string) int {
	length := while(text, kind.isSpace, len(text))
	if end := strings.LastIndexAny(text[:length], "\r\n"); end >= 0 {
		return end + 1
	}
	if _, last := utf8.DecodeLastRuneInString(text[:length]); length < len(text) && length > last {
		return length - last
	}
	return length
}
