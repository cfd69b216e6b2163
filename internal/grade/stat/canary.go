package stat

import "math"

// An Arm is one side of a comparison: how many were judged, and how many of them passed.
type Arm struct {
	N      int64 `json:"n"`
	Passed int64 `json:"passed"`
}

// Rate is the share that passed. Of nothing, it is not a number.
func (a Arm) Rate() float64 { return float64(a.Passed) / float64(a.N) }

// A bet is how hard the e-process bets on a rate, λ, and what a pass gains it.
type bet struct{ lambda, gain float64 }

// The bets on a higher rate, and those on a lower one. They are mixed evenly, since the true difference is not known beforehand.
var higher, lower = bets(1), bets(-1)

func bets(sign float64) (bets [12]bet) {
	for k := range bets {
		lambda := sign * 0.05 * math.Pow(1.45, float64(k))
		bets[k] = bet{lambda, math.Expm1(lambda)}
	}
	return bets
}

// against is the logarithm of the mixed e-process of an arm against the rate p, and its slope in p (Waudby-Smith and Ramdas 2023).
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

// joint is the evidence of both arms that b's rate is more than delta above a's, against a's being p, and its slope in p. It is convex in p.
func joint(a, b Arm, delta, p float64) (value, slope float64) {
	av, as := a.against(p, &lower)
	bv, bs := b.against(p+delta, &higher)
	return av + bv, as + bs
}

// Ahead is the logarithm of the evidence that b's rate is more than delta above a's: the least over all pairs of rates where it is not. Looked
// at as often as one likes, it ever reaches ln(1/alpha) with probability alpha at most where it is not so (Ville 1939; Howard et al. 2021).
// It is the gate's G+ of b over a at delta, and its G- of a over b at -delta. It falls as delta rises.
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

// DifferenceBounds are bounds of b's rate less a's that hold at every look at once, each with probability 1-alpha (Howard et al. 2021).
func DifferenceBounds(a, b Arm, alpha float64) Interval {
	return Interval{lowest(a, b, alpha), -lowest(b, a, alpha)}
}

// lowest is the lower bound of b's rate less a's. Where it has to round it rounds down.
func lowest(a, b Arm, alpha float64) float64 {
	const precise = 1e-9
	excess := func(delta float64) float64 { return Ahead(a, b, delta) - math.Log(1/alpha) }
	if excess(-1) <= 0 {
		return -1
	}
	return max(-1, root(-1, 1, precise, excess)-precise)
}

// A Verdict is what a gate says of a canary.
type Decision string

// The verdicts.
const (
	Promote  Decision = "promote"
	Rollback Decision = "rollback"
	Continue Decision = "continue"   // the evidence does not suffice yet
	Unproven Decision = "no_verdict" // the judge's certificate does not prove that it sees any difference
)

// A Gate decides about a canary, and may be asked after every request. A canary whose rate is worse by Margin or more is ever promoted with
// probability Alpha at most.
type Gate struct {
	Margin  float64 // how much worse is too much, in true pass rates
	Alpha   float64
	Minimum int64   // judged on each arm before anything is decided
	Youden  float64 // what the judge is sure to see of a difference: Bounds.Youden of its certificate
}

// Seen is the margin as the judge sees it: a true difference shrinks by Se + Sp - 1 in verdicts.
func (g Gate) Seen() float64 { return g.Margin * max(g.Youden, 0) }

// Decide is the verdict on what was judged so far by one version of the judge.
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

// suffices reports whether Ahead is at least enough. At most looks a single rate denies that, at a tenth of the cost.
func suffices(a, b Arm, delta, enough float64) bool {
	pooled := (float64(a.Passed+b.Passed) - delta*float64(b.N)) / float64(a.N+b.N)
	value, _ := joint(a, b, delta, min(max(pooled, 0, -delta), 1, 1-delta))
	return value >= enough && Ahead(a, b, delta) >= enough
}
