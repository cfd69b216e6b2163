//go:build !purego

package scan

import "golang.org/x/sys/cpu"

// hasAVX2 selects the AVX2 code. The tests also run with it false.
var hasAVX2 = cpu.X86.HasAVX2

// minAVX2Length is the shortest text that is searched with AVX2. Below it the setup costs more than it saves.
const minAVX2Length = 4 * blockSize

// indexQuote is indexQuoteGo, with AVX2 for long texts.
func indexQuote(text []byte) int {
	clean := 0
	if hasAVX2 && len(text) >= minAVX2Length {
		if n := indexQuoteGo(text[:2*blockSize]); n >= 0 {
			return n
		}
		clean = 2*blockSize + blockSize*quotelessBlocks(&text[2*blockSize], len(text)/blockSize-2)
	}
	n := indexQuoteGo(text[clean:])
	if n < 0 {
		return -1
	}
	return clean + n
}

// quotelessBlocks returns how many leading blocks have no quote. It examines pairs of blocks, so that the result is
// even and may be one less than the exact number. It reads at most n blocks and requires AVX2.
//
//go:noescape
func quotelessBlocks(text *byte, n int) int

// unquotedASCII returns a length of leading whole blocks that are ASCII without NUL and without quotes. It returns 0
// without AVX2 and for texts shorter than minAVX2Length.
func unquotedASCII(text []byte) int {
	if !hasAVX2 || len(text) < minAVX2Length {
		return 0
	}
	return blockSize * unquotedASCIIBlocks(&text[0], len(text)/blockSize)
}

// unquotedASCIIBlocks returns how many leading blocks are ASCII without NUL and without quotes. It examines pairs of
// blocks, as quotelessBlocks does. It reads at most n blocks and requires AVX2.
//
//go:noescape
func unquotedASCIIBlocks(text *byte, n int) int

// asciiPrefix is asciiPrefixSWAR with SIMD.
func asciiPrefix(text []byte) int {
	if len(text) < blockSize {
		return 0
	}
	return blockSize * asciiBlocks(&text[0], len(text)/blockSize)
}

// asciiBlocks returns how many leading blocks, of blockSize bytes each, are ASCII without NUL. It reads at most n
// blocks. It uses AVX2 when hasAVX2 is set, and SSE2 otherwise.
//
//go:noescape
func asciiBlocks(text *byte, n int) int

// quoteMasks is quoteMasksSWAR with SSE2.
//
//go:noescape
func quoteMasks(text *[blockSize]byte) (quote, slash uint64)
