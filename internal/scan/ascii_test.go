package scan

import (
	"bytes"
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
