package scan

import "math/bits"

// isText reports whether text is UTF-8 without NUL. utf8.Valid would tell the first of it, and is slow where much is not
// ASCII: it goes from character to character, and the processor guesses wrong where each ends.
func isText(text []byte) bool {
	for {
		text = text[ascii(text):]
		n, ok := texts(text[:min(len(text), stretch)])
		if n == 0 || !ok {
			return ok && isTextByWords(text)
		}
		text = text[n:]
	}
}

// stretch is for how long a text is not taken to be ASCII again where something in it is not.
const stretch = 16 * block

func isTextByWords(text []byte) bool {
	due, ok := uint64(0), true
	for ok && len(text) >= block {
		if due == 0 {
			if text = text[ascii(text):]; len(text) < block {
				break
			}
		}
		due, ok = runes((*[block]byte)(text), text, due)
		text = text[block:]
	}
	var last [block]byte // is filled up with what continues no character
	for i := copy(last[:], text); i < block; i++ {
		last[i] = ' '
	}
	if ok && (due != 0 || ascii(last[:]) == 0) {
		_, ok = runes(&last, text, due)
	}
	return ok
}

// asciiByWords is the length of the blocks that text begins with and that are ASCII without NUL. Where the processor can take a quarter of a
// block at once, ascii is the same and four times as fast.
func asciiByWords(text []byte) (n int) {
	for ; len(text)-n >= block; n += block {
		p := text[n : n+block : n+block]
		a, b, c, d := word(p, 0), word(p, size), word(p, 2*size), word(p, 3*size)
		e, f, g, h := word(p, 4*size), word(p, 5*size), word(p, 6*size), word(p, 7*size)
		if (a|b|c|d|e|f|g|h|(a-ones)|(b-ones)|(c-ones)|(d-ones)|(e-ones)|(f-ones)|(g-ones)|(h-ones))&tops != 0 {
			break
		}
	}
	return n
}

// runes reports whether a block is text, where due marks the bytes of its first word that must continue what began before
// it; it returns those of the next block. The block is what text begins with, and goes on behind it.
func runes(part *[block]byte, text []byte, due uint64) (next uint64, ok bool) {
	wrong := uint64(0)
	for at := 0; at < block; at += size {
		// Each bit of a byte is moved to its top, where they are weighed against one another; what the rest is does not matter.
		w := word(part[:], at)
		six, five, four := w<<1, w<<2, w<<3
		first := w & six // of two bytes or more
		three := first & five
		whole := three & four
		wrong |= (first<<8 | three<<16 | whole<<24 | due) ^ (w &^ six) // what must continue, and what does
		wrong |= (w - ones) &^ w                                       // NUL
		due = (first>>56 | three>>48 | whole>>40) & tops
		// Of E0, ED and F0 to F4 not all that would continue them may do so, and C0, C1 and F5 to FF begin nothing. CC and CD
		// look like them here.
		low := w<<6 | (w<<4 ^ w<<5)              // is clear in ?0, ?1, ?C and ?D
		lone := three&^(low|(w<<4^w<<7)) | whole // and here ?1 and ?C are not meant
		for picky := (first&^(five|four|low) | lone) & tops; picky != 0; picky &= picky - 1 {
			i := at + bits.TrailingZeros64(picky)/size
			if i+1 < len(text) && !mayFollow(text[i], text[i+1]) {
				return 0, false
			}
		}
	}
	return due, wrong&tops == 0
}

// mayFollow reports whether a character may begin with these two bytes, of which the second continues the first.
func mayFollow(first, second byte) bool {
	return seconds[first].from <= second && second <= seconds[first].to
}

var seconds = func() (of [256]struct{ from, to byte }) {
	for first := range of {
		of[first].from, of[first].to = 0xFF, 0
		if first >= 0xC2 && first <= 0xF4 {
			of[first].from, of[first].to = 0x80, 0xBF
		}
	}
	of[0xE0].from, of[0xF0].from = 0xA0, 0x90 // less is written in fewer bytes
	of[0xED].to, of[0xF4].to = 0x9F, 0x8F     // more is half of a pair, or beyond Unicode
	return of
}()
