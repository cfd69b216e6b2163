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

// Interval returns the score interval of the win rate: that of the paired difference of wins and losses (Tango 1998), mapped
// to the rate. It is approximate and meant to be shown: at the edges a 90 % interval misses up to 10 % on one side. It has
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

// LowerBound returns a lower bound of the true win rate. A gate judges by it: with any shares of wins and ties it is at most
// the true rate with probability at least 1-alpha. It is the exact bound of a proportion (Clopper and Pearson 1934) with
// every second tie as a win; ties only make the wins vary less, and the tests of this package measure the coverage. It is 0
// without cases.
func (o Outcomes) LowerBound(alpha float64) float64 {
	return LowerBound(o.Wins+o.Ties/2, o.N(), 1-alpha)
}

// Outcomes returns the pairs as outcomes: a case that both pass, or neither, is a tie.
func (p Pairs) Outcomes() Outcomes {
	return Outcomes{Wins: p.First, Losses: p.Second, Ties: p.Both + p.Neither}
}

// DifferenceAbove returns a lower bound of the first pass rate minus the second. It is at most the true difference with
// probability at least 1-alpha, always. The difference is D·(2w - 1), where D is the share of cases on which the two differ,
// and w the share of those that the first passes. Each has an exact bound (Clopper and Pearson 1934), which together err with
// probability alpha. It is -1 without cases.
func (p Pairs) DifferenceAbove(alpha float64) float64 {
	const forShare = 0.2 // of alpha, for D
	o := p.Outcomes()
	differ, n := o.Wins+o.Losses, o.N()
	edge := 2*LowerBound(o.Wins, differ, 1-alpha*(1-forShare)) - 1
	share := ClopperPearson(differ, n, 1-alpha*forShare)
	if edge >= 0 {
		return edge * share[0]
	}
	return edge * share[1]
}
