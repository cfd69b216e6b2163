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
		if low, d := (stat.Pairs{First: o.Wins, Second: o.Losses, Both: o.Ties}).DifferenceAbove(0.05), 2*o.Rate()-1; low > d+1e-9 || low < -1 {
			t.Fatalf("%+v: the lower bound of %v is %v", o, d, low)
		}
	})
}

// Both bounds of a gate keep their promise at every share of wins and ties.
func TestTheGatesBoundsCoverWithAnyShareOfTies(t *testing.T) {
	for _, n := range []int64{20, 45, 80} {
		for _, tie := range []float64{0, 0.1, 0.5, 0.9, 0.98} {
			for i := 1; i < 20; i++ {
				win := float64(i) / 20 * (1 - tie)
				rate, difference := 0.0, 0.0 // the probability that each bound holds
				for wins := range n + 1 {
					for ties := range n - wins + 1 {
						o := stat.Outcomes{Wins: wins, Ties: ties, Losses: n - wins - ties}
						if tie == 0 && ties > 0 {
							continue
						}
						probability := math.Exp(logTrinomial(o, win, tie))
						if o.LowerBound(0.05) <= win+tie/2 {
							rate += probability
						}
						p := stat.Pairs{First: wins, Second: o.Losses, Neither: ties}
						if p.DifferenceAbove(0.05) <= 2*win+tie-1+1e-12 {
							difference += probability
						}
					}
				}
				if rate < 0.95 || difference < 0.95 {
					t.Errorf("%d cases, %v wins, %v ties: the win rate's bound holds with %v, the difference's with %v",
						n, win, tie, rate, difference)
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
		if low := (stat.Pairs{Both: n}).DifferenceAbove(0.05); low >= 0 {
			t.Errorf("%d equal cases: the difference is above %v", n, low)
		}
	}
}
