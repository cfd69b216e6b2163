package stat

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

func TestAnArmsBoundsContainItsRateAndAreWhereItIsRejected(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 5000).Draw(t, "n")
		a := Arm{n, rapid.Int64Range(0, n).Draw(t, "passed")}
		alpha := rapid.SampledFrom([]float64{0.01, 0.04, 0.2}).Draw(t, "alpha")
		bounds := a.Bounds(alpha)
		if !(0 <= bounds[0] && bounds[0] <= bounds[1] && bounds[1] <= 1) || n > 0 && !bounds.Contains(a.Rate()) {
			t.Fatalf("%+v has %v", a, bounds)
		}
		mirrored := Arm{n, n - a.Passed}.Bounds(alpha)
		if math.Abs(mirrored[0]-(1-bounds[1])) > 1e-6 || math.Abs(mirrored[1]-(1-bounds[0])) > 1e-6 {
			t.Fatalf("%+v has %v, and mirrored %v", a, bounds, mirrored)
		}
		if value := a.Below(min(1, bounds[1]+1e-6)); bounds[1] < 1 && value < math.Log(1/alpha) {
			t.Fatalf("%+v: %v is not rejected above %v", a, value, bounds[1])
		}
	})
}

func TestAnArmsBoundsHoldAtAllTimes(t *testing.T) {
	const runs, horizon, alpha, rate = 400, 400, 0.1, 0.9
	random := rand.New(rand.NewPCG(1, 2))
	missed := 0
	for range runs {
		var a Arm
		out := false
		for range horizon {
			if a.N++; random.Float64() < rate {
				a.Passed++
			}
			out = out || a.Below(rate) >= math.Log(1/alpha) // the upper bound is below the rate
		}
		if out {
			missed++
		}
	}
	if bound := LowerBound(int64(missed), runs, 0.99); bound > alpha {
		t.Errorf("%d of %d runs miss the rate", missed, runs)
	}
}

// The weights are what the decisions are made by.
func TestTheWeightsAgreeWithTheDecision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		strata := func(name string) (s Strata) {
			for range rapid.IntRange(1, 3).Draw(t, name) {
				n, m := rapid.Int64Range(0, 400).Draw(t, "n"), rapid.Int64Range(0, 400).Draw(t, "m")
				s = append(s, Stratum{
					Percent: rapid.IntRange(0, 99).Draw(t, "percent"),
					Base:    Arm{n, rapid.Int64Range(0, n).Draw(t, "x")}, Canary: Arm{m, rapid.Int64Range(0, m).Draw(t, "y")},
				})
			}
			return s
		}
		s := strata("strata")
		e, g := Evidence{s, s}, Gate{Margin: 0.1, Alpha: 0.04, Minimum: 1, Youden: rapid.SampledFrom([]float64{-0.1, 0.5, 1}).Draw(t, "youden")}
		w := g.Weigh(e)
		switch g.Judge(e) {
		case Promote:
			if w.Promote < w.Needed {
				t.Fatalf("promoted with %+v", w)
			}
		case Rollback:
			if w.RollBack < w.Needed {
				t.Fatalf("rolled back with %+v", w)
			}
		case Continue:
		case Unproven:
			if w.Promote != 0 || w.RollBack != 0 {
				t.Fatalf("%+v by a judge that proves nothing", w)
			}
		}
		if difference, ok := s.Difference(); ok == math.IsNaN(s.difference()) || ok && difference != s.difference() {
			t.Fatalf("%v, %v", difference, ok)
		}
	})
}

func TestLeavingDiffersByEvidenceAndNotByChance(t *testing.T) {
	const runs, horizon = 100, 200
	random := rand.New(rand.NewPCG(5, 6))
	ever := func(base, canary float64) (n int) {
		for range runs {
			var s Stratum
			for i := range horizon {
				arm, rate := &s.Base, base
				if i%2 == 0 {
					arm, rate = &s.Canary, canary
				}
				if arm.N++; random.Float64() < rate {
					arm.Passed++
				}
				if (Leaves{s}).Differ(0.05, 0.025) {
					n++
					break
				}
			}
		}
		return n
	}
	if n := ever(0.1, 0.1); LowerBound(int64(n), runs, 0.99) > 0.05 {
		t.Errorf("equal arms differ in %d of %d runs", n, runs)
	}
	if n := ever(0.02, 0.4); n < runs*95/100 {
		t.Errorf("arms that differ are found in %d of %d runs", n, runs)
	}
	small := Stratum{Base: Arm{100_000, 1000}, Canary: Arm{100_000, 3000}} // 1 % and 3 %: they differ, by less than 5 points
	if (Leaves{small}).Differ(0.05, 0.025) || (Leaves{}).Differ(0.05, 0.025) {
		t.Error("a small difference pauses")
	}
}
