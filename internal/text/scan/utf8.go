package scan

import "math/bits"

// validText reports whether text is UTF-8 without NUL. utf8.Valid is slow on text that is not mostly ASCII: it branches
// on the length of every character, and those branches are mispredicted.
func validText(text []byte) bool {
	for {
		text = text[asciiPrefix(text):]
		n, ok := utf8Prefix(text[:min(len(text), utf8Chunk)])
		if n == 0 || !ok {
			return ok && validTextSWAR(text)
		}
		text = text[n:]
	}
}

// utf8Chunk is how many bytes are validated as UTF-8, after a byte that is not ASCII, before ASCII is tried again.
const utf8Chunk = 16 * blockSize

// validTextSWAR is validText for processors without AVX2, block by block. Invariant: due marks the bytes at the start
// of the next block that must be continuation bytes.
func validTextSWAR(text []byte) bool {
	due, ok := uint64(0), true
	for ok && len(text) >= blockSize {
		if due == 0 {
			if text = text[asciiPrefix(text):]; len(text) < blockSize {
				break
			}
		}
		due, ok = validBlock((*[blockSize]byte)(text), text, due)
		text = text[blockSize:]
	}
	var last [blockSize]byte // the remaining bytes, padded with spaces: a character cut off at the end is then invalid
	for i := copy(last[:], text); i < blockSize; i++ {
		last[i] = ' '
	}
	if ok && (due != 0 || asciiPrefix(last[:]) == 0) {
		_, ok = validBlock(&last, text, due)
	}
	return ok
}

// asciiPrefixSWAR returns the length of the leading whole blocks that are ASCII without NUL. asciiPrefix is the same
// with SIMD where available, and about four times as fast.
func asciiPrefixSWAR(text []byte) (n int) {
	for ; len(text)-n >= blockSize; n += blockSize {
		p := text[n : n+blockSize : n+blockSize]
		a, b, c, d := word(p, 0), word(p, wordSize), word(p, 2*wordSize), word(p, 3*wordSize)
		e, f, g, h := word(p, 4*wordSize), word(p, 5*wordSize), word(p, 6*wordSize), word(p, 7*wordSize)
		if (a|b|c|d|e|f|g|h|(a-ones)|(b-ones)|(c-ones)|(d-ones)|(e-ones)|(f-ones)|(g-ones)|(h-ones))&highBits != 0 {
			break
		}
	}
	return n
}

// validBlock reports whether a block is UTF-8 without NUL. due has the high bit set for each byte of the block's first
// word that must continue a character begun before the block; next is the same for the following block. text begins
// with the bytes of the block, and may be shorter (padding) or longer.
func validBlock(part *[blockSize]byte, text []byte, due uint64) (next uint64, ok bool) {
	wrong := uint64(0)
	for at := 0; at < blockSize; at += wordSize {
		// Shifts move one bit of each byte to its high bit, where bits are compared by word-wide operations. Other bits
		// are ignored.
		w := word(part[:], at)
		six, five, four := w<<1, w<<2, w<<3
		first := w & six // a leading byte of two, three or four bytes
		three := first & five
		whole := three & four
		wrong |= (first<<8 | three<<16 | whole<<24 | due) ^ (w &^ six) // continuation bytes expected, and found
		wrong |= (w - ones) &^ w                                       // NUL
		due = (first>>56 | three>>48 | whole>>40) & highBits
		// E0, ED and F0 to F4 restrict their second byte, and C0, C1 and F5 to FF are never valid. These bytes are
		// checked one by one. CC and CD are selected too, as false positives.
		low := w<<6 | (w<<4 ^ w<<5)              // the high bit is clear for low nibbles 0, 1, C and D
		lone := three&^(low|(w<<4^w<<7)) | whole // excludes low nibbles 1 and C
		for picky := (first&^(five|four|low) | lone) & highBits; picky != 0; picky &= picky - 1 {
			i := at + bits.TrailingZeros64(picky)/wordSize
			if i+1 < len(text) && !validPair(text[i], text[i+1]) {
				return 0, false
			}
		}
	}
	return due, wrong&highBits == 0
}

// validPair reports whether a character may begin with these two bytes. The second byte is a continuation byte.
func validPair(first, second byte) bool {
	return secondByte[first].from <= second && second <= secondByte[first].to
}

// secondByte is the valid range of the second byte of a character, by its first byte (Unicode, table 3-7). It is empty
// for bytes that cannot begin a character of two or more bytes.
var secondByte = func() (of [256]struct{ from, to byte }) {
	for first := range of {
		of[first].from, of[first].to = 0xFF, 0
		if first >= 0xC2 && first <= 0xF4 {
			of[first].from, of[first].to = 0x80, 0xBF
		}
	}
	of[0xE0].from, of[0xF0].from = 0xA0, 0x90 // lower values are overlong encodings
	of[0xED].to, of[0xF4].to = 0x9F, 0x8F     // higher values are surrogates, or above U+10FFFF
	return of
}()
