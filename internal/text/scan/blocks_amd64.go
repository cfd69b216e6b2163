package scan

import "golang.org/x/sys/cpu"

// wide says that the processor has AVX2.
var wide = cpu.X86.HasAVX2

// far is how long a text is in which a search by pairs of blocks pays.
const far = 4 * block

// nextQuote is quoteAt.
func nextQuote(text []byte) int {
	clean := 0
	if wide && len(text) >= far {
		if n := quoteAt(text[:2*block]); n >= 0 {
			return n
		}
		clean = 2*block + block*quotelessBlocks(&text[2*block], len(text)/block-2)
	}
	n := quoteAt(text[clean:])
	if n < 0 {
		return -1
	}
	return clean + n
}

// quotelessBlocks is how many of the next blocks have no quote in them, but for a last one: they are looked at in pairs. It needs AVX2, and reads
// all n at most.
//
//go:noescape
func quotelessBlocks(text *byte, n int) int

// prose is how long the blocks are that text begins with and that are ASCII without NUL and without quotes; 0 where it is not worth a look.
func prose(text []byte) int {
	if !wide || len(text) < far {
		return 0
	}
	return block * proseBlocks(&text[0], len(text)/block)
}

// proseBlocks is how many of the next blocks are such, but for a last one: they are looked at in pairs. It needs AVX2, and reads all n at most.
//
//go:noescape
func proseBlocks(text *byte, n int) int

// ascii is asciiByWords.
func ascii(text []byte) int {
	if len(text) < block {
		return 0
	}
	return block * asciiBlocks(&text[0], len(text)/block)
}

// asciiBlocks is how many of the next blocks, of block bytes each, are ASCII without NUL. It reads all n at most.
//
//go:noescape
func asciiBlocks(text *byte, n int) int

// marks is marksByWords.
//
//go:noescape
func marks(text *[block]byte) (quote, slash uint64)
