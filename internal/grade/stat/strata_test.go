package stat_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/grade/stat"
)

// The base rate drifts from .80 at a share of 5 % to .95 at 50 %, and the canary is always worse by .05. The sums of
// both strata flatter it.
func TestADriftBetweenTwoSharesPromotesNoWorseCanary(t *testing.T) {
	drifting := stat.Strata{
		{Base: stat.Arm{N: 3800, Passed: 3040}, Canary: stat.Arm{N: 200, Passed: 150}},
		{Base: stat.Arm{N: 2000, Passed: 1900}, Canary: stat.Arm{N: 2000, Passed: 1800}},
	}
	base, canary := drifting.Sum()
	gate := stat.Gate{Margin: 0.05, Alpha: 0.05, Minimum: 50, Youden: 1}
	if pooled := gate.Judge(verdicts(base, canary)); pooled != stat.Promote {
		t.Fatalf("the sums give %v: this is no example", pooled)
	}
	if got := gate.Judge(stat.Evidence{Promote: drifting, RollBack: drifting}); got == stat.Promote {
		t.Errorf("the strata give %v", got)
	}
}

// strata draws the evidence of several strata with any splits.
func strata(t *rapid.T) (s stat.Strata) {
	for range rapid.IntRange(0, 4).Draw(t, "strata") {
		percent := rapid.SampledFrom([]int{0, 1, 5, 20, 50, 99}).Draw(t, "percent")
		s = append(s, stat.Stratum{Percent: percent, Base: arms(t, "base"), Canary: arms(t, "canary")})
	}
	return s
}

// The cheap bounds before the evidence itself never change a decision.
func TestSeveralStrataAreDecidedByTheirSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := strata(t)
		gate := stat.Gate{Margin: rapid.Float64Range(0, 0.2).Draw(t, "margin"), Alpha: 0.05, Minimum: 20, Youden: 0.9}
		base, canary := s.Sum()
		promote, back := 0.0, 0.0
		for _, one := range s {
			promote += one.Ahead(-gate.Seen())
			swapped := stat.Stratum{Percent: (100 - one.Percent) % 100, Base: one.Canary, Canary: one.Base}
			back += swapped.Ahead(gate.Seen())
		}
		want, enough := stat.Continue, math.Log(1/gate.Alpha)
		switch difference := stat.Difference(s); {
		case min(base.N, canary.N) < gate.Minimum:
		case promote >= enough && difference > -gate.Seen():
			want = stat.Promote
		case back >= enough && difference < -gate.Seen():
			want = stat.Rollback
		}
		if got := gate.Judge(stat.Evidence{Promote: s, RollBack: s}); got != want {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

// Otherwise a canary with a small share is never promoted, however good it is.
func TestEvidenceForACanaryGrowsWithAnyShare(t *testing.T) {
	for _, percent := range []int{1, 2, 5, 10, 50, 90, 99} {
		at := func(thousands int64) float64 {
			arm := func(share int) stat.Arm {
				return stat.Arm{N: 1000 * thousands * int64(share), Passed: 900 * thousands * int64(share)}
			}
			return stat.Stratum{Percent: percent, Base: arm(100 - percent), Canary: arm(percent)}.Ahead(-0.05)
		}
		if few, many := at(1), at(2); few < math.Log(20) || many <= few {
			t.Errorf("at %d %%, the evidence for an equal canary is %v and then %v", percent, few, many)
		}
	}
}

// A change of the share begins a stratum, whose evidence must not sink while its smaller arm has hardly any verdicts.
func TestAYoungStratumCostsLittle(t *testing.T) {
	for _, percent := range []int{1, 5, 20} {
		for n := range 300 / int64(percent) {
			young := stat.Stratum{Percent: percent, Base: stat.Arm{N: n, Passed: n * 9 / 10}}
			if got := young.Ahead(-0.05); got < -3.5 {
				t.Errorf("at %d %%, %d verdicts on the base alone cost %v", percent, n, got)
			}
		}
	}
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
