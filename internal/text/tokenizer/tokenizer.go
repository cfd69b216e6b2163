// Package tokenizer counts the tokens of a text exactly, in the vocabulary o200k_base. It is not used on the request
// path: it is about a hundred times slower than the bounds of package token, and its vocabulary stays in memory after
// the first count.
package tokenizer

import (
	"math"
	"sync"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer/codec"
)

// maxMerge is the most bytes that are merged at once. Merging is quadratic in this length.
const maxMerge = 1 << 9

// Count returns the number of tokens of text. Names of special tokens are counted as plain text.
//
// Its time is linear in the length of text. To that end, a piece of more than maxMerge bytes that the vocabulary's
// pattern does not divide is cut into parts of that length, which may add one or two tokens for each cut.
func Count(text string) int64 {
	var work merger
	return work.countText(text)
}

func (m *merger) countText(text string) (n int64) {
	vocabulary := ranks()
	for len(text) > 0 {
		length := next(text)
		for piece := text[:length]; piece != ""; {
			part := piece[:cut(piece)]
			n += m.count(vocabulary, part)
			piece = piece[len(part):]
		}
		text = text[length:]
	}
	return n
}

// cut returns the length of the part of a piece that is merged at once. It does not cut inside a character.
func cut(piece string) int {
	if len(piece) <= maxMerge {
		return len(piece)
	}
	at := maxMerge
	for at > maxMerge-utf8.UTFMax && !utf8.RuneStart(piece[at]) {
		at--
	}
	return at
}

// size is the number of ordinary tokens. Special tokens have higher ids.
const size = 199_998

// ranks maps tokens to their merge rank, lower first. The library's own encoder is not used: it splits white space with
// several line ends differently from the vocabulary's pattern, and takes quadratic time.
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

// A merger merges the bytes of a piece into tokens by byte-pair encoding. It reuses its buffer.
type merger struct {
	parts []part
	steps int // parts compared, counted for the test of linear time
}

// A part is a token so far: its start, and the rank of the token that it would form with the next part.
type part struct{ at, rank uint32 }

// never is the rank of two parts that form no token.
const never = math.MaxUint32

// count returns the number of tokens of a piece. It merges the adjacent parts of the lowest rank until none is left.
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
		m.steps += len(parts)
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
