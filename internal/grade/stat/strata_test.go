package stat_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/grade/stat"
)

// The base rate drifts from .80 at a share of 5 % to .95 at 50 %, and the canary is always worse by .05. The sums of both
// strata flatter it.
func TestADriftBetweenTwoSharesPromotesNoWorseCanary(t *testing.T) {
	drifting := stat.Strata{
		{Base: stat.Arm{N: 3800, Passed: 3040}, Canary: stat.Arm{N: 200, Passed: 150}},
		{Base: stat.Arm{N: 2000, Passed: 1900}, Canary: stat.Arm{N: 2000, Passed: 1800}},
	}
	base, canary := drifting.Sum()
	gate := stat.Gate{Margin: 0.05, Alpha: 0.05, Minimum: 50, Youden: 1}
	if pooled := gate.Decide(base, canary); pooled != stat.Promote {
		t.Fatalf("the sums give %v: this is no example", pooled)
	}
	if got := gate.Judge(stat.Evidence{Promote: drifting, RollBack: drifting}); got == stat.Promote {
		t.Errorf("the strata give %v", got)
	}
}

// One stratum without missing verdicts is what Decide decides.
func TestOneStratumIsDecidedLikeTwoArms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, canary := arms(t, "base"), arms(t, "canary")
		gate := stat.Gate{Margin: rapid.Float64Range(0, 0.2).Draw(t, "margin"), Alpha: 0.05, Minimum: 20, Youden: 0.9}
		one := stat.Strata{{Base: base, Canary: canary}}
		if got, want := gate.Judge(stat.Evidence{Promote: one, RollBack: one}), gate.Decide(base, canary); got != want {
			t.Fatalf("%v, and Decide says %v", got, want)
		}
		bounds, want := stat.Evidence{Promote: one, RollBack: one}.Bounds(0.05), stat.DifferenceBounds(base, canary, 0.05)
		if math.Abs(bounds[0]-want[0]) > 1e-7 || math.Abs(bounds[1]-want[1]) > 1e-7 {
			t.Fatalf("%v, and two arms have %v", bounds, want)
		}
	})
}

// A verdict that is missing never helps a decision.
func TestMissingVerdictsCountAgainstEachDecision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, canary := arms(t, "base"), arms(t, "canary")
		missing := rapid.Int64Range(1, 50).Draw(t, "missing")
		whole := stat.Strata{{Base: base, Canary: canary}}
		against := stat.Strata{{Base: base, Canary: stat.Arm{N: canary.N + missing, Passed: canary.Passed}}}
		favour := stat.Strata{{Base: base, Canary: stat.Arm{N: canary.N + missing, Passed: canary.Passed + missing}}}
		gate := stat.Gate{Margin: 0.05, Alpha: 0.05, Minimum: 1, Youden: 1}
		before := gate.Judge(stat.Evidence{Promote: whole, RollBack: whole})
		after := gate.Judge(stat.Evidence{Promote: against, RollBack: favour})
		if after == stat.Promote && before == stat.Rollback || after == stat.Rollback && before == stat.Promote {
			t.Fatalf("%v became %v", before, after)
		}
	})
}
