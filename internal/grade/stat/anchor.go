package stat

import "math"

// slack is the gap between two judges that is forgiven beyond what their certificates explain.
const slack = 0.05

// Gap is the most that the reward judge may pass more often than the anchor judge does on a healthy run: what the worst of their certified
// bounds explain, whatever the true pass rate, and a little.
func Gap(reward, anchor Bounds) float64 {
	return max(reward.Sensitivity[1]-anchor.Sensitivity[0], anchor.Specificity[1]-reward.Specificity[0], 0) + slack
}

// stakes are how hard the anchor bets on a gap, before the division by 1 + gap that keeps it solvent.
var stakes = [...]float64{0.05, 0.1, 0.2, 0.4, 0.8}

// An Anchor watches a run for rewards that a second judge does not confirm. It is an e-process that may be looked at after every check: a
// healthy run, whose gap is at most Gap, is ever held with probability alpha at most (Ville 1939; Shin, Ramdas and Rinaldo 2023, for starting
// anew at every check). The zero Anchor with its Gap set has seen nothing.
type Anchor struct {
	Gap    float64              `json:"gap"`
	Checks int64                `json:"checks"`
	Wealth [len(stakes)]float64 `json:"wealth"` // of the bets that began so far, by stake
}

// richest bounds wealth, so that it stays a number: far beyond any alpha, and less is only more careful.
const richest = 1e100

// Check is the Anchor after one more check. Plus counts completions that only the reward judge passes, minus those that only the anchor
// passes, zero those on which both agree.
func (a Anchor) Check(plus, minus, zero int64) Anchor {
	a.Checks++
	k := float64(a.Checks)
	for i, stake := range stakes {
		bet := stake / (1 + a.Gap)
		growth := float64(plus)*math.Log1p(bet*(1-a.Gap)) + float64(minus)*math.Log1p(bet*(-1-a.Gap)) + float64(zero)*math.Log1p(-bet*a.Gap)
		a.Wealth[i] = min((a.Wealth[i]+1/(k*(k+1)))*math.Exp(growth), richest)
	}
	return a
}

// Evidence is how much speaks for a gap beyond Gap: 1 at first, and on average never more on a healthy run.
func (a Anchor) Evidence() float64 {
	sum := 0.0
	for _, wealth := range a.Wealth {
		sum += wealth
	}
	return sum/float64(len(stakes)) + 1/float64(a.Checks+1)
}

// Holds reports whether the run is to be held.
func (a Anchor) Holds(alpha float64) bool { return a.Evidence() >= 1/alpha }
