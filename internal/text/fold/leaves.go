package fold

import "iter"

// A Position is the position of an exchange among the conversations of a set.
type Position struct {
	Leaf        bool // no other exchange continues it, so that it is an example
	Folded      int  // the number of its earlier turns that are exchanges of the set
	Root        int  // the index of the first exchange of its conversation; branches share it
	DuplicateOf int  // the index of the first exchange with the same messages and response, or -1
}

// Leaves computes the position of each exchange. It iterates twice over chains, which must yield the same chains both
// times. It keeps one key of each chain and no Earlier keys, which are many in long conversations.
//
// Duplicates have the same Leaf. To use each example once, skip the positions with a DuplicateOf.
func Leaves(chains iter.Seq[Chain]) []Position {
	var places []Position
	at := map[Key]int{}
	for c := range chains {
		i, p := len(places), Position{Leaf: true, Root: len(places), DuplicateOf: -1}
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

// Count returns the number of folded conversations and the number of turns folded into them, which are the exchanges
// that are not leaves. Duplicates are not counted, and a turn shared by two branches is counted once.
func Count(places []Position) (conversations, turns int) {
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
