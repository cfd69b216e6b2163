// Package sketch computes MinHash sketches over pairs of words, to estimate how similar texts are. The sketch of a text
// is the same on every machine and in every release, since sketches are stored and compared with older ones.
package sketch

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

const (
	// rows is the number of samples of a sketch. The standard error of the estimate of a similarity s is
	// sqrt(s(1-s)/rows), at most 0.044.
	rows = 128

	// Size is the size of a stored sketch in bytes. A row stores 16 bits of its sample. Different samples collide once
	// in 65,536, which is far below the error of the estimate: more rows are worth more than wider rows.
	Size = 2 * rows
)

// A Sketch is a MinHash sample of the set of a text's shingles. Equal sets have equal sketches. The zero Sketch is that
// of a text without words.
type Sketch [rows]uint16

// Of is the sketch of a text by its shingles: every two words that follow each other, in whichever case, whatever space
// or punctuation stands between. How often they do does not count. A text of one word has that word for its shingle.
// Two words tell texts apart nearly as well as three do, and an edit of one word costs two shingles instead of three,
// which matters in texts of a few lines.
func Of(text string) Sketch {
	s := newSampler()
	words(text, s)
	return s.sketch()
}

// Similarity estimates the Jaccard similarity of the two texts' shingles: how many they share, of all that either has.
// Equal texts have 1, as do two texts without words.
func (s Sketch) Similarity(other Sketch) float64 {
	alike := 0
	for i, row := range s {
		if row == other[i] {
			alike++
		}
	}
	return float64(alike) / rows
}

// Bytes returns the stored form of s.
func (s Sketch) Bytes() []byte {
	b := make([]byte, 0, Size)
	for _, row := range s {
		b = binary.LittleEndian.AppendUint16(b, row)
	}
	return b
}

// Parse decodes the result of Bytes.
func Parse(b []byte) (Sketch, error) {
	var s Sketch
	if len(b) != Size {
		return s, fmt.Errorf("a sketch has %d bytes, not %d", Size, len(b))
	}
	for i := range s {
		s[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return s, nil
}

const (
	// bandRows is the number of rows of a key, which fill its 64 bits.
	bandRows = 4

	// Bands is the number of keys of a sketch.
	Bands = rows / bandRows

	// Near is the similarity from which two texts are near-duplicates.
	Near = 0.7
)

// Bands is the keys under which to store s so that its like can be found without comparing it to all: two sketches of
// texts of similarity s share a key with the probability 1 - (1 - s^4)^32. That is 0.003 at 0.1, 0.23 at 0.3, 0.87 at
// 0.5, 0.99 at 0.6 and
// 0.9998 at Near. Keys of different places never mean the same, so that one map will do for all.
func (s Sketch) Bands() [Bands]uint64 {
	var keys [Bands]uint64
	for i := range keys {
		row := s[bandRows*i:]
		key := uint64(row[0]) | uint64(row[1])<<16 | uint64(row[2])<<32 | uint64(row[3])<<48
		keys[i] = mix(key + uint64(i+1)*step)
	}
	return keys
}

// The constants of the hashes. To change one voids every stored sketch.
const (
	byteFactor  = 0x00000100000001b3
	firstFactor = 0x9fb21c651e98df25
	nextFactor  = 0xd6e8feb86659fd93
	step        = 0x9e3779b97f4a7c15
)

// mix is a bijective finalizer: every input bit affects all output bits.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// A sampler fills the rows of a sketch with one hash per shingle: the hash says which row, and the smallest of a row
// stays. Where shingles are too few to fill every row, all are hashed again, round by round, into the rows that are
// still empty; after rows rounds each round is for one row alone. This is "fast similarity sketching" (Dahlgaard,
// Knudsen and Thorup, 2017): as exact as a hash per row would be, of long texts and of short ones, where copying from
// other rows is not.
type sampler struct {
	best   [rows]uint64 // the round in the top byte, then the rest of the hash
	filled int
	kept   []uint64 // the shingles, while rows are empty
	full   bool     // more are not kept
}

// maxKept bounds the shingles that are kept for another round. Where half as many are distinct, a row is empty with a
// probability of one in a trillion, and is then filled from those.
const maxKept = 8192

func newSampler() *sampler {
	s := &sampler{kept: make([]uint64, 0, 4*rows)}
	for i := range s.best {
		s.best[i] = empty
	}
	return s
}

// empty is larger than every sample.
const empty = math.MaxUint64

func (s *sampler) add(shingle uint64) {
	if !s.sample(0, shingle>>(64-rowBits), shingle) || s.filled == rows || s.full {
		return
	}
	if len(s.kept) == maxKept {
		slices.Sort(s.kept)
		s.kept = slices.Compact(s.kept)
		s.full = len(s.kept) > maxKept/2
	}
	s.kept = append(s.kept, shingle)
}

const rowBits = 7

// sample reports whether the hash differs from the sample that its row already has.
func (s *sampler) sample(round int, row, hash uint64) bool {
	rank, best := uint64(round)<<56|hash&(1<<56-1), s.best[row]
	if best == empty {
		s.filled++
	}
	if rank < best {
		s.best[row] = rank
	}
	return rank != best
}

func (s *sampler) sketch() Sketch {
	if s.filled == 0 {
		return Sketch{}
	}
	for round := 1; s.filled < rows; round++ {
		for _, shingle := range s.kept {
			hash := mix(shingle + uint64(round)*step)
			row := hash >> (64 - rowBits)
			if round >= rows {
				row = uint64(round - rows)
			}
			s.sample(round, row, hash)
		}
	}
	var out Sketch
	for i, rank := range s.best {
		out[i] = uint16(rank)
	}
	return out
}
