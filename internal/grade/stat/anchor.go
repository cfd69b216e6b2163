package stat

import "math"

// slack is the tolerated gap between two judges beyond what their calibrations explain.
const slack = 0.05

// MinCommon is the minimum number of common items of each class.
const MinCommon = 50

// The parts of the 5 % with which a healthy run may be held: AnchorErrs is what the e-process may err, and gapErrs what
// each bound of a gap may err. Two bounds can make a gap too small: that of the class with the greater difference, and
// that of the failures. Together they may err with a probability of 1 %, and are given two thirds of it: the score
// bound is approximate. docs/statistics.md reports its measured coverage. No other class can: its difference is
// smaller, and the greatest of the bounds is taken.
const (
	AnchorErrs = gateErrs - JudgeErrs
	gapErrs    = JudgeErrs / 3
)

// A Common counts the verdicts of the reward judges, which are the first, and of the anchor judge, which is the second,
// on the items that stand in the calibrations of both with the same verdict of people. Those that the anchor judge gave
// no verdict of are counted apart, as its fails. Asked counts what the anchor judge was asked in its calibration, of
// both halves, and Failed the answers that were no verdicts.
type Common struct {
	Pass           Pairs `json:"pass"` // items that people pass
	Fail           Pairs `json:"fail"`
	PassUnanswered Pairs `json:"pass_unanswered"`
	FailUnanswered Pairs `json:"fail_unanswered"`
	Failed         int64 `json:"failed"`
	Asked          int64 `json:"asked"`
}

// Enough reports whether the common items may be the measure of a run: MinCommon of each class.
func (c Common) Enough() bool { return min(c.Pass.Cases(), c.Fail.Cases()) >= MinCommon }

// Gap returns the largest difference between the pass rates of the reward judges and of the anchor judge that a healthy
// run can show: one that changes how many completions are good, and not how the judges err on good and on bad ones. It
// is the upper bound of the difference of the class where that is greater, at least 0, plus the upper bound of the
// anchor judge's failures, which count as fails, plus slack. The anchor judge may fail more often in one class, and a
// healthy run may come to consist of that class: the bound of the difference that counts failures as fails is taken
// where it is greater. It would suffice alone, but knows only the failures on common items.
func (c Common) Gap() float64 {
	answered := max(c.Pass.differenceBelow(), c.Fail.differenceBelow(), 0) + c.Failure()
	counted := max(c.Pass.with(c.PassUnanswered).differenceBelow(),
		c.Fail.with(c.FailUnanswered).differenceBelow())
	return max(answered, counted) + slack
}

// Failure returns the upper bound of how often the anchor judge gives no verdict (Clopper and Pearson 1934).
func (c Common) Failure() float64 { return UpperBound(c.Failed, c.Asked, 1-gapErrs) }

// differenceBelow returns an upper bound of the share that only the first passes minus the share that only the second
// passes: the score bound of Tango (1998). It is approximate, and chosen by its measured coverage where the difference
// is above 0. The exact bound of Outcomes is nearly twice as wide with 50 items, and Newcombe's covers too little.
func (p Pairs) differenceBelow() float64 {
	return -p.Outcomes().swap().scoreBound(Z(1 - 2*gapErrs))
}

// stakes are the bet sizes of the e-process. They are divided by 1 + gap, so that its wealth stays positive.
var stakes = [...]float64{0.05, 0.1, 0.2, 0.4, 0.8}

// An Anchor detects rewards that a second judge does not confirm. It is an e-process with optional stopping: a healthy
// run, whose gap is at most Gap, is ever held with probability at most alpha, even when it is tested after every check
// (Ville 1939; restarted at every check as an e-detector, Shin, Ramdas and Rinaldo 2023). An Anchor with only Gap set
// has no data.
type Anchor struct {
	Gap    float64              `json:"gap"`
	Checks int64                `json:"checks"`
	Wealth [len(stakes)]float64 `json:"wealth"` // by stake, summed over the bets started so far
}

// maxWealth bounds wealth, so that it stays finite. It is far above any 1/alpha, and a lower value is conservative.
const maxWealth = 1e100

// Check returns the Anchor after one more check. plus counts completions that only the reward judges pass, minus those
// that only the anchor judge passes, and zero those on which both agree.
func (a Anchor) Check(plus, minus, zero int64) Anchor {
	a.Checks++
	k := float64(a.Checks)
	for i, stake := range stakes {
		bet := stake / (1 + a.Gap)
		growth := float64(plus)*math.Log1p(bet*(1-a.Gap)) + float64(minus)*math.Log1p(bet*(-1-a.Gap)) +
			float64(zero)*math.Log1p(-bet*a.Gap)
		a.Wealth[i] = min((a.Wealth[i]+1/(k*(k+1)))*math.Exp(growth), maxWealth)
	}
	return a
}

// Evidence returns the e-value against a gap of at most Gap. It is 1 without data, and its expectation on a healthy run
// is at most 1.
func (a Anchor) Evidence() float64 {
	sum := 0.0
	for _, wealth := range a.Wealth {
		sum += wealth
	}
	return sum/float64(len(stakes)) + 1/float64(a.Checks+1)
}

// Holds reports whether the evidence reaches 1/alpha, so that the run must be held.
func (a Anchor) Holds(alpha float64) bool { return a.Evidence() >= 1/alpha }
