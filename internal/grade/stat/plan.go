package stat

import (
	"math"
	"sort"
)

// A Plan is what is expected of a comparison before it runs: of how many cases a gate needs, not of what it decides.
type Plan struct {
	Difference float64 // the true share of wins minus that of losses
	Differ     float64 // the true share of cases that are no ties
}

// Compared plans a comparison with this true win rate and share of ties.
func Compared(rate, ties float64) Plan { return Plan{2*rate - 1, 1 - ties} }

// Graded plans a comparison of two systems whose answers a judge passes at these rates. It takes the answers to a case
// as independent, which is careful: those of systems that are alike differ less.
func Graded(candidate, baseline float64) Plan {
	return Plan{candidate - baseline, candidate*(1-baseline) + baseline*(1-candidate)}
}

// Power returns about how probable it is that DifferenceAbove(alpha) of n cases is at least threshold.
func (p Plan) Power(n int64, threshold, alpha float64) float64 {
	differ := int64(math.Round(p.Differ * float64(n)))
	least := sort.Search(int(differ)+1, func(wins int) bool {
		o := Outcomes{Wins: int64(wins), Losses: differ - int64(wins), Ties: n - differ}
		return o.DifferenceAbove(alpha) >= threshold
	})
	if int64(least) > differ {
		return 0
	}
	needed := (2*float64(least) - 1 - float64(differ)) / float64(n) // half a case less, for continuity
	deviation := math.Sqrt(max(p.Differ-p.Difference*p.Difference, 0) / float64(n))
	if deviation == 0 {
		return 1
	}
	return math.Erfc((needed-p.Difference)/deviation/math.Sqrt2) / 2
}

// CasesNeeded returns about how many cases a comparison needs, so that DifferenceAbove(alpha) is at least threshold
// with this power. It is 0 if a million do not suffice.
func (p Plan) CasesNeeded(power, threshold, alpha float64) int64 {
	const least, most = 1, 1_000_000
	suffice := func(n int64) bool { return p.Power(n, threshold, alpha) >= power }
	low, high := int64(least), int64(least)
	for !suffice(high) {
		if high >= most {
			return 0
		}
		low, high = high, min(2*high, most)
	}
	return low + int64(sort.Search(int(high-low), func(i int) bool { return suffice(low + int64(i)) }))
}

// CasesToGrade returns about how many cases a judge with this calibration needs to prove that a candidate's true pass
// rate is lower than the baseline's by less than allowed, by TrueDifferenceAbove(alpha), with this power. It is 0 if
// the judge cannot prove anything, or a million cases do not suffice.
func CasesToGrade(candidate, baseline, allowed float64, judge Table, power, alpha float64) int64 {
	youden := judge.Bounds(1 - alpha*forJudge).Youden()
	if youden <= 0 {
		return 0
	}
	seen := func(rate float64) float64 {
		tp, pass := judge.Sensitivity()
		tn, fail := judge.Specificity()
		return rate*float64(tp)/float64(pass) + (1-rate)*(1-float64(tn)/float64(fail))
	}
	return Graded(seen(candidate), seen(baseline)).CasesNeeded(power, -allowed*youden, alpha*(1-forJudge))
}
