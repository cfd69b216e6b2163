package stat_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/grade/stat"
)

func TestTheCanarysEvidenceMatchesTheGolden(t *testing.T) {
	arm := stat.Arm{N: 600, Passed: 540}
	near(t, "G+(-.05)", stat.Ahead(arm, arm, -0.05), 1.8837, 4)
	nearInterval(t, "bounds", differenceBounds(arm, arm, 0.05), -.0579, .0579, 4)
}

// verdicts returns the evidence of two arms with an even split.
func verdicts(base, canary stat.Arm) stat.Evidence {
	one := stat.Strata{{Base: base, Canary: canary}}
	return stat.Evidence{Promote: one, RollBack: one}
}

func differenceBounds(a, b stat.Arm, alpha float64) stat.Interval {
	return verdicts(a, b).Bounds(alpha)
}

func arms(t *rapid.T, name string) stat.Arm {
	n := rapid.Int64Range(0, 3000).Draw(t, name+" n")
	return stat.Arm{N: n, Passed: rapid.Int64Range(0, n).Draw(t, name+" passed")}
}

// The guarantee of an e-value: at any true rates its expectation is 1, for every sample size and split.
func TestEvidenceHasExpectationOne(t *testing.T) {
	for _, percent := range []int{0, 1, 5, 50, 90, 100} {
		for _, n := range []int64{1, 7, 60, 300} {
			for _, p := range []float64{0.05, 0.5, 0.9, 0.99} {
				above, below := 0.0, 0.0
				for passed, probability := range logBinomial(n, p) {
					arm := stat.Arm{N: n, Passed: int64(passed)}
					above += math.Exp(probability + stat.Stratum{Percent: percent, Canary: arm}.Against(0, p))
					below += math.Exp(probability + stat.Stratum{Percent: percent, Base: arm}.Against(0, p))
				}
				near(t, "for a higher rate", above, 1, 9)
				near(t, "for a lower rate", below, 1, 9)
			}
		}
	}
}

func TestAheadIsTheMinimumOverAllRates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := arms(t, "a"), arms(t, "b")
		delta := rapid.Float64Range(-1, 1).Draw(t, "delta")
		s := stat.Stratum{Percent: rapid.IntRange(0, 100).Draw(t, "percent"), Base: a, Canary: b}
		least := s.Ahead(delta)
		lowest := math.Inf(1)
		low, high := max(0, -delta), min(1, 1-delta)
		for i := range 401 {
			lowest = min(lowest, s.Against(delta, low+(high-low)*float64(i)/400))
		}
		if least > lowest+1e-9 || math.IsNaN(least) {
			t.Fatalf("%v is not the least: %v", least, lowest)
		}
		if further := s.Ahead(delta + rapid.Float64Range(0, 1-delta).Draw(t, "further")); further > least+1e-9 {
			t.Fatalf("of a larger difference there is more evidence: %v, %v", further, least)
		}
	})
}

func TestBoundsOfTheDifferenceAreWhereTheEvidenceSuffices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := arms(t, "a"), arms(t, "b")
		alpha := rapid.Float64Range(0.001, 0.2).Draw(t, "alpha")
		i := differenceBounds(a, b, alpha)
		if enough := math.Log(1 / alpha); i[0] > -1 && (stat.Ahead(a, b, i[0]) < enough || stat.Ahead(a, b, i[0]+1e-6) > enough) {
			t.Fatalf("at the lower bound %v the evidence is %v, not %v", i[0], stat.Ahead(a, b, i[0]), enough)
		}
		if mirrored := differenceBounds(b, a, alpha); mirrored != (stat.Interval{-i[1], -i[0]}) {
			t.Fatalf("%v, arms swapped %v", i, mirrored)
		}
		if a.N > 0 && b.N > 0 && !i.Contains(b.Rate()-a.Rate()) {
			t.Fatalf("%v does not hold %v", i, b.Rate()-a.Rate())
		}
		fails := func(a stat.Arm) stat.Arm { return stat.Arm{N: a.N, Passed: a.N - a.Passed} }
		if swapped := differenceBounds(fails(a), fails(b), alpha); math.Abs(swapped[0]+i[1]) > 1e-6 || math.Abs(swapped[1]+i[0]) > 1e-6 {
			t.Fatalf("%v, pass and fail swapped %v", i, swapped)
		}
	})
	if i := differenceBounds(stat.Arm{}, stat.Arm{}, 0.05); i != (stat.Interval{-1, 1}) {
		t.Errorf("of nothing: %v", i)
	}
}

func TestTheGateDecidesByItsRules(t *testing.T) {
	gate := stat.Gate{Margin: 0.05, Alpha: 0.05, Minimum: 100, Youden: 1}
	with := func(change func(*stat.Gate)) stat.Gate {
		g := gate
		change(&g)
		return g
	}
	good, bad := stat.Arm{N: 1000, Passed: 900}, stat.Arm{N: 1000, Passed: 700}
	for _, c := range []struct {
		name         string
		gate         stat.Gate
		base, canary stat.Arm
		want         stat.Decision
	}{
		{"as good", gate, good, good, stat.Promote},
		{"better", gate, bad, good, stat.Promote},
		{"much worse", gate, good, bad, stat.Rollback},
		{"nothing judged", gate, stat.Arm{}, stat.Arm{}, stat.Continue},
		{"nothing judged, no minimum", with(func(g *stat.Gate) { g.Minimum = 0 }), stat.Arm{}, stat.Arm{}, stat.Continue},
		{"too little on the canary", gate, good, stat.Arm{N: 99}, stat.Continue},
		{"too little on the base", gate, stat.Arm{N: 99, Passed: 99}, bad, stat.Continue},
		{"just enough", gate, good, stat.Arm{N: 100}, stat.Rollback},
		{"not proven yet", gate, stat.Arm{N: 600, Passed: 540}, stat.Arm{N: 600, Passed: 540}, stat.Continue},
		{"worse by less than the margin", gate, good, stat.Arm{N: 1000, Passed: 870}, stat.Continue},
		{"a stricter alpha", with(func(g *stat.Gate) { g.Alpha = 1e-6 }), good, good, stat.Continue},
		{"a judge that sees half: the margin is half", with(func(g *stat.Gate) { g.Youden = 0.5 }), good, good, stat.Continue},
		{"a judge that may be blind", with(func(g *stat.Gate) { g.Youden = 0 }), good, good, stat.Unproven},
		{"a judge that may be worse than blind", with(func(g *stat.Gate) { g.Youden = -0.2 }), good, bad, stat.Unproven},
	} {
		if got := c.gate.Judge(verdicts(c.base, c.canary)); got != c.want {
			t.Errorf("%s: %s, not %s", c.name, got, c.want)
		}
	}
	near(t, "the margin as seen", with(func(g *stat.Gate) { g.Youden = 0.6 }).Seen(), 0.03, 12)
}

// A fifth of 5 % is spent on the judge, half of that on each of Se and Sp: 0.5 % of 100 of 100 is 0.005^(1/100).
func TestTheGateOfACalibrationSharesTheErrorWithIt(t *testing.T) {
	gate := stat.NewGate(stat.Table{TP: 100, TN: 100}, 0.05, 50)
	bound := math.Pow(0.005, 0.01)
	near(t, "alpha", gate.Alpha, 0.04, 12)
	near(t, "Se + Sp - 1", gate.Youden, 2*bound-1, 9)
	near(t, "1 - Sp", gate.FalsePass, 1-bound, 9)
	if gate.Margin != 0.05 || gate.Minimum != 50 {
		t.Errorf("%+v", gate)
	}
	for _, blind := range []stat.Table{{}, {TP: 5, TN: 1}, {TP: 50, FN: 50, TN: 50, FP: 50}} {
		clear := verdicts(stat.Arm{N: 900, Passed: 1}, stat.Arm{N: 900, Passed: 900})
		if got := stat.NewGate(blind, 0.05, 1).Judge(clear); got != stat.Unproven {
			t.Errorf("%+v decides %s", blind, got)
		}
	}
}

func TestJudgeMatchesItsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := arms(t, "base"), arms(t, "canary")
		gate := stat.Gate{Margin: rapid.Float64Range(0, 0.2).Draw(t, "margin"), Alpha: 0.05, Minimum: 1, Youden: rapid.Float64Range(0.1, 1).Draw(t, "Youden")}
		want := stat.Continue
		switch enough := math.Log(1 / gate.Alpha); {
		case min(a.N, b.N) == 0:
		case stat.Ahead(a, b, -gate.Seen()) >= enough && b.Rate()-a.Rate() > -gate.Seen():
			want = stat.Promote
		case stat.Ahead(b, a, gate.Seen()) >= enough && b.Rate()-a.Rate() < -gate.Seen():
			want = stat.Rollback
		}
		if got := gate.Judge(verdicts(a, b)); got != want {
			t.Fatalf("%s, not %s", got, want)
		}
	})
}

// run asks the gate after every request, and returns its decision and the number of verdicts on the canary by then.
// Each request goes to the canary with probability share.
func run(r *rand.Rand, gate stat.Gate, base, canary, share float64, requests int) (stat.Decision, int64) {
	var a, b stat.Arm
	for range requests {
		arm, rate := &a, base
		if r.Float64() < share {
			arm, rate = &b, canary
		}
		arm.N++
		if r.Float64() < rate {
			arm.Passed++
		}
		if verdict := gate.Judge(verdicts(a, b)); verdict != stat.Continue {
			return verdict, b.N
		}
	}
	return stat.Continue, b.N
}

func TestABadCanaryIsRarelyPromotedWhenTestedAfterEveryRequest(t *testing.T) {
	const runs = 60 // docs/statistics.md has the rates of many more runs, and a test of package coverage checks them
	r := rand.New(rand.NewPCG(20, 26))
	for _, c := range []struct {
		name                        string
		base, canary, margin, share float64
		forbidden                   []stat.Decision // what errs, where the truth is this
	}{
		{"worse by the margin", .90, .85, .05, .5, []stat.Decision{stat.Promote, stat.Rollback}},
		{"worse by the margin, a tenth of the traffic", .90, .85, .05, .1, []stat.Decision{stat.Promote, stat.Rollback}},
		{"worse by the margin, near certainty", .99, .96, .03, .5, []stat.Decision{stat.Promote, stat.Rollback}},
		{"worse by more", .70, .60, .05, .5, []stat.Decision{stat.Promote}},
		{"the same, no margin", .80, .80, 0, .5, []stat.Decision{stat.Promote, stat.Rollback}},
		{"the same", .90, .90, .05, .5, []stat.Decision{stat.Rollback}},
	} {
		gate := stat.Gate{Margin: c.margin, Alpha: 0.05, Minimum: 20, Youden: 1}
		count := map[stat.Decision]int{}
		for range runs {
			verdict, _ := run(r, gate, c.base, c.canary, c.share, 1200)
			count[verdict]++
		}
		for _, verdict := range c.forbidden {
			if rate := float64(count[verdict]) / runs; rate > gate.Alpha {
				t.Errorf("%s: %s in %.3f of runs", c.name, verdict, rate)
			}
		}
	}
}

// The reason for an e-process: a fixed-sample test that is evaluated after every request exceeds its level.
func TestAFixedSampleTestPromotesABadCanaryOneTimeInThreeWhenTestedAfterEveryRequest(t *testing.T) {
	const runs, requests, margin = 400, 2000, 0.05
	r := rand.New(rand.NewPCG(20, 27))
	z := stat.Z(0.90) // one-sided at 5 %
	promoted := 0.0
	for range runs {
		var a, b stat.Arm
		for range requests {
			for _, side := range []struct {
				arm  *stat.Arm
				rate float64
			}{{&a, 0.90}, {&b, 0.85}} {
				side.arm.N++
				if r.Float64() < side.rate {
					side.arm.Passed++
				}
			}
			if a.N < 50 {
				continue
			}
			p, q := a.Rate(), b.Rate()
			if q-p+margin > z*math.Sqrt((p*(1-p)+q*(1-q))/float64(a.N)) {
				promoted++
				break
			}
		}
	}
	if rate := promoted / runs; rate < 0.25 || rate > 0.40 {
		t.Errorf("%v", rate)
	}
}

func TestTheMedianSampleSizeOfADecisionIsAsExpected(t *testing.T) {
	const runs = 100
	gate := stat.Gate{Margin: 0.05, Alpha: 0.05, Minimum: 50, Youden: 1}
	for _, c := range []struct {
		base, canary, share float64
		want                stat.Decision
		least, most         int64 // the median judged on the canary
	}{
		{.90, .90, .5, stat.Promote, 540, 760},
		{.90, .70, .1, stat.Rollback, 65, 95},
	} {
		r := rand.New(rand.NewPCG(20, 28))
		var judged []int64
		for range runs {
			verdict, canary := run(r, gate, c.base, c.canary, c.share, 6000)
			if verdict == c.want {
				judged = append(judged, canary)
			}
		}
		slices.Sort(judged)
		if len(judged) < runs*24/25 {
			t.Fatalf("%v against %v: %d of %d decided for %s", c.canary, c.base, len(judged), runs, c.want)
		}
		t.Logf("%v against %v at %v: a median of %d on the canary", c.canary, c.base, c.share, judged[len(judged)/2])
		if median := judged[len(judged)/2]; median < c.least || median > c.most {
			t.Errorf("%v against %v: a median of %d on the canary", c.canary, c.base, median)
		}
	}
}

func BenchmarkJudge(b *testing.B) {
	gate := stat.Gate{Margin: 0.05, Alpha: 0.05, Minimum: 50, Youden: 1}
	evidence := verdicts(stat.Arm{N: 600, Passed: 540}, stat.Arm{N: 600, Passed: 540})
	for b.Loop() {
		gate.Judge(evidence)
	}
}
