package scan

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// SWAR constants. Eight bytes are loaded into one word, the first byte lowest. A search sets the high bit of each byte
// that it found.
const (
	wordSize      = 8
	blockSize     = 8 * wordSize
	shortWords    = 4 // how many words of a string are scanned before the long-string search starts
	ones          = 0x0101010101010101
	highBits      = 0x80 * ones
	quotes        = '"' * ones
	slashes       = '\\' * ones
	lowerCaseBits = 0x20 * ones
	braceOpens    = '{' * ones
	braceCloses   = '}' * ones
)

// word loads eight bytes at at. The full slice expression removes a bounds check for an empty result.
func word(text []byte, at int) uint64 {
	return binary.LittleEndian.Uint64(text[at : at+wordSize : at+wordSize])
}

// findQuoteOrBackslash sets the high bit of each byte that is a quote or a backslash. The lowest set bit is exact. Bits
// above it may be false positives, because the subtraction borrows across bytes.
func findQuoteOrBackslash(w uint64) uint64 {
	return (((w ^ quotes) - ones) | ((w ^ slashes) - ones)) &^ w & highBits
}

// nextStructural returns the offset of the next quote, bracket or brace from at on, or of the last fewer than eight
// bytes of the text, which it does not examine.
func nextStructural(text []byte, at int) int {
	for ; len(text)-at >= 4*wordSize; at += 4 * wordSize {
		p := text[at : at+4*wordSize : at+4*wordSize]
		if findStructural(word(p, 0))|findStructural(word(
			p, wordSize,
		))|findStructural(word(p, 2*wordSize))|findStructural(word(p, 3*wordSize)) != 0 {
			break
		}
	}
	for ; len(text)-at >= wordSize; at += wordSize {
		if found := findStructural(word(text, at)); found != 0 {
			return at + bits.TrailingZeros64(found)/wordSize
		}
	}
	return at
}

// findStructural sets the high bits of quotes, brackets and braces, as findQuoteOrBackslash does. In ASCII '[' and ']'
// differ from '{' and '}' in bit 0x20 only.
func findStructural(w uint64) uint64 {
	folded := w | lowerCaseBits
	return (((folded ^ braceOpens) - ones) | ((folded ^ braceCloses) - ones) | ((w ^ quotes) - ones)) &^ w & highBits
}

// indexQuoteGo returns the offset of the first quote, or -1.
func indexQuoteGo(text []byte) int { return bytes.IndexByte(text, '"') }

// stringEnd returns the offset after the string that begins at at, or -1 when it does not end. It uses three methods,
// each the fastest for its input: word by word over the first bytes, since most strings are short; then a search for
// the next quote; and block by block after an escaped quote, since more of them are likely to follow.
func stringEnd(text []byte, at int) int {
	next, end := scanShortString(text, at+1)
	if end == 0 {
		end = scanLongString(text, next, next)
	}
	return end
}

// scanShortString scans the first words of a string from at on. It returns the offset after the string as end, or 0 and
// the offset to continue from. The byte there is not escaped.
func scanShortString(text []byte, at int) (next, end int) {
	for range shortWords {
		if len(text)-at < wordSize {
			break
		}
		found := findQuoteOrBackslash(word(text, at))
		if found == 0 {
			at += wordSize
			continue
		}
		if at += bits.TrailingZeros64(found) / wordSize; text[at] == '"' {
			return 0, at + 1
		}
		at += 2
	}
	return min(at, len(text)), 0 // at is len(text)+1 when the last byte is a backslash
}

// scanLongString returns the offset after the string, or -1. The caller knows that text[from:at] has no quote and that
// the byte at from is not escaped. A quote ends the string when an even number of backslashes precede it. The backward
// count stops at from, and from moves forward past each escaped quote, so that each backslash is counted once.
func scanLongString(text []byte, from, at int) int {
	for at < len(text) {
		n := indexQuote(text[at:])
		if n < 0 {
			return -1
		}
		at += n
		slash := at
		for slash > from && text[slash-1] == '\\' {
			slash--
		}
		if at++; (at-1-slash)%2 == 0 {
			return at
		}
		var end int
		if at, end = scanEscapedBlocks(text, at); end > 0 {
			return end
		}
		from = at
	}
	return -1
}

// scanEscapedBlocks scans blocks from at on for as long as they contain quotes. It computes the bit mask of escaped
// bytes of a whole block without branches, since a branch for each quote would be mispredicted. It returns the offset
// after the string as end, or 0 and the offset to continue from. Neither the byte at at nor the byte at next is
// escaped.
//
// The method is that of Langdale and Lemire, Parsing Gigabytes of JSON per Second (2019).
func scanEscapedBlocks(text []byte, at int) (next, end int) {
	const even = 0x5555555555555555 // the even offsets of a block
	carry := uint64(0)              // 1 when the first byte of the block is escaped
	for len(text)-at >= blockSize {
		quote, slash := quoteMasks((*[blockSize]byte)(text[at:]))
		slash &^= carry
		// Adding the first bit of a run of ones to it carries to the bit after the run. A run of odd length escapes the
		// byte after it. That byte has an odd offset when the run began at an even one, and an even offset otherwise.
		first := slash &^ (slash << 1)
		behindEven := slash + first&even
		behindOdd, odd := bits.Add64(slash, first&^even, 0)
		escaped := (behindEven&^even|behindOdd&even)&^slash | carry
		if closing := quote &^ escaped; closing != 0 {
			return 0, at + bits.TrailingZeros64(closing) + 1
		}
		at, carry = at+blockSize, odd
		if quote == 0 {
			break
		}
	}
	return at + int(carry), 0
}

// quoteMasksSWAR returns one bit for each byte of a block: quote for quotes, slash for backslashes. Bit i is byte i.
func quoteMasksSWAR(text *[blockSize]byte) (quote, slash uint64) {
	for at := 0; at < blockSize; at += wordSize {
		w := word(text[:], at)
		low, ascii := w&^highBits, ^w&highBits
		quote = quote>>wordSize | moveMask((highBits-(low^quotes))&ascii)
		slash = slash>>wordSize | moveMask((highBits-(low^slashes))&ascii)
	}
	return quote, slash
}

// moveMask collects the high bits of eight bytes in the highest byte of the result, as PMOVMSKB does. The factor shifts
// each high bit to its own place, so that no two products overlap.
func moveMask(found uint64) uint64 { return found * 0x0002040810204081 &^ (1<<56 - 1) }
