package stat

import "math"

// slack is the tolerated gap between two judges beyond what their certificates explain.
const slack = 0.05

// Gap returns the largest difference between the pass rates of the reward judge and of the anchor judge that a healthy run
// can show: the difference that their certified bounds allow at any true pass rate, plus slack.
func Gap(reward, anchor Bounds) float64 {
	return max(reward.Sensitivity[1]-anchor.Sensitivity[0], anchor.Specificity[1]-reward.Specificity[0], 0) + slack
}

// stakes are the bet sizes of the e-process. They are divided by 1 + gap, so that its wealth stays positive.
var stakes = [...]float64{0.05, 0.1, 0.2, 0.4, 0.8}

// An Anchor detects rewards that a second judge does not confirm. It is an e-process with optional stopping: a healthy run,
// whose gap is at most Gap, is ever held with probability at most alpha, even when it is tested after every check (Ville
// 1939; restarted at every check as an e-detector, Shin, Ramdas and Rinaldo 2023). An Anchor with only Gap set has no data.
type Anchor struct {
	Gap    float64              `json:"gap"`
	Checks int64                `json:"checks"`
	Wealth [len(stakes)]float64 `json:"wealth"` // by stake, summed over the bets started so far
}

// maxWealth bounds wealth, so that it stays finite. It is far above any 1/alpha, and a lower value is conservative.
const maxWealth = 1e100

// Check returns the Anchor after one more check. plus counts completions that only the reward judge passes, minus those that
// only the anchor judge passes, and zero those on which both agree.
func (a Anchor) Check(plus, minus, zero int64) Anchor {
	a.Checks++
	k := float64(a.Checks)
	for i, stake := range stakes {
		bet := stake / (1 + a.Gap)
		growth := float64(plus)*math.Log1p(bet*(1-a.Gap)) + float64(minus)*math.Log1p(bet*(-1-a.Gap)) + float64(zero)*math.Log1p(-bet*a.Gap)
		a.Wealth[i] = min((a.Wealth[i]+1/(k*(k+1)))*math.Exp(growth), maxWealth)
	}
	return a
}

// Evidence returns the e-value against a gap of at most Gap. It is 1 without data, and its expectation on a healthy run is
// at most 1.
func (a Anchor) Evidence() float64 {
	sum := 0.0
	for _, wealth := range a.Wealth {
		sum += wealth
	}
	return sum/float64(len(stakes)) + 1/float64(a.Checks+1)
}

// Holds reports whether the evidence reaches 1/alpha, so that the run must be held.
func (a Anchor) Holds(alpha float64) bool { return a.Evidence() >= 1/alpha }
