package scan

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unicode/utf8"
)

// TestTextIsValidatedAcrossBlockBoundaries tries every two bytes, followed by boundary values, across the ends of
// vectors and blocks, and compares with utf8.Valid.
func TestTextIsValidatedAcrossBlockBoundaries(t *testing.T) {
	edges := []byte{0x00, 0x01, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC2, 0xE1, 0xF1, 0xFF}
	eachWidth(t, func(t *testing.T) {
		buffer := bytes.Repeat([]byte{'a'}, 4*blockSize)
		for _, at := range []int{blockSize/2 - 1, 2*blockSize - 2, 4*blockSize - 4} {
			buffer[0] = 0xC3 // so that the rest is not skipped as ASCII
			buffer[1] = 0xA9
			for first := range 256 {
				for second := range 256 {
					for i := range 2 {
						at3, at4 := edges[(first+5*second+i)%len(edges)], edges[(first+second+3*i)%len(edges)]
						buffer[at], buffer[at+1], buffer[at+2], buffer[at+3] = byte(first), byte(second), at3, at4
						if got, want := validText(buffer), utf8.Valid(buffer) && bytes.IndexByte(buffer, 0) < 0; got != want {
							t.Fatalf("% x at %d: %v", buffer[at:at+4], at, got)
						}
					}
				}
			}
			copy(buffer[at:], "aaaa")
		}
	})
}

// TestTextOfAnyLengthIsValidated truncates texts at every offset and changes single bytes.
func TestTextOfAnyLengthIsValidated(t *testing.T) {
	characters := []string{"a", "z ", "\x01", "é", "߿", "ࠀ", "—", "퟿", "", "😀", "\U0010FFFF", "日本", "Ж"}
	eachWidth(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(5, 6))
		for range 300 {
			var text []byte
			for len(text) < 1+rng.IntN(3*utf8Chunk) {
				text = append(text, characters[rng.IntN(len(characters))]...)
				if rng.IntN(20) == 0 {
					text = append(text, bytes.Repeat([]byte{'a'}, rng.IntN(3*blockSize))...)
				}
			}
			for cut := max(0, len(text)-2*blockSize); cut <= len(text); cut++ {
				if got, want := validText(text[:cut]), utf8.Valid(text[:cut]); got != want {
					t.Fatalf("%d bytes, to %q: %v", cut, text[max(0, cut-8):cut], got)
				}
			}
			for range 50 {
				at := rng.IntN(len(text))
				was := text[at]
				text[at] = byte(rng.IntN(256))
				if got, want := validText(text), utf8.Valid(text) && bytes.IndexByte(text, 0) < 0; got != want {
					t.Fatalf("%#x at %d of %d: %v", text[at], at, len(text), got)
				}
				text[at] = was
			}
		}
	})
}
