package eval

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"

	"sovereign/internal/text/fold"
)

// A mark is what a sample needs to know of something that may be a case: no text.
type mark struct {
	segment      string
	question     fold.Key
	conversation fold.Key
	readable     bool
}

// newMark returns the mark of an exchange. A turn of a conversation of which an earlier turn is logged too, among own,
// belongs to the first of those. An assistant's turn that was not logged, such as an example in a prompt, relates
// nothing.
func newMark(segment string, c fold.Chain, own map[fold.Key]bool) mark {
	m := mark{segment: segment, question: c.Prompt, conversation: c.Own, readable: c.Own != fold.Key{}}
	for _, key := range c.Earlier {
		if own[key] {
			m.conversation = key
			break
		}
	}
	return m
}

// choose draws at most size marks and returns their indices in the order in which they were drawn. At most one is drawn
// of each question and of each conversation; leftOut counts those that repeat another, and those that cannot be read.
// Segments are represented in proportion to their size, with at least one of each while there is room. The same seed
// draws the same.
func choose(pool []mark, size int, seed seed) (drawn []int, leftOut int) {
	return spread(pool, distinct(pool, rand.New(rand.NewChaCha8(seed)).Perm(len(pool))), size)
}

// A seed determines a sample.
type seed = [sha256.Size]byte

// newSeed mixes the seed that a caller has chosen with a secret. Whoever knows the logs and not the secret cannot find
// out, without an eval, which seed draws the cases that a model is good at.
func newSeed(secret []byte, chosen int64) (s seed) {
	mac := hmac.New(sha256.New, secret)
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(chosen)))
	mac.Sum(s[:0])
	return s
}

// distinct returns the first of order that ask each question, and that belong to each conversation.
func distinct(pool []mark, order []int) (kept []int) {
	asked, talked := make(map[fold.Key]bool, len(order)), make(map[fold.Key]bool, len(order))
	for _, i := range order {
		m := &pool[i]
		if m.readable && !asked[m.question] && !talked[m.conversation] {
			asked[m.question], talked[m.conversation] = true, true
			kept = append(kept, i)
		}
	}
	return kept
}

// spread takes size of some marks, in their order, so that segments have their shares.
func spread(pool []mark, from []int, size int) (taken []int, leftOut int) {
	leftOut = len(pool) - len(from)
	if len(from) <= size {
		return from, leftOut
	}
	sizes := map[string]int{}
	for _, i := range from {
		sizes[pool[i].segment]++
	}
	left := shares(sizes, size)
	for _, i := range from {
		if segment := pool[i].segment; left[segment] > 0 {
			left[segment]--
			taken = append(taken, i)
		}
	}
	return taken, leftOut
}

// shares divides size, which is less than the sum of sizes, among segments: one each, from the largest on, and the rest
// in proportion to what is left of them, by the largest remainders (Hamilton's method).
func shares(sizes map[string]int, size int) map[string]int {
	names := slices.SortedFunc(maps.Keys(sizes), func(a, b string) int {
		return cmp.Or(cmp.Compare(sizes[b], sizes[a]), cmp.Compare(a, b))
	})
	all := make(map[string]int, len(names))
	if len(names) >= size {
		for _, name := range names[:size] {
			all[name] = 1
		}
		return all
	}
	total, rest := 0, size-len(names)
	for _, name := range names {
		total += sizes[name] - 1
	}
	given := 0
	for _, name := range names {
		part := (sizes[name] - 1) * rest / total
		all[name] = 1 + part
		given += part
	}
	remainder := func(name string) int { return (sizes[name] - 1) * rest % total }
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(remainder(b), remainder(a)) })
	for _, name := range names[:rest-given] {
		all[name]++
	}
	return all
}
