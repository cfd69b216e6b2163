package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A kind is what the pattern of the vocabulary asks of a character.
type kind uint8

const (
	sign  kind = iota // neither of the others
	space             // but not the end of a line
	line              // the end of a line
	number
	upper
	lower
	letter // without case
	mark   // that combines with what is before it
)

func (k kind) begins() bool { return k == upper || k == letter || k == mark } // a word in capitals
func (k kind) ends() bool   { return k == lower || k == letter || k == mark } // and the rest of it
func (k kind) blank() bool  { return k == space || k == line }

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

func first(text string) (kind, int) {
	r, length := utf8.DecodeRuneInString(text)
	if length == 0 {
		return sign, 0
	}
	return kindOf(r), length
}

// while is the length of the longest beginning of text that is all of kinds that fit, at most so many of them.
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

// next is the length of the piece that text begins with: tokens do not reach from one piece into the next. It is the pattern of o200k_base, whose
// alternatives are tried in this order:
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
	if k == sign || k == space { // which a word may have before it
		start = n
	}
	for _, word := range []func(string) int{lowered, capitals} {
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

// lowered is the length of a word with a small letter or a letter without case in it, up to the last such letter in a row.
func lowered(text string) int {
	length, last := 0, 0
	for length < len(text) {
		k, n := first(text[length:])
		if !k.begins() {
			break
		}
		length += n
		if k.ends() {
			last = length
		}
	}
	if rest := while(text[length:], kind.ends, len(text)); rest > 0 {
		return length + rest
	}
	return last
}

func capitals(text string) int { return while(text, kind.begins, len(text)) }

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

// blanks is white space up to its last line end; or all of it but the last character, which goes with what follows.
func blanks(text string) int {
	length := while(text, kind.blank, len(text))
	if end := strings.LastIndexAny(text[:length], "\r\n"); end >= 0 {
		return end + 1
	}
	if _, last := utf8.DecodeLastRuneInString(text[:length]); length < len(text) && length > last {
		return length - last
	}
	return length
}
