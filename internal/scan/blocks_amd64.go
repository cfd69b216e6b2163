package scan

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
