package scan

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unicode/utf8"
)

// TestTextIsToldAtEveryEdge has every two bytes, with all that matters behind them, across the places where one look ends and the next begins.
func TestTextIsToldAtEveryEdge(t *testing.T) {
	edges := []byte{0x00, 0x01, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC2, 0xE1, 0xF1, 0xFF}
	eachWidth(t, func(t *testing.T) {
		room := bytes.Repeat([]byte{'a'}, 4*block)
		for _, at := range []int{block/2 - 1, 2*block - 2, 4*block - 4} {
			room[0] = 0xC3 // so that what follows is not skipped as ASCII
			room[1] = 0xA9
			for first := range 256 {
				for second := range 256 {
					for i := range 2 {
						at3, at4 := edges[(first+5*second+i)%len(edges)], edges[(first+second+3*i)%len(edges)]
						room[at], room[at+1], room[at+2], room[at+3] = byte(first), byte(second), at3, at4
						if got, want := isText(room), utf8.Valid(room) && bytes.IndexByte(room, 0) < 0; got != want {
							t.Fatalf("% x at %d: %v", room[at:at+4], at, got)
						}
					}
				}
			}
			copy(room[at:], "aaaa")
		}
	})
}

// TestTextIsToldHoweverLongItIs cuts texts everywhere, and changes a byte anywhere.
func TestTextIsToldHoweverLongItIs(t *testing.T) {
	characters := []string{"a", "z ", "\x01", "é", "߿", "ࠀ", "—", "퟿", "", "😀", "\U0010FFFF", "日本", "Ж"}
	eachWidth(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(5, 6))
		for range 300 {
			var text []byte
			for len(text) < 1+rng.IntN(3*stretch) {
				text = append(text, characters[rng.IntN(len(characters))]...)
				if rng.IntN(20) == 0 {
					text = append(text, bytes.Repeat([]byte{'a'}, rng.IntN(3*block))...)
				}
			}
			for cut := max(0, len(text)-2*block); cut <= len(text); cut++ {
				if got, want := isText(text[:cut]), utf8.Valid(text[:cut]); got != want {
					t.Fatalf("%d bytes, to %q: %v", cut, text[max(0, cut-8):cut], got)
				}
			}
			for range 50 {
				at := rng.IntN(len(text))
				was := text[at]
				text[at] = byte(rng.IntN(256))
				if got, want := isText(text), utf8.Valid(text) && bytes.IndexByte(text, 0) < 0; got != want {
					t.Fatalf("%#x at %d of %d: %v", text[at], at, len(text), got)
				}
				text[at] = was
			}
		}
	})
}
