package scan

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unicode/utf8"
)

// TestASCIIPrefixMatchesSWAR tries every byte value at every offset of some blocks, at every alignment.
func TestASCIIPrefixMatchesSWAR(t *testing.T) {
	eachWidth(t, checkASCIIPrefix)
}

func checkASCIIPrefix(t *testing.T) {
	buffer := bytes.Repeat([]byte{'a'}, 16+4*blockSize+20)
	for c := range 256 {
		for at := range 3*blockSize + 20 {
			text := buffer[at%16 : at%16+3*blockSize+20]
			text[at] = byte(c)
			got, want := asciiPrefix(text), asciiPrefixSWAR(text)
			if clean := 0 < c && c < 0x80; got != want || clean != (got == 3*blockSize) && at < 3*blockSize {
				t.Fatalf("%#x at %d: %d, SWAR %d", c, at, got, want)
			}
			text[at] = 'a'
		}
	}
	for n := range 2 * blockSize {
		if got := asciiPrefix(buffer[:n]); got != n/blockSize*blockSize {
			t.Errorf("of %d bytes %d", n, got)
		}
	}
}

func TestQuoteMasksMatchSWAR(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	letters := []byte(`""\\\\ab` + "\x00\xa2\xdc\xff")
	for range 100_000 {
		var text [blockSize]byte
		for i := range text {
			text[i] = letters[rng.IntN(len(letters))]
		}
		quote, slash := quoteMasks(&text)
		if q, s := quoteMasksSWAR(&text); q != quote || s != slash {
			t.Fatalf("%q: %x, %x, SWAR %x, %x", text, quote, slash, q, s)
		}
	}
}

// TestIndexQuoteFindsTheFirstQuote places quotes at many offsets of texts of every length, and after the end of the
// text.
func TestIndexQuoteFindsTheFirstQuote(t *testing.T) {
	eachWidth(t, func(t *testing.T) {
		buffer := bytes.Repeat([]byte{'a'}, 16+7*blockSize)
		for from := range 16 {
			for length := range 6 * blockSize {
				buffer[from+length] = '"' // after the end of the text
				text := buffer[from : from+length]
				if got := indexQuote(text); got != -1 {
					t.Fatalf("%d bytes without: %d", length, got)
				}
				for _, at := range []int{0, 1, length / 3, length / 2, length - 2, length - 1} {
					if at < 0 || at >= length {
						continue
					}
					text[at], text[length-1] = '"', '"'
					if got := indexQuote(text); got != at {
						t.Fatalf("of %d bytes the one at %d: %d", length, at, got)
					}
					text[at], text[length-1] = 'a', 'a'
				}
				buffer[from+length] = 'a'
			}
		}
		for c := range 256 {
			text := bytes.Repeat([]byte{byte(c)}, 6*blockSize)
			if got, want := indexQuote(text), bytes.IndexByte(text, '"'); got != want {
				t.Fatalf("%#x: %d, want %d", c, got, want)
			}
		}
	})
}

// TestUnquotedASCIIStopsWithinTwoBlocksOfTheFirstOtherByte checks both bounds: the result never includes a quote, NUL
// or byte that is not ASCII, and ends at most two blocks before it.
func TestUnquotedASCIIStopsWithinTwoBlocksOfTheFirstOtherByte(t *testing.T) {
	eachWidth(t, func(t *testing.T) {
		for c := range 256 {
			excluded := c == 0 || c == '"' || c >= utf8.RuneSelf
			for length := 0; length < 9*blockSize; length += 37 {
				for at := 0; at < length; at += 11 {
					text := bytes.Repeat([]byte{'a'}, length)
					text[at] = byte(c)
					n := unquotedASCII(text)
					if n%blockSize != 0 || n > length || excluded && n > at {
						t.Fatalf("%#x at %d of %d: %d", c, at, length, n)
					}
					least := length - 2*blockSize
					if excluded {
						least = at - 2*blockSize
					}
					if unquotedASCII(bytes.Repeat([]byte{'a'}, 4*blockSize)) > 0 && length >= 4*blockSize && n <= least {
						t.Fatalf("%#x at %d of %d: only %d", c, at, length, n)
					}
				}
			}
		}
	})
}
