package stat

import "math"

// A Stratum is the verdicts on both arms of a canary while its share of the traffic did not change.
type Stratum struct {
	Base   Arm `json:"base"`
	Canary Arm `json:"canary"`
}

// Strata are the strata of one canary. A base rate that drifts between two shares would mislead a test on the sums of all
// strata, so the evidence is computed within each and added: the product of their e-values is an e-value.
type Strata []Stratum

// Sum returns the arms over all strata.
func (s Strata) Sum() (base, canary Arm) {
	for _, one := range s {
		base = Arm{base.N + one.Base.N, base.Passed + one.Base.Passed}
		canary = Arm{canary.N + one.Canary.N, canary.Passed + one.Canary.Passed}
	}
	return base, canary
}

// difference returns the canary's rate minus the base's, averaged over strata with the weight of their smaller arm. It is
// NaN when no stratum has verdicts on both arms.
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
		value += Ahead(one.Base, one.Canary, delta)
	}
	return value
}

// swap returns the strata with their arms exchanged.
func (s Strata) swap() Strata {
	swapped := make(Strata, len(s))
	for i, one := range s {
		swapped[i] = Stratum{Base: one.Canary, Canary: one.Base}
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

// Evidence is what is known about a canary. A verdict that is missing counts against each decision: in Promote it is a fail
// of the canary or a pass of the base, in RollBack the reverse.
type Evidence struct {
	Promote  Strata `json:"promote"`
	RollBack Strata `json:"roll_back"`
}

// Bounds returns a confidence sequence for the canary's rate minus the base's: each of the two bounds holds at all times
// simultaneously with probability at least 1-alpha.
func (e Evidence) Bounds(alpha float64) Interval {
	return Interval{e.Promote.lowest(alpha), -e.RollBack.swap().lowest(alpha)}
}

// Judge returns the decision on the evidence so far, which must come from one version of the judge. It is Decide for
// several strata.
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
	case e.Promote.difference() > -margin && e.Promote.ahead(-margin) >= enough:
		return Promote
	case e.RollBack.difference() < -margin && e.RollBack.swap().ahead(margin) >= enough:
		return Rollback
	}
	return Continue
}
