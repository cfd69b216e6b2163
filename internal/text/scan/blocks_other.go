//go:build !amd64 || purego

package scan

// Other processors have no assembly: they use the portable SWAR code, and report that they have no SIMD fast path. The
// tag purego selects this code on amd64 too, for its tests.

func indexQuote(text []byte) int { return indexQuoteGo(text) }

func unquotedASCII([]byte) int { return 0 }

func utf8Prefix([]byte) (n int, ok bool) { return 0, true }

func asciiPrefix(text []byte) int { return asciiPrefixSWAR(text) }

func quoteMasks(text *[blockSize]byte) (quote, slash uint64) { return quoteMasksSWAR(text) }
