package label

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/base/clock"
	"sovereign/internal/grade/judge"
)

// drawGrades draws the labels of an item, with distinct times of their adjudications.
func drawGrades(t *rapid.T) []Grade {
	verdicts := rapid.SampledFrom([]judge.Verdict{judge.Pass, judge.Fail})
	times := rapid.SliceOfNDistinct(rapid.IntRange(1, 99), 9, 9, rapid.ID[int]).Draw(t, "times")
	all := make([]Grade, rapid.IntRange(1, 9).Draw(t, "labels"))
	ruled := rapid.Bool().Draw(t, "some are adjudicated")
	for i := range all {
		all[i] = Grade{LabelID: fmt.Sprint("lbl_", i), Verdict: verdicts.Draw(t, "verdict")}
		if ruled && rapid.Bool().Draw(t, "it is adjudicated") {
			all[i].Kind, all[i].RuledAt = rapid.SampledFrom([]Kind{LabelError, JudgeError, Ambiguous, Confirmed}).Draw(t, "kind"), clock.Time(times[i])
			switch all[i].Kind {
			case LabelError:
				all[i].Ruled = opposite(all[i].Verdict)
			case JudgeError, Confirmed:
				all[i].Ruled = all[i].Verdict
			case Ambiguous:
			}
		}
	}
	return all
}

func TestTheLatestAdjudicationDecidesElseTheMajority(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := drawGrades(t)
		got := Settle(all)
		passes, fails := 0, 0
		var last *Grade
		for i, g := range all {
			if g.Verdict == judge.Pass {
				passes++
			} else {
				fails++
			}
			if g.Kind != "" && (last == nil || g.RuledAt > last.RuledAt) {
				last = &all[i]
			}
		}
		want := Consensus{Tied: passes == fails}
		switch {
		case last != nil:
			want = Consensus{LabelID: last.LabelID, Verdict: last.Ruled, Ruling: last.Kind}
		case passes > fails:
			want.Verdict = judge.Pass
		case fails > passes:
			want.Verdict = judge.Fail
		}
		for _, g := range all { // the earliest comes first
			if want.LabelID == "" && (want.Tied || g.Verdict == want.Verdict) {
				want.LabelID = g.LabelID
			}
		}
		if got != want {
			t.Fatalf("%+v, want %+v", got, want)
		}
		if again := Settle(rapid.Permutation(all).Draw(t, "order")); again != got {
			t.Fatalf("in another order %+v, not %+v", again, got)
		}
	})
}

// Of an item with one label, the label alone decides, as it does in calibrations of earlier releases.
func TestOneLabelDecidesAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGrades(t)[0]
		r := record{ID: g.LabelID, Verdict: g.Verdict, Kind: g.Kind, Adjudicated: g.Ruled}
		if got := Settle([]Grade{g}); got != (Consensus{LabelID: g.LabelID, Verdict: r.verdictNow(), Ruling: g.Kind}) {
			t.Fatalf("%+v of %+v", got, g)
		}
	})
	if got := Settle(nil); got != (Consensus{}) {
		t.Errorf("without labels: %+v", got)
	}
}

// A grade can turn a verdict into a tie or a tie into a verdict, and not one verdict into the other.
func TestOneMoreGradeNeverTurnsAVerdictAround(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := drawGrades(t)
		for i := range all {
			all[i].Kind, all[i].Ruled, all[i].RuledAt = "", "", 0
		}
		before := Settle(all)
		after := Settle(append(all, Grade{LabelID: "lbl_new", Verdict: rapid.SampledFrom([]judge.Verdict{judge.Pass, judge.Fail}).Draw(t, "another")}))
		if before.Tied == after.Tied && before.Verdict != after.Verdict || before.Tied && after.Tied {
			t.Fatalf("%+v, then %+v", before, after)
		}
	})
}
