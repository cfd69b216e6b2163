package scan

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// Eight bytes are looked at as one word, the first of them lowest, and what is found of a byte is told by its top bit.
const (
	size    = 8
	block   = 8 * size
	words   = 4 // of a string before a search pays
	ones    = 0x0101010101010101
	tops    = 0x80 * ones
	quotes  = '"' * ones
	slashes = '\\' * ones
	lowers  = 0x20 * ones
	opens   = '{' * ones
	closes  = '}' * ones
)

// word is that at at. It names the end of the slice so that the compiler need not care for one that is empty.
func word(text []byte, at int) uint64 {
	return binary.LittleEndian.Uint64(text[at : at+size : at+size])
}

// stops finds quotes and backslashes. The first that it tells is one; those behind it may be none, since a borrow goes
// from byte to byte.
func stops(w uint64) uint64 { return (((w ^ quotes) - ones) | ((w ^ slashes) - ones)) &^ w & tops }

// structure is where the next quote, bracket or brace is, from at on, or the last bytes of a text, which are too few to look at.
func structure(text []byte, at int) int {
	for ; len(text)-at >= 4*size; at += 4 * size {
		p := text[at : at+4*size : at+4*size]
		if structural(word(p, 0))|structural(word(p, size))|structural(word(p, 2*size))|structural(word(p, 3*size)) != 0 {
			break
		}
	}
	for ; len(text)-at >= size; at += size {
		if found := structural(word(text, at)); found != 0 {
			return at + bits.TrailingZeros64(found)/size
		}
	}
	return at
}

// structural finds quotes, brackets and braces, as stops does. Brackets are braces in upper case.
func structural(w uint64) uint64 {
	folded := w | lowers
	return (((folded ^ opens) - ones) | ((folded ^ closes) - ones) | ((w ^ quotes) - ones)) &^ w & tops
}

// quoteAt is where the first quote is, or -1.
func quoteAt(text []byte) int { return bytes.IndexByte(text, '"') }

// quoted is the end of the string that begins at at, or -1. There are three ways to go over one, each the fastest where it is
// taken: by the word over the beginning, since most strings are short; by a search for the next quote through prose, which has few;
// and by the block where that quote was an escaped one, since there are likely more.
func quoted(text []byte, at int) int {
	next, end := begun(text, at+1)
	if end == 0 {
		end = closed(text, next, next)
	}
	return end
}

// begun goes over the beginning of a string. It returns its end, or else 0 and where to go on, with a byte that is not escaped.
func begun(text []byte, at int) (next, end int) {
	for range words {
		if len(text)-at < size {
			break
		}
		found := stops(word(text, at))
		if found == 0 {
			at += size
			continue
		}
		if at += bits.TrailingZeros64(found) / size; text[at] == '"' {
			return 0, at + 1
		}
		at += 2
	}
	return min(at, len(text)), 0 // a backslash may be the last byte
}

// closed is the end of a string, or -1: from at on, where there is no quote between from and at. The byte at from is not escaped.
func closed(text []byte, from, at int) int {
	for at < len(text) {
		n := nextQuote(text[at:])
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
		if at, end = dense(text, at); end > 0 {
			return end
		}
		from = at
	}
	return -1
}

// dense passes the blocks from at on that have quotes in them. It does not jump from one to the next, where the processor
// would guess wrong each time, but finds all of a block by their bits. It returns the end of the string, or else 0 and where to go
// on. Neither the byte at at nor that to go on with is escaped.
func dense(text []byte, at int) (next, end int) {
	const even = 0x5555555555555555 // of the places in a block
	carry := uint64(0)              // 1 where the first byte of the block is escaped
	for len(text)-at >= block {
		quote, slash := marks((*[block]byte)(text[at:]))
		slash &^= carry
		// Adding its first bit to a run of ones moves that bit behind the run. A backslash that ends a run of odd length escapes what
		// is behind it, which is then at an odd place where the run began at an even one, and the other way round.
		first := slash &^ (slash << 1)
		behindEven := slash + first&even
		behindOdd, odd := bits.Add64(slash, first&^even, 0)
		escaped := (behindEven&^even|behindOdd&even)&^slash | carry
		if closing := quote &^ escaped; closing != 0 {
			return 0, at + bits.TrailingZeros64(closing) + 1
		}
		at, carry = at+block, odd
		if quote == 0 {
			break
		}
	}
	return at + int(carry), 0
}

// marksByWords are the places of quotes and of backslashes in a block.
func marksByWords(text *[block]byte) (quote, slash uint64) {
	for at := 0; at < block; at += size {
		w := word(text[:], at)
		low, ascii := w&^tops, ^w&tops
		quote = quote>>size | gather((tops-(low^quotes))&ascii)
		slash = slash>>size | gather((tops-(low^slashes))&ascii)
	}
	return quote, slash
}

// gather makes one byte, the last, of the top bits of eight: each is moved to its place there, and no two meet on the way.
func gather(found uint64) uint64 { return found * 0x0002040810204081 &^ (1<<56 - 1) }
