package stat_test

import (
	"math/rand/v2"
	"testing"

	"sovereign/internal/grade/stat"
)

// powerOf returns the share of random comparisons whose bound is at least the threshold.
func powerOf(r *rand.Rand, p stat.Plan, n int64, threshold, alpha float64) float64 {
	const runs = 3000
	win := (p.Differ + p.Difference) / 2
	passed := 0
	for range runs {
		var o stat.Outcomes
		for range n {
			switch u := r.Float64(); {
			case u < win:
				o.Wins++
			case u < p.Differ:
				o.Losses++
			default:
				o.Ties++
			}
		}
		if o.DifferenceAbove(alpha) >= threshold {
			passed++
		}
	}
	return float64(passed) / runs
}

func TestAPlannedComparisonHasThePowerThatWasAskedFor(t *testing.T) {
	r := rand.New(rand.NewPCG(20260, 4))
	for _, c := range []struct {
		plan      stat.Plan
		threshold float64
	}{
		{stat.Compared(.6, 0), 0},
		{stat.Compared(.6, .5), 0},
		{stat.Compared(.7, .3), .1},
		{stat.Compared(.9, 0), 0},
		{stat.Graded(.9, .9), -.05},
		{stat.Graded(.9, .85), -.1},
		{stat.Graded(.6, .6), -.1},
	} {
		for _, alpha := range []float64{.05, .05 / 16} {
			n := c.plan.CasesNeeded(0.8, c.threshold, alpha)
			// With few cases the power of the next number of cases may be much higher.
			if got := powerOf(r, c.plan, n, c.threshold, alpha); got < 0.74 || got > 0.93 || n > 50 && got > 0.86 {
				t.Errorf("%+v above %v at %v: of %d cases the power is %v", c.plan, c.threshold, alpha, n, got)
			}
		}
	}
}

func TestMoreIsNeededToProveMore(t *testing.T) {
	last := int64(0)
	for _, rate := range []float64{.9, .7, .6, .55, .52} {
		n := stat.Compared(rate, .2).CasesNeeded(0.8, 0, 0.05)
		if n <= last {
			t.Errorf("a win rate of %v needs %d cases, a higher one %d", rate, n, last)
		}
		last = n
	}
	if n := stat.Compared(.5, 0).CasesNeeded(0.8, 0, 0.05); n != 0 {
		t.Errorf("no difference is proven by %d cases", n)
	}
	if n := stat.Compared(1, 0).CasesNeeded(0.8, 0, 0.05); n < 5 || n > 10 {
		t.Errorf("a candidate that always wins needs %d cases", n)
	}
}
