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

func bets(sign float64) (bets [12]bet) {
	for k := range bets {
		lambda := sign * 0.05 * math.Pow(1.45, float64(k))
		bets[k] = bet{lambda, math.Expm1(lambda)}
	}
	return bets
}

// against returns the logarithm of an arm's mixture e-process against the rate p, and its derivative in p (Waudby-Smith and
// Ramdas 2023).
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

// joint returns the log e-value of both arms that b's rate exceeds a's by more than delta, against the hypothesis that a's
// rate is p and b's is p+delta, and its derivative in p. It is convex in p.
func joint(a, b Arm, delta, p float64) (value, slope float64) {
	av, as := a.against(p, &lower)
	bv, bs := b.against(p+delta, &higher)
	return av + bv, as + bs
}

// Ahead returns the log e-value that b's rate exceeds a's by more than delta: the minimum of joint over all rates p. When
// the difference is delta or less, the value ever reaches ln(1/alpha) with probability at most alpha, however often it is
// tested (Ville 1939; Howard et al. 2021). It is the gate's G+ of b over a at delta, and its G- of a over b at -delta. It
// decreases with delta.
func Ahead(a, b Arm, delta float64) float64 {
	const precise = 1e-12
	slope := func(p float64) float64 {
		_, s := joint(a, b, delta, p)
		return s
	}
	low, high := max(0, -delta), min(1, 1-delta)
	p := low
	switch {
	case slope(low) >= 0:
	case slope(high) <= 0:
		p = high
	default:
		p = root(low, high, precise, slope)
	}
	value, _ := joint(a, b, delta, p)
	return value
}

// DifferenceBounds returns a confidence sequence for b's rate minus a's (Howard et al. 2021): each of the two bounds holds
// at all times simultaneously with probability at least 1-alpha.
func DifferenceBounds(a, b Arm, alpha float64) Interval {
	return Interval{lowest(a, b, alpha), -lowest(b, a, alpha)}
}

// lowest returns the lower bound of b's rate minus a's, rounded down.
func lowest(a, b Arm, alpha float64) float64 {
	const precise = 1e-9
	excess := func(delta float64) float64 { return Ahead(a, b, delta) - math.Log(1/alpha) }
	if excess(-1) <= 0 {
		return -1
	}
	return max(-1, root(-1, 1, precise, excess)-precise)
}

// A Decision is a gate's decision about a canary.
type Decision string

// The decisions.
const (
	Promote  Decision = "promote"
	Rollback Decision = "rollback"
	Continue Decision = "continue"   // the evidence is not sufficient yet
	Unproven Decision = "no_verdict" // the judge's certificate does not prove that it sees any difference
)

// A Gate decides about a canary. It may be asked after every request: a canary whose rate is worse by Margin or more is ever
// promoted with probability at most Alpha.
type Gate struct {
	Margin  float64 // the smallest decrease of the true pass rate that is not accepted
	Alpha   float64
	Minimum int64   // the minimum number of verdicts on each arm
	Youden  float64 // Bounds.Youden of the judge's certificate
}

// Seen returns the margin in observed pass rates: a true difference appears in verdicts multiplied by Se + Sp - 1.
func (g Gate) Seen() float64 { return g.Margin * max(g.Youden, 0) }

// Decide returns the decision on the verdicts so far, which must come from one version of the judge.
func (g Gate) Decide(base, canary Arm) Decision {
	if g.Youden <= 0 {
		return Unproven
	}
	if min(base.N, canary.N) < max(g.Minimum, 1) {
		return Continue
	}
	margin, enough := g.Seen(), math.Log(1/g.Alpha)
	switch difference := canary.Rate() - base.Rate(); {
	case difference > -margin && suffices(base, canary, -margin, enough):
		return Promote
	case difference < -margin && suffices(canary, base, margin, enough):
		return Rollback
	}
	return Continue
}

// suffices reports whether Ahead is at least enough. In most calls the e-value at a single rate already disproves that, at a
// tenth of the cost.
func suffices(a, b Arm, delta, enough float64) bool {
	pooled := (float64(a.Passed+b.Passed) - delta*float64(b.N)) / float64(a.N+b.N)
	value, _ := joint(a, b, delta, min(max(pooled, 0, -delta), 1, 1-delta))
	return value >= enough && Ahead(a, b, delta) >= enough
}
