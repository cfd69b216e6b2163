package segment

import (
	"slices"

	"sovereign/internal/text/sketch"
)

// The minimum similarities for a prompt to belong to a family, tuned on the prompts of the tests.
const (
	// wholeAlike is far below that of near-duplicates, since a third of a short prompt may be what a program put in.
	// Different prompts have less than 0.1, and 0.35 where they share a long preamble.
	wholeAlike = 0.45

	// endAlike is higher: an end is small, and a preamble may fill most of it.
	endAlike = 0.6
)

// Families are the families of one workspace, each known by the prompt that began it. Those that joined later do not
// count: a family that grew with each of them would drift. Over the prompts of the tests that found little more that
// belongs together, and put ten times as much together that does not. Calls of Find may run at the same time, but none
// while Add runs. The zero Families has none.
type Families struct {
	known []entry
	first [3]map[uint32]uint32 // by part and key, the number of the first link of a chain
	links []link
}

type entry struct {
	family   string
	sketches []sketch.Sketch
}

// A link is an entry of a linked list of entries with the same key.
type link struct {
	entry uint32
	next  uint32 // the index of the next link, or 0
}

// short truncates a key to half its size, to save memory. A collision costs one comparison.
func short(key uint64) uint32 { return uint32(key) }

// Add makes a family known by the print of the prompt that began it. To repeat it is a no-op. A family that is added
// with several prints is found by each.
func (f *Families) Add(family string, p Print) {
	sketches := p.sketches()
	for _, i := range f.candidates(sketches[:whole+1], nil) {
		if e := f.known[i]; e.family == family && slices.Equal(e.sketches, sketches) {
			return
		}
	}
	f.known = append(f.known, entry{family, slices.Clone(sketches)})
	for part, s := range sketches {
		if f.first[part] == nil {
			f.first[part] = map[uint32]uint32{}
		}
		for _, key := range s.Bands() {
			f.links = append(f.links, link{uint32(len(f.known) - 1), f.first[part][short(key)]})
			f.first[part][short(key)] = uint32(len(f.links))
		}
	}
}

// Find is the family that a prompt is of: the most similar one as a whole, or else the one with the most similar head
// or tail, so that long documents before, after or amid a prompt do not hide it. Of equals it is the one whose name
// sorts first: the order of Add does not matter. What Find costs grows with the families that resemble the prompt, and
// not with all.
func (f *Families) Find(p Print) (family string, ok bool) {
	var room [64]uint32
	best := 0.0
	for _, i := range f.candidates(p.sketches(), room[:0]) {
		e := &f.known[i]
		if score := alike(p.sketches(), e.sketches); score > best || ok && score == best && e.family < family {
			family, ok, best = e.family, true, score
		}
	}
	return family, ok
}

// candidates appends the entries that share a key with one of the sketches, without repetition.
func (f *Families) candidates(sketches []sketch.Sketch, found []uint32) []uint32 {
	for part, s := range sketches {
		for _, key := range s.Bands() {
			for at := f.first[part][short(key)]; at != 0; {
				next := f.links[at-1]
				found = append(found, next.entry)
				at = next.next
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// alike returns a score above 1 for prompts that are similar as a whole, at most 1 for prompts with a similar head or
// tail, and 0 for others.
func alike(a, b []sketch.Sketch) float64 {
	if s := a[whole].Similarity(b[whole]); s >= wholeAlike {
		return 1 + s
	}
	if len(a) == 1 || len(b) == 1 {
		return 0
	}
	if s := max(a[head].Similarity(b[head]), a[tail].Similarity(b[tail])); s >= endAlike {
		return s
	}
	return 0
}
