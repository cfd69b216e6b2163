package sketch

import (
	"unicode"
	"unicode/utf8"
)

// words passes the shingles of a text to the sampler.
func words(text string, s *sampler) {
	var word, before uint64 // the hash of the word so far, and of the word before it; 0 where there is none
	for i := 0; i < len(text); {
		if b := text[i]; b < utf8.RuneSelf {
			i++
			if c := ascii[b]; c != 0 {
				word = extend(word, uint64(c))
			} else if word != 0 {
				before, word = s.word(before, word), 0
			}
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		i += size
		kind := kindOf(r)
		if kind == letter {
			word = extend(word, uint64(lower(r)))
			continue
		}
		if word != 0 {
			before, word = s.word(before, word), 0
		}
		if kind == sign {
			before = s.word(before, extend(0, uint64(r)))
		}
	}
	if word != 0 {
		before = s.word(before, word)
	}
	if s.filled == 0 && before != 0 {
		s.add(mix(before))
	}
}

func extend(word, c uint64) uint64 { return ((word + step) ^ c) * byteFactor }

// word adds the shingle of a word and the word before it, and returns the word's hash.
func (s *sampler) word(before, word uint64) uint64 {
	hash := mix(word)
	if before != 0 {
		s.add(mix(before*firstFactor + hash*nextFactor))
	}
	return hash
}

// ascii maps letters and digits to lower case, and characters between words to 0.
var ascii = func() (table [utf8.RuneSelf]byte) {
	for c := range table {
		switch {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'z':
			table[c] = byte(c)
		case 'A' <= c && c <= 'Z':
			table[c] = byte(c) + 'a' - 'A'
		}
	}
	return table
}()

// A kind is the role of a character in splitting words.
type kind int

const (
	letter kind = iota // part of a word
	gap                // between words
	sign               // a word of its own, as in scripts without spaces
)

// kindOf goes by ranges of its own, since those of the standard library grow with each version of Unicode. What is in
// none of them is a letter: a mark too, or a character yet to be named.
func kindOf(r rune) kind {
	switch {
	case r < 0x00C0:
		if r == 'ª' || r == 'µ' || r == 'º' {
			return letter
		}
		return gap
	case r == '×', r == '÷':
		return gap
	case r < 0x0E00:
		return letter
	case r < 0x0F00, 0x1000 <= r && r < 0x10A0, 0x1780 <= r && r < 0x1800: // Thai and Lao, Burmese, Khmer
		return sign
	case r < 0x2000:
		return letter
	case r < 0x2070, 0x2190 <= r && r < 0x2C00, 0x2E00 <= r && r < 0x2E80: // punctuation, arrows, lines, symbols
		return gap
	case 0x2E80 <= r && r < 0x3000: // radicals
		return sign
	case 0x3000 <= r && r < 0x3040, r == '・':
		return gap
	case 0x3040 <= r && r < 0xA000: // kana and ideographs
		return sign
	case 0xF900 <= r && r < 0xFB00, 0x20000 <= r && r < 0x40000: // more ideographs
		return sign
	case 0xFE00 <= r && r < 0xFE70, 0xFF00 <= r && r < 0xFF10,
		0xFF1A <= r && r < 0xFF21, 0xFF3B <= r && r < 0xFF41,
		0xFF5B <= r && r < 0xFF66, 0xFFE0 <= r && r < 0x10000,
		0x1F000 <= r && r < 0x1FB00: // forms of punctuation, emoji
		return gap
	}
	return letter
}

// lower is r in lower case, of the scripts that have one and are old enough for Unicode to have promised that it will
// not change: Latin, Greek, Cyrillic, Armenian.
func lower(r rune) rune {
	if r < 0x0590 || 0x1E00 <= r && r < 0x2000 {
		return unicode.ToLower(r)
	}
	return r
}
