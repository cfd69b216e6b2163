package stat

import "math"

// Outcomes counts the cases of a comparison of two systems on the same cases, as the first sees it.
type Outcomes struct {
	Wins   int64 `json:"wins"`
	Losses int64 `json:"losses"`
	Ties   int64 `json:"ties"`
}

// N returns the number of cases.
func (o Outcomes) N() int64 { return o.Wins + o.Losses + o.Ties }

// Rate returns the win rate, where a tie counts half. It is NaN without cases.
func (o Outcomes) Rate() float64 { return (float64(o.Wins) + float64(o.Ties)/2) / float64(o.N()) }

// swap returns the outcomes as the second system sees them.
func (o Outcomes) swap() Outcomes { return Outcomes{Wins: o.Losses, Losses: o.Wins, Ties: o.Ties} }

// Interval returns the score interval of the win rate: that of the paired difference of wins and losses (Tango 1998),
// mapped to the rate. It is approximate and meant to be shown; docs/statistics.md reports its measured coverage. It has
// positive width even when all cases are ties, and is [0, 1] without cases.
func (o Outcomes) Interval(confidence float64) Interval {
	if o.N() == 0 {
		return Interval{0, 1}
	}
	z := Z(confidence)
	difference := Interval{o.scoreBound(z), -o.swap().scoreBound(z)}
	return Interval{(1 + difference[0]) / 2, (1 + difference[1]) / 2}.Clip(0, 1).around(o.Rate())
}

// scoreBound returns the lower bound of Tango's interval of (wins - losses) / n.
func (o Outcomes) scoreBound(z float64) float64 {
	const edge, precise = 1e-9, 1e-10
	n, wins, losses := float64(o.N()), float64(o.Wins), float64(o.Losses)
	estimate := (wins - losses) / n
	excess := func(delta float64) float64 {
		// q is the most likely share of losses when the true difference is delta.
		b := -wins - losses + (2*n-wins+losses)*delta
		q := (math.Sqrt(max(b*b+8*n*losses*delta*(1-delta), 0)) - b) / (4 * n)
		return (wins - losses - n*delta) - z*math.Sqrt(max(n*(2*q+delta*(1-delta)), 0))
	}
	if estimate <= -1+edge || excess(-1+edge) <= 0 {
		return -1
	}
	return root(-1+edge, estimate-edge, precise, excess) // at the estimate itself it may be 0 too
}

// LowerBound returns a lower bound of the true win rate, by which a gate judges. It is at most the true rate with
// probability at least 1-alpha, whatever the shares of wins and ties: it is DifferenceAbove as a rate. It is 0 without
// cases.
func (o Outcomes) LowerBound(alpha float64) float64 { return (1 + o.DifferenceAbove(alpha)) / 2 }

// forDiffering is the share of alpha that DifferenceAbove spends on the share of cases that differ. It is small,
// because that bound hardly depends on it, and none of it is needed at a difference of 0.
const forDiffering = 0.05

// DifferenceAbove returns a lower bound of the share of wins minus the share of losses. It is at most the true
// difference with probability at least 1-alpha, always. The difference is D·(2w - 1), where D is the share of cases
// that are no ties, and w the share of those that are wins. Given how many are no ties, w has an exact bound (Clopper
// and Pearson 1934); D has one too, of which only one side can mislead: the lower where w is above ½, the upper where
// it is below. Whether the bound is above 0 is the exact sign test at 95 % of alpha. It is -1 without cases.
func (o Outcomes) DifferenceAbove(alpha float64) float64 {
	differ := o.Wins + o.Losses
	edge := 2*LowerBound(o.Wins, differ, 1-alpha*(1-forDiffering)) - 1
	share := UpperBound
	if edge >= 0 {
		share = LowerBound
	}
	return edge * share(differ, o.N(), 1-alpha*forDiffering)
}

// Outcomes returns the pairs as outcomes: a case that both pass, or neither, is a tie.
func (p Pairs) Outcomes() Outcomes {
	return Outcomes{Wins: p.First, Losses: p.Second, Ties: p.Both + p.Neither}
}

// forJudge is the share of alpha that is spent on a judge's bounds, where a decision needs both those and verdicts.
const forJudge = 0.2

// TrueDifferenceAbove returns a lower bound of the first true pass rate minus the second, of verdicts by a judge with
// this calibration. A judge sees a true difference multiplied by Se + Sp - 1, so that a loss that it sees is divided by
// the lower bound of that; a gain that it sees is at least as large in truth. It is at most the true difference with
// probability at least 1-alpha. It is false if the calibration does not prove that the judge sees any difference.
func (p Pairs) TrueDifferenceAbove(judge Table, alpha float64) (bound float64, proven bool) {
	youden := judge.Bounds(1 - alpha*forJudge).Youden()
	if youden <= 0 {
		return -1, false
	}
	bound = p.Outcomes().DifferenceAbove(alpha * (1 - forJudge))
	if bound < 0 {
		bound = max(bound/youden, -1)
	}
	return bound, true
}

// Judged returns p as verdicts of a judge with this calibration. unanswered counts the pairs of p in which the second
// gave no answer, which are its fails without a verdict. Of such fails the judge would have passed some, as it does of
// all others; that share is taken at its upper bound. Otherwise the second's rate is too low on the judge's scale, and
// the first looks better than it is. The bounds are those of TrueDifferenceAbove, so that no other error is added.
func (p Pairs) Judged(judge Table, alpha float64, unanswered Pairs) Pairs {
	falsePass := 1 - judge.Bounds(1 - alpha*forJudge).Specificity[0]
	passed := func(n int64) int64 { return int64(math.Ceil(falsePass * float64(n))) }
	wins, ties := passed(unanswered.First), passed(unanswered.Neither)
	return Pairs{Both: p.Both + wins, First: p.First - wins, Second: p.Second + ties, Neither: p.Neither - ties}
}
