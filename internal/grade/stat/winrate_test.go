package stat_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/grade/stat"
)

// The paired table of Bentur et al. (2009), as Fagerland, Lydersen and Laake (2014) compute Tango's interval of it.
func TestTheScoreIntervalMatchesThePublishedOne(t *testing.T) {
	o := stat.Pairs{Both: 1, First: 1, Second: 7, Neither: 12}.Outcomes()
	i := o.Interval(0.95)
	nearInterval(t, "Bentur", stat.Interval{2*i[0] - 1, 2*i[1] - 1}, -.517, -.026, 3)
	// Cavo et al. (2012), as the R package contingencytables has it.
	i = stat.Pairs{Both: 59, First: 6, Second: 16, Neither: 80}.Outcomes().Interval(0.95)
	nearInterval(t, "Cavo", stat.Interval{2*i[0] - 1, 2*i[1] - 1}, -.1240, -.0054, 4)
}

// The sign test is McNemar's exact test: 6 of 22, one-sided, is half of the published 0.052479.
func TestTheBoundIsAboveHalfWhereTheSignTestRejects(t *testing.T) {
	const p, share = 0.052479 / 2, 0.95 // of alpha
	for ties := range int64(200) {
		o := stat.Outcomes{Wins: 16, Losses: 6, Ties: ties}
		if low := o.LowerBound(1.0001 * p / share); low < 0.5 {
			t.Errorf("%d ties: %v, where the sign test rejects", ties, low)
		}
		if low := o.LowerBound(0.9999 * p / share); low >= 0.5 {
			t.Errorf("%d ties: %v, where the sign test does not reject", ties, low)
		}
	}
}

// A loss in place of a tie proves that more cases differ, which raises a bound above ½ by a trifle at most.
func TestALossNeverRaisesTheGatesBound(t *testing.T) {
	const trifle = 1e-3
	rapid.Check(t, func(t *rapid.T) {
		o, alpha := drawOutcomes(t), rapid.SampledFrom([]float64{.5, .05, .05 / 16, 1e-4}).Draw(t, "alpha")
		low := o.LowerBound(alpha)
		for _, worse := range []stat.Outcomes{
			{Wins: o.Wins - 1, Losses: o.Losses + 1, Ties: o.Ties},
			{Wins: o.Wins, Losses: o.Losses + 1, Ties: o.Ties - 1},
		} {
			if worse.Wins < 0 || worse.Ties < 0 {
				continue
			}
			allowed := 1e-9
			if low >= 0.5 && worse.Ties < o.Ties {
				allowed = trifle
			}
			if got := worse.LowerBound(alpha); got > low+allowed {
				t.Fatalf("%+v is above %v, and %+v above %v", o, low, worse, got)
			}
		}
		if surer := o.LowerBound(alpha / 2); surer > low+1e-12 {
			t.Fatalf("%+v is above %v, and with more confidence above %v", o, low, surer)
		}
	})
}

// A judge that errs proves less, and one that may be blind proves nothing.
func TestATrueDifferenceIsBoundedByWhatTheJudgeSees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := drawOutcomes(t)
		pairs := stat.Pairs{First: o.Wins, Second: o.Losses, Both: o.Ties}
		seen := o.DifferenceAbove(0.04)
		better := stat.Table{TP: 98, FN: 2, TN: 97, FP: 3}
		worse := stat.Table{TP: 90, FN: 10, TN: 85, FP: 15}
		high, _ := pairs.TrueDifferenceAbove(better, 0.05)
		low, proven := pairs.TrueDifferenceAbove(worse, 0.05)
		if !proven || low > high+1e-12 || high > seen+1e-12 || low < -1 {
			t.Fatalf("it sees %v, and the bounds are %v and %v", seen, high, low)
		}
		if want := max(seen/worse.Bounds(0.99).Youden(), -1); seen < 0 && math.Abs(low-want) > 1e-9 {
			t.Fatalf("it sees %v, which is %v in truth, and the bound is %v", seen, want, low)
		}
		if _, proven := pairs.TrueDifferenceAbove(stat.Table{TP: 6, FN: 4, TN: 6, FP: 4}, 0.05); proven {
			t.Fatal("a judge that may be blind proves a difference")
		}
	})
}

func drawOutcomes(t *rapid.T) stat.Outcomes {
	most := rapid.SampledFrom([]int64{3, 40, 5000}).Draw(t, "most")
	count := func(name string) int64 { return rapid.Int64Range(0, most).Draw(t, name) }
	return stat.Outcomes{Wins: count("wins"), Losses: count("losses"), Ties: count("ties")}
}

func TestIntervalsOfTheWinRateHoldItAndAreSymmetric(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := drawOutcomes(t)
		i := o.Interval(0.95)
		back := stat.Outcomes{Wins: o.Losses, Losses: o.Wins, Ties: o.Ties}.Interval(0.95)
		if math.Abs(i[0]-(1-back[1])) > 1e-6 || math.Abs(i[1]-(1-back[0])) > 1e-6 {
			t.Fatalf("%+v: %v, seen from the other side %v", o, i, back)
		}
		if o.N() == 0 {
			return
		}
		if rate := o.Rate(); !i.Contains(rate) || i.Width() <= 0 || i[0] < 0 || i[1] > 1 {
			t.Fatalf("%+v: %v of %v", o, i, rate)
		}
		if low := o.LowerBound(0.05); low > o.Rate() || low < 0 {
			t.Fatalf("%+v: the lower bound of %v is %v", o, o.Rate(), low)
		}
	})
}

// The bound of a gate keeps its promise at every share of wins and ties. docs/statistics.md has more cells.
func TestTheGatesBoundCoversWithAnyShareOfTies(t *testing.T) {
	for _, n := range []int64{20, 45} {
		for _, tie := range []float64{0, 0.1, 0.5, 0.9, 0.98} {
			for i := 1; i < 20; i++ {
				win := float64(i) / 20 * (1 - tie)
				rate := 0.0 // the probability that the bound holds
				for wins := range n + 1 {
					for ties := range n - wins + 1 {
						o := stat.Outcomes{Wins: wins, Ties: ties, Losses: n - wins - ties}
						if tie == 0 && ties > 0 {
							continue
						}
						if o.LowerBound(0.05) <= win+tie/2+1e-12 {
							rate += math.Exp(logTrinomial(o, win, tie))
						}
					}
				}
				if rate < 0.95 {
					t.Errorf("%d cases, %v wins, %v ties: the bound holds with %v", n, win, tie, rate)
				}
			}
		}
	}
}

func logTrinomial(o stat.Outcomes, win, tie float64) float64 {
	total, _ := math.Lgamma(float64(o.N() + 1))
	for _, c := range []struct {
		count       int64
		probability float64
	}{{o.Wins, win}, {o.Ties, tie}, {o.Losses, 1 - win - tie}} {
		if c.count > 0 {
			total += float64(c.count) * math.Log(c.probability)
		}
		factorial, _ := math.Lgamma(float64(c.count + 1))
		total -= factorial
	}
	return total
}

// All ties prove nothing beyond one half: zero variance never passes a gate by itself.
func TestTiesAloneProveNoWinner(t *testing.T) {
	for _, n := range []int64{20, 1000} {
		if low := (stat.Outcomes{Ties: n}).LowerBound(0.05); low >= 0.5 {
			t.Errorf("%d ties: the win rate is above %v", n, low)
		}
	}
}
