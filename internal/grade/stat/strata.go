package stat

import "math"

// A Stratum is the verdicts on both arms of a canary while its share of the traffic did not change.
type Stratum struct {
	Percent int `json:"percent,omitempty"` // of the requests that the canary gets; 0 stands for an even split
	Base    Arm `json:"base"`
	Canary  Arm `json:"canary"`
}

// joint returns the log e-value of both arms that the canary's rate exceeds the base's by more than delta, against the
// hypothesis that the base's rate is p and the canary's p+delta, and its derivative in p. It is convex in p.
func (s Stratum) joint(delta, p float64) (value, slope float64) {
	wager := &wagers[s.Percent]
	bv, bs := s.Base.against(p, &wager.lower)
	cv, cs := s.Canary.against(p+delta, &wager.higher)
	return bv + cv, bs + cs
}

// ahead returns the minimum of joint over all rates p: the log e-value that the canary's rate exceeds the base's by
// more than delta.
func (s Stratum) ahead(delta float64) float64 {
	const precise = 1e-12
	slope := func(p float64) float64 {
		_, s := s.joint(delta, p)
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
	value, _ := s.joint(delta, p)
	return value
}

// pooled estimates the base's rate if the canary's exceeds it by delta.
func (s Stratum) pooled(delta float64) float64 {
	n := max(s.Base.N+s.Canary.N, 1)
	rate := (float64(s.Base.Passed+s.Canary.Passed) - delta*float64(s.Canary.N)) / float64(n)
	return min(max(rate, 0, -delta), 1, 1-delta)
}

// swap returns the stratum with its arms exchanged.
func (s Stratum) swap() Stratum {
	if s.Percent != 0 {
		s.Percent = 100 - s.Percent
	}
	return Stratum{Percent: s.Percent, Base: s.Canary, Canary: s.Base}
}

// Strata are the strata of one canary. A base rate that drifts between two shares would mislead a test on the sums of
// all strata, so the evidence is computed within each and added: the product of their e-values is an e-value.
type Strata []Stratum

// Sum returns the arms over all strata.
func (s Strata) Sum() (base, canary Arm) {
	for _, one := range s {
		base = Arm{base.N + one.Base.N, base.Passed + one.Base.Passed}
		canary = Arm{canary.N + one.Canary.N, canary.Passed + one.Canary.Passed}
	}
	return base, canary
}

// difference returns the canary's rate minus the base's, averaged over strata with the weight of their smaller arm. It
// is NaN when no stratum has verdicts on both arms.
func (s Strata) difference() float64 {
	sum, weights := 0.0, 0.0
	for _, one := range s {
		if weight := float64(min(one.Base.N, one.Canary.N)); weight > 0 {
			sum += weight * (one.Canary.Rate() - one.Base.Rate())
			weights += weight
		}
	}
	return sum / weights
}

// ahead returns the log e-value that the canary's rate exceeds the base's by more than delta in every stratum.
func (s Strata) ahead(delta float64) (value float64) {
	for _, one := range s {
		value += one.ahead(delta)
	}
	return value
}

// reaches are upper bounds of a stratum's ahead in the order of their cost, and then ahead itself. No bet on an arm
// gains more than the likelihood ratio of the arm's own rate to the hypothesis.
var reaches = []func(s Stratum, delta float64) float64{
	func(s Stratum, delta float64) float64 {
		p := s.pooled(delta)
		return s.Base.likelihood(p) + s.Canary.likelihood(p+delta)
	},
	func(s Stratum, delta float64) float64 {
		value, _ := s.joint(delta, s.pooled(delta))
		return value
	},
	Stratum.ahead,
}

// suffices reports whether ahead is at least enough. In most calls a cheap upper bound already disproves that.
func (s Strata) suffices(delta, enough float64) bool {
	for _, reach := range reaches {
		sum := 0.0
		for _, one := range s {
			sum += reach(one, delta)
		}
		if sum < enough {
			return false
		}
	}
	return true
}

// swap returns the strata with their arms exchanged.
func (s Strata) swap() Strata {
	swapped := make(Strata, len(s))
	for i, one := range s {
		swapped[i] = one.swap()
	}
	return swapped
}

// lowest returns the lower bound of the canary's rate minus the base's.
func (s Strata) lowest(alpha float64) float64 {
	const precise = 1e-9
	excess := func(delta float64) float64 { return s.ahead(delta) - math.Log(1/alpha) }
	if excess(-1) <= 0 {
		return -1
	}
	return max(-1, root(-1, 1, precise, excess)-precise)
}

// Evidence is what is known about a canary. A verdict that is missing counts against each decision: in Promote it is a
// fail of the canary or a pass of the base, in RollBack the reverse.
type Evidence struct {
	Promote  Strata `json:"promote"`
	RollBack Strata `json:"roll_back"`
}

// Bounds returns a confidence sequence for the canary's rate minus the base's: each of the two bounds holds at all
// times simultaneously with probability at least 1-alpha.
func (e Evidence) Bounds(alpha float64) Interval {
	return Interval{e.Promote.lowest(alpha), -e.RollBack.swap().lowest(alpha)}
}

// Judge returns the decision on the evidence so far, which must come from one version of the judge.
func (g Gate) Judge(e Evidence) Decision {
	if g.Youden <= 0 {
		return Unproven
	}
	base, canary := e.Promote.Sum()
	if min(base.N, canary.N) < max(g.Minimum, 1) {
		return Continue
	}
	margin, enough := g.Seen(), math.Log(1/g.Alpha)
	switch {
	case e.Promote.difference() > -margin && e.Promote.suffices(-margin, enough):
		return Promote
	case e.RollBack.difference() < -margin && e.RollBack.swap().suffices(margin, enough):
		return Rollback
	}
	return Continue
}
