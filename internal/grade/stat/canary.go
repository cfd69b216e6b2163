package stat

import "math"

// An Arm is one side of a comparison: the number of verdicts and of passes.
type Arm struct {
	N      int64 `json:"n"`
	Passed int64 `json:"passed"`
}

// Rate returns the pass rate. It is NaN when N is 0.
func (a Arm) Rate() float64 { return float64(a.Passed) / float64(a.N) }

// A bet is one component of the mixture e-process: its parameter λ, and gain = exp(λ) - 1.
type bet struct{ lambda, gain float64 }

// The bets on a higher rate and on a lower rate, on a geometric grid. They are mixed with equal weights, since the true
// difference is not known in advance.
var higher, lower = bets(1), bets(-1)

// bets returns the bets for an arm, scaled. Bets on a higher rate are positive.
func bets(scale float64) (bets [12]bet) {
	for k := range bets {
		lambda := scale * 0.05 * math.Pow(1.45, float64(k))
		bets[k] = bet{lambda, math.Expm1(lambda)}
	}
	return bets
}

// A wager is the bets on a lower rate of the base and on a higher rate of the canary.
type wager struct{ lower, higher [12]bet }

// wagers are the wagers by the canary's percent of the requests. The bets on the larger arm are smaller, in proportion:
// it is known better, and large bets on it would lose more than those on the small arm can gain. A canary with 5 % of
// the requests that is as good as the base would otherwise never be promoted. The percent is known before any verdict,
// so that any scale is valid. 0 stands for an even split.
var wagers = func() (all [101]wager) {
	for percent := range all {
		share := float64(percent) / 100
		if percent == 0 {
			share = 0.5
		}
		all[percent] = wager{bets(-min(1, share/(1-share))), bets(min(1, (1-share)/share))}
	}
	return all
}()

// against returns the logarithm of an arm's mixture e-process against the rate p, and its derivative in p (Waudby-Smith
// and Ramdas 2023).
func (a Arm) against(p float64, bets *[12]bet) (value, slope float64) {
	var terms, slopes [len(bets)]float64
	highest := math.Inf(-1)
	n, passed := float64(a.N), float64(a.Passed)
	for k, bet := range bets {
		terms[k] = bet.lambda*passed - n*math.Log1p(p*bet.gain)
		slopes[k] = -n * bet.gain / (1 + p*bet.gain)
		highest = max(highest, terms[k])
	}
	sum := 0.0
	for k, term := range terms {
		weight := math.Exp(term - highest)
		sum += weight
		slope += weight * slopes[k]
	}
	return highest + math.Log(sum/float64(len(bets))), slope / sum
}

// likelihood returns the logarithm of the likelihood ratio of an arm's own rate to the rate p.
func (a Arm) likelihood(p float64) float64 {
	n, passed := float64(a.N), float64(a.Passed)
	return ratio(passed, n*p) + ratio(n-passed, n*(1-p))
}

// ratio returns seen·ln(seen/expected), and 0 where nothing is seen.
func ratio(seen, expected float64) float64 {
	if seen == 0 {
		return 0
	}
	return seen * math.Log(seen/expected)
}

// Ahead returns the log e-value that b's rate exceeds a's by more than delta, where both get as many requests. When the
// difference is delta or less, the value ever reaches ln(1/alpha) with probability at most alpha, however often it is
// tested (Ville 1939; Howard et al. 2021). It is the gate's G+ of b over a at delta, and its G- of a over b at -delta.
// It decreases with delta.
func Ahead(a, b Arm, delta float64) float64 { return Stratum{Base: a, Canary: b}.ahead(delta) }

// A Decision is a gate's decision about a canary.
type Decision string

// The decisions.
const (
	Promote  Decision = "promote"
	Rollback Decision = "rollback"
	Continue Decision = "continue"   // the evidence is not sufficient yet
	Unproven Decision = "no_verdict" // the judge's certificate does not prove that it sees any difference
)

// A Gate decides about a canary. It may be asked after every request: a canary whose rate is worse by Margin or more is
// ever promoted with probability at most Alpha, if Youden and FalsePass are true bounds.
type Gate struct {
	Margin    float64 // the smallest decrease of the true pass rate that is not accepted
	Alpha     float64
	Minimum   int64   // the minimum number of verdicts on each arm
	Youden    float64 // Bounds.Youden of the judge's certificate
	FalsePass float64 // the upper bound of 1 - Sp, for Evidence.Add
}

// gateErrs is how often a gate may promote a canary that is truly worse by its margin. JudgeErrs is the part of it that
// the bounds of the judge may err.
const (
	gateErrs  = 0.05
	JudgeErrs = gateErrs * forJudge
)

// NewGate returns the gate of a judge with this calibration. Its e-process errs with a probability of 4 %, and the
// bounds of the judge with 1 %: a canary that is truly worse by margin or more is ever promoted with probability at
// most 5 %.
func NewGate(calibration Table, margin float64, minimum int64) Gate {
	judge := calibration.Bounds(1 - JudgeErrs)
	return Gate{
		Margin: margin, Alpha: gateErrs - JudgeErrs, Minimum: minimum,
		Youden: judge.Youden(), FalsePass: 1 - judge.Specificity[0],
	}
}

// Seen returns the margin in observed pass rates: a true difference appears in verdicts multiplied by Se + Sp - 1.
func (g Gate) Seen() float64 { return g.Margin * max(g.Youden, 0) }
