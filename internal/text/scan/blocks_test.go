package scan

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unicode/utf8"
)

// TestASCIIIsFoundByBlocksAsItIsByWords goes over every byte, at every place of some blocks, at every alignment.
func TestASCIIIsFoundByBlocksAsItIsByWords(t *testing.T) {
	eachWidth(t, sameASCII)
}

func sameASCII(t *testing.T) {
	room := bytes.Repeat([]byte{'a'}, 16+4*block+20)
	for c := range 256 {
		for at := range 3*block + 20 {
			text := room[at%16 : at%16+3*block+20]
			text[at] = byte(c)
			got, want := ascii(text), asciiByWords(text)
			if clean := 0 < c && c < 0x80; got != want || clean != (got == 3*block) && at < 3*block {
				t.Fatalf("%#x at %d: %d, by words %d", c, at, got, want)
			}
			text[at] = 'a'
		}
	}
	for n := range 2 * block {
		if got := ascii(room[:n]); got != n/block*block {
			t.Errorf("of %d bytes %d", n, got)
		}
	}
}

func TestMarksAreFoundByBlocksAsTheyAreByWords(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	letters := []byte(`""\\\\ab` + "\x00\xa2\xdc\xff")
	for range 100_000 {
		var text [block]byte
		for i := range text {
			text[i] = letters[rng.IntN(len(letters))]
		}
		quote, slash := marks(&text)
		if q, s := marksByWords(&text); q != quote || s != slash {
			t.Fatalf("%q: %x, %x, by words %x, %x", text, quote, slash, q, s)
		}
	}
}

// The next quote is found wherever it is, whatever stands behind it and around the text.
func TestTheNextQuoteIsFoundWhereverItIs(t *testing.T) {
	eachWidth(t, func(t *testing.T) {
		room := bytes.Repeat([]byte{'a'}, 16+7*block)
		for from := range 16 {
			for length := range 6 * block {
				room[from+length] = '"' // is not of the text
				text := room[from : from+length]
				if got := nextQuote(text); got != -1 {
					t.Fatalf("%d bytes without: %d", length, got)
				}
				for _, at := range []int{0, 1, length / 3, length / 2, length - 2, length - 1} {
					if at < 0 || at >= length {
						continue
					}
					text[at], text[length-1] = '"', '"'
					if got := nextQuote(text); got != at {
						t.Fatalf("of %d bytes the one at %d: %d", length, at, got)
					}
					text[at], text[length-1] = 'a', 'a'
				}
				room[from+length] = 'a'
			}
		}
		for c := range 256 {
			text := bytes.Repeat([]byte{byte(c)}, 6*block)
			if got, want := nextQuote(text), bytes.IndexByte(text, '"'); got != want {
				t.Fatalf("%#x: %d, want %d", c, got, want)
			}
		}
	})
}

// Prose ends, but for a pair of blocks, with the first byte that is none, whichever it is and wherever.
func TestProseEndsWithTheFirstByteThatIsNone(t *testing.T) {
	eachWidth(t, func(t *testing.T) {
		for c := range 256 {
			none := c == 0 || c == '"' || c >= utf8.RuneSelf
			for length := 0; length < 9*block; length += 37 {
				for at := 0; at < length; at += 11 {
					text := bytes.Repeat([]byte{'a'}, length)
					text[at] = byte(c)
					n := prose(text)
					if n%block != 0 || n > length || none && n > at {
						t.Fatalf("%#x at %d of %d: %d", c, at, length, n)
					}
					least := length - 2*block
					if none {
						least = at - 2*block
					}
					if prose(bytes.Repeat([]byte{'a'}, 4*block)) > 0 && length >= 4*block && n <= least {
						t.Fatalf("%#x at %d of %d: only %d", c, at, length, n)
					}
				}
			}
		}
	})
}
