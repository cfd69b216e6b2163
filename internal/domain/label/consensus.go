package label

import (
	"cmp"
	"slices"

	"sovereign/internal/base/clock"
	"sovereign/internal/grade/judge"
)

// A Grade is what one label says of its item.
type Grade struct {
	LabelID string
	Verdict judge.Verdict // as it was given
	Kind    Kind          // of its adjudication; "" without one
	Ruled   judge.Verdict // by the adjudication; "" when it withdraws
	RuledAt clock.Time
}

// A Consensus is what the labels of an item say together. The zero value is that of an item without labels.
type Consensus struct {
	LabelID string        // the label that can be adjudicated
	Verdict judge.Verdict // "" when people are evenly split, and when the item was withdrawn
	Ruling  Kind          // of the adjudication that decides; "" without one
	Tied    bool          // people are evenly split: nothing is measured by the item
}

// Settle returns what the labels of an item say together, in whatever order they come. The latest adjudication of any
// of them decides; one that is ambiguous withdraws the item. Without an adjudication the majority decides, and an even
// split is no verdict.
//
// The label that can be adjudicated is the one that was adjudicated last. Without an adjudication it is the earliest
// of those with the verdict, or the earliest of all in an even split.
func Settle(all []Grade) Consensus {
	if len(all) == 0 {
		return Consensus{}
	}
	earliest := func(a, b Grade) int { return cmp.Compare(a.LabelID, b.LabelID) }
	ruled := slices.MaxFunc(all, func(a, b Grade) int {
		return cmp.Or(order(a.Kind != "", b.Kind != ""), cmp.Compare(a.RuledAt, b.RuledAt), earliest(a, b))
	})
	if ruled.Kind != "" {
		return Consensus{LabelID: ruled.LabelID, Verdict: ruled.Ruled, Ruling: ruled.Kind}
	}
	passes := 0
	for _, g := range all {
		if g.Verdict == judge.Pass {
			passes++
		}
	}
	var c Consensus
	switch fails := len(all) - passes; {
	case passes > fails:
		c.Verdict = judge.Pass
	case passes < fails:
		c.Verdict = judge.Fail
	default:
		c.Tied = true
	}
	c.LabelID = slices.MinFunc(all, func(a, b Grade) int {
		return cmp.Or(order(b.Verdict == c.Verdict, a.Verdict == c.Verdict), earliest(a, b))
	}).LabelID
	return c
}

// order compares truths: false comes first.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func (r *record) grade() Grade {
	return Grade{LabelID: r.ID, Verdict: r.Verdict, Kind: r.Kind, Ruled: r.Adjudicated, RuledAt: r.AdjudicatedAt}
}

// settle is Settle, of the rows of the table.
func settle(all []record) Consensus {
	grades := make([]Grade, len(all))
	for i := range all {
		grades[i] = all[i].grade()
	}
	return Settle(grades)
}
