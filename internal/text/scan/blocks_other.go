//go:build !amd64

package scan

func nextQuote(text []byte) int { return quoteAt(text) }

func prose([]byte) int { return 0 }

func texts([]byte) (n int, ok bool) { return 0, true }

func ascii(text []byte) int { return asciiByWords(text) }

func marks(text *[block]byte) (quote, slash uint64) { return marksByWords(text) }
