// Package tokenizer counts the tokens of a text exactly, in the vocabulary o200k_base. It serves off the road of requests: it is some hundred
// times slower than the bounds of package token, and its vocabulary stays in memory from the first count on.
package tokenizer

import (
	"math"
	"sync"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer/codec"
)

// longest is the length in bytes of what is merged at one time. Merging takes the square of it.
const longest = 1 << 9

// Count is the number of tokens that text is. Names of special tokens in it count as the text that they are.
//
// It takes time in proportion to the text, whatever the text: a run of letters, signs or spaces that nothing divides
// for more than half a thousand bytes is counted in pieces of that length, which may add a token or two for each piece.
func Count(text string) int64 {
	vocabulary := ranks()
	var n int64
	var work merger
	for len(text) > 0 {
		length := next(text)
		for piece := text[:length]; piece != ""; {
			part := piece[:cut(piece)]
			n += work.count(vocabulary, part)
			piece = piece[len(part):]
		}
		text = text[length:]
	}
	return n
}

// cut is where a piece must be cut to be merged, between two characters.
func cut(piece string) int {
	if len(piece) <= longest {
		return len(piece)
	}
	at := longest
	for at > longest-utf8.UTFMax && !utf8.RuneStart(piece[at]) {
		at--
	}
	return at
}

// size is the number of tokens that are text; those that are marks come after them.
const size = 199_998

// ranks are the tokens with the order in which they are merged. The library's own encoder is not used: it divides white space with several
// line ends otherwise than the vocabulary says, and takes the square of its length.
var ranks = sync.OnceValue(func() map[string]uint32 {
	o200k := codec.NewO200kBase()
	ranks := make(map[string]uint32, size)
	for id := range uint(size) {
		if token, err := o200k.Decode([]uint{id}); err == nil {
			ranks[token] = uint32(id)
		}
	}
	return ranks
})

// A merger merges the bytes of a piece into tokens. It keeps its memory from piece to piece.
type merger struct{ parts []part }

// A part is a token so far: where it begins, and the rank of the token that it would be together with the part after it.
type part struct{ at, rank uint32 }

const never = math.MaxUint32

func (m *merger) count(ranks map[string]uint32, piece string) int64 {
	if _, whole := ranks[piece]; whole {
		return 1
	}
	parts := m.parts[:0]
	for at := range len(piece) + 1 {
		parts = append(parts, part{uint32(at), never})
	}
	rank := func(i int) uint32 {
		if i+2 < len(parts) {
			if rank, ok := ranks[piece[parts[i].at:parts[i+2].at]]; ok {
				return rank
			}
		}
		return never
	}
	for i := range parts {
		parts[i].rank = rank(i)
	}
	for {
		first := 0
		for i, p := range parts {
			if p.rank < parts[first].rank {
				first = i
			}
		}
		if parts[first].rank == never {
			m.parts = parts
			return int64(len(parts) - 1)
		}
		parts = append(parts[:first+1], parts[first+2:]...)
		parts[first].rank = rank(first)
		if first > 0 {
			parts[first-1].rank = rank(first - 1)
		}
	}
}
