package dataset

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"iter"
	"math"
	"slices"

	"sovereign/internal/text/fold"
	"sovereign/internal/text/sketch"
)

// A Key is the SHA-256 of an example's line.
type Key [sha256.Size]byte

// An example is what the split needs of an example: no text.
type example struct {
	key    Key
	row    int // the exchange that it was made of
	sketch sketch.Sketch
}

// sets is a union-find over numbers.
type sets []int32

func newSets(n int) sets {
	s := make(sets, n)
	for i := range s {
		s[i] = int32(i)
	}
	return s
}

// of returns the number that represents the set of i.
func (s sets) of(i int) int {
	for int(s[i]) != i {
		s[i] = s[s[i]]
		i = int(s[i])
	}
	return i
}

// join unites the sets of a and b.
func (s sets) join(a, b int) {
	if a, b = s.of(a), s.of(b); a != b {
		s[max(a, b)] = int32(min(a, b))
	}
}

// A prefix is the beginning of an exchange's messages.
type prefix struct {
	hash uint64
	row  int32
	// asked is set where it is all of the messages: the question that the exchange answers.
	asked bool
}

// newPrefix returns the prefix with a key. Two keys with the same hash would only put more on one side.
func newPrefix(key fold.Key, row int, asked bool) prefix {
	return prefix{binary.BigEndian.Uint64(key[:]), int32(row), asked}
}

// Bounds of prefixes. Examples that share more turns than maxPrefixes covers are near-duplicates.
const (
	maxPrefixes = 32 // of an example
	maxShared   = 8  // sets that share a prefix which is not a template
)

// equal yields the prefixes that several rows share. They are sorted.
func equal(prefixes []prefix) iter.Seq[[]prefix] {
	return func(yield func([]prefix) bool) {
		for from := 0; from < len(prefixes); {
			to := from + 1
			for to < len(prefixes) && prefixes[to].hash == prefixes[from].hash {
				to++
			}
			if to-from > 1 && !yield(prefixes[from:to]) {
				return
			}
			from = to
		}
	}
}

// joinRows unites the sets of the rows of prefixes.
func (s sets) joinRows(same []prefix) {
	for _, p := range same[1:] {
		s.join(int(same[0].row), int(p.row))
	}
}

// joinAsked joins the sets of exchanges that answer the same question, or go on from an answer to it.
func joinAsked(sorted []prefix, together sets) {
	for same := range equal(sorted) {
		if slices.ContainsFunc(same, func(p prefix) bool { return p.asked }) {
			together.joinRows(same)
		}
	}
}

// joinContinued joins the sets of exchanges that continue the same turn, which was not read itself. A turn that more
// than maxShared sets continue is a template, such as examples in a prompt, and joins nothing. The sets are counted
// before any are joined, so that the order does not matter.
func joinContinued(sorted []prefix, together sets) {
	var turns [][]prefix
	for same := range equal(sorted) {
		shared := make([]int, 0, maxShared+1)
		for _, p := range same {
			if set := together.of(int(p.row)); !slices.Contains(shared, set) {
				if shared = append(shared, set); len(shared) > maxShared {
					break
				}
			}
		}
		if len(shared) > 1 && len(shared) <= maxShared {
			turns = append(turns, same)
		}
	}
	for _, same := range turns {
		together.joinRows(same)
	}
}

// Near-duplicates are found by keys that their sketches share. Keys of keyRows rows miss none: of two sketches that are
// Near, fewer rows differ than there are keys. With more than few examples, those keys find too many pairs that are not
// near. Then the keys of sketch.Bands are used: they miss two in 10,000 of the pairs that are as unlike as
// near-duplicates can be, and fewer of others.
const (
	keyRows   = 3
	shortKeys = len(sketch.Sketch{}) / keyRows
	few       = 10_000
)

// keysOf appends the keys of a sketch, each of them.
func keysOf(s *sketch.Sketch, keys []uint64, each int) []uint64 {
	if each == sketch.Bands {
		bands := s.Bands()
		return append(keys, bands[:]...)
	}
	for at := range shortKeys {
		rows := s[at*keyRows:]
		keys = append(keys, uint64(rows[0])|uint64(rows[1])<<16|uint64(rows[2])<<32)
	}
	return keys
}

// maxCompared bounds how many pairs are compared, which takes up to a minute. Tens of thousands of examples that share
// a third of their words reach it. The pairs that are left then count as near: a worse split is better than a leak.
const maxCompared = 400_000_000

// near joins the sets of examples whose sketches are Near. Examples are in an order that does not depend on where they
// come from.
func near(ctx context.Context, examples []*example, together sets, most int) error {
	distinct := make([]*example, 0, len(examples))
	known := make(map[sketch.Sketch]int, len(examples))
	for _, e := range examples {
		if same, ok := known[e.sketch]; ok {
			together.join(same, e.row)
			continue
		}
		known[e.sketch] = e.row
		distinct = append(distinct, e)
	}
	type entry struct {
		key uint64
		*example
	}
	each := sketch.Bands
	if len(distinct) <= few {
		each = shortKeys
	}
	entries, keys := make([]entry, len(distinct)), make([]uint64, 0, each*len(distinct))
	for _, e := range distinct {
		keys = keysOf(&e.sketch, keys, each)
	}
	for at := range each {
		for i, e := range distinct {
			entries[i] = entry{keys[i*each+at], e}
		}
		slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
		for from := 0; from < len(entries); {
			to := from + 1
			for to < len(entries) && entries[to].key == entries[from].key {
				to++
			}
			if to-from > 1 {
				if err := ctx.Err(); err != nil {
					return err
				}
				alike := make([]*example, 0, to-from)
				for _, e := range entries[from:to] {
					alike = append(alike, e.example)
				}
				most = compare(alike, together, most)
			}
			from = to
		}
	}
	return nil
}

// mostUnlike is how many rows of two sketches that are Near may differ.
var mostUnlike = func() (rows int) {
	for n := len(sketch.Sketch{}); float64(n-rows-1)/float64(n) >= sketch.Near; {
		rows++
	}
	return rows
}()

// isNear reports whether the Similarity of two sketches is Near. It returns early when it is not.
func isNear(a, b *sketch.Sketch) bool {
	const stride = 16
	unlike := 0
	for at := 0; at < len(a); at += stride {
		x, y := (*[stride]uint16)(a[at:]), (*[stride]uint16)(b[at:])
		for i := range x {
			if x[i] != y[i] {
				unlike++
			}
		}
		if unlike > mostUnlike {
			return false
		}
	}
	return true
}

// compare joins those of some examples that are Near. It compares at most most pairs, and returns how many are left of
// them.
func compare(some []*example, together sets, most int) int {
	index := map[int]int{} // of a set in clusters
	var clusters [][]*example
	for _, e := range some {
		set := together.of(e.row)
		at, ok := index[set]
		if !ok {
			at, index[set] = len(clusters), len(clusters)
			clusters = append(clusters, nil)
		}
		clusters[at] = append(clusters[at], e)
	}
	var apart [][]*example
	for _, fresh := range clusters {
		whole := fresh
		apart = slices.DeleteFunc(apart, func(other []*example) (joined bool) {
			if joined, most = meet(fresh, other, most); joined {
				together.join(fresh[0].row, other[0].row)
				whole = append(whole, other...)
			}
			return joined
		})
		apart = append(apart, whole)
	}
	return most
}

// meet reports whether any of some is Near any of the others. It reports true when most pairs have been compared.
func meet(some, others []*example, most int) (joined bool, left int) {
	for _, a := range some {
		for _, b := range others {
			if most == 0 {
				return true, 0
			}
			most--
			if isNear(&a.sketch, &b.sketch) {
				return true, most
			}
		}
	}
	return false, most
}

// split says which examples are held out, about percent of 100 sets. A set is held out by the hash of its smallest key,
// so that the same examples are split the same way whenever and in whichever order they come. Where there are two sets,
// neither side is empty; one set alone is not held out.
func split(examples []example, together sets, percent float64) []bool {
	smallest := map[int]Key{}
	for _, e := range examples {
		set := together.of(e.row)
		if key, ok := smallest[set]; !ok || bytes.Compare(e.key[:], key[:]) < 0 {
			smallest[set] = e.key
		}
	}
	type lot struct {
		set  int
		draw uint64
		key  Key
	}
	lots := make([]lot, 0, len(smallest))
	for set, key := range smallest {
		lots = append(lots, lot{set, draw(key), key})
	}
	slices.SortFunc(lots, func(a, b lot) int {
		return cmp.Or(cmp.Compare(a.draw, b.draw), bytes.Compare(a.key[:], b.key[:]))
	})
	held := 0
	for held < len(lots) && float64(lots[held].draw) < percent/100*math.MaxUint64 {
		held++
	}
	held = min(max(held, 1), max(len(lots)-1, 0))
	out := map[int]bool{}
	for _, l := range lots[:held] {
		out[l.set] = true
	}
	side := make([]bool, len(examples))
	for i, e := range examples {
		side[i] = out[together.of(e.row)]
	}
	return side
}

// draw hashes a key to a uniform number. A change of it would move examples between the sides of datasets that are made
// again.
func draw(key Key) uint64 {
	sum := sha256.Sum256(append([]byte("sovereign dataset split 1\n"), key[:]...))
	return binary.BigEndian.Uint64(sum[:8])
}
