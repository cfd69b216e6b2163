package fold

import "iter"

// A Place is where an exchange stands among those of its set.
type Place struct {
	Leaf        bool // no other exchange goes on from it, so that it is an example
	Folded      int  // how many of its earlier turns are exchanges of the set; with any, it is a folded conversation
	Root        int  // the exchange that its conversation began with: branches share theirs
	DuplicateOf int  // the first exchange with the same messages and response, or -1
}

// Leaves tells the place of each exchange. It goes over the chains twice, which must be the same both times, and keeps one key
// of each and none of their Earlier: a long conversation has many of those in every one of its exchanges.
//
// Duplicates stand in one place: both are leaves or neither is. A set that is to have each example once leaves out
// those that are a DuplicateOf.
func Leaves(chains iter.Seq[Chain]) []Place {
	var places []Place
	at := map[Key]int{}
	for c := range chains {
		i, p := len(places), Place{Leaf: true, Root: len(places), DuplicateOf: -1}
		if c.Own != (Key{}) {
			if first, known := at[c.Own]; known {
				p.Root, p.DuplicateOf = first, first
			} else {
				at[c.Own] = i
			}
		}
		places = append(places, p)
	}
	i := 0
	for c := range chains {
		for _, k := range c.Earlier {
			turn, known := at[k]
			if !known {
				continue
			}
			if places[i].Folded++; places[i].Folded == 1 {
				places[i].Root = turn
			}
			places[turn].Leaf = false
		}
		i++
	}
	for i, p := range places {
		if p.DuplicateOf >= 0 {
			places[i].Leaf = places[p.DuplicateOf].Leaf
		}
	}
	return places
}

// Count is how many folded conversations there are, and how many turns folded into them: exchanges that are no example of
// their own. Duplicates do not count, nor does a turn that two branches share count twice.
func Count(places []Place) (conversations, turns int) {
	for _, p := range places {
		switch {
		case p.DuplicateOf >= 0:
		case !p.Leaf:
			turns++
		case p.Folded > 0:
			conversations++
		}
	}
	return conversations, turns
}
