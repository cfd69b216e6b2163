package scan

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestASCIIIsFoundByBlocksAsItIsByWords goes over every byte, at every place of some blocks, at every alignment.
func TestASCIIIsFoundByBlocksAsItIsByWords(t *testing.T) {
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
