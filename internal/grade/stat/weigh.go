package stat

import "math"

// Bounds returns a confidence sequence for the arm's rate: each of the two bounds holds at all times simultaneously
// with probability at least 1-alpha, while the rate does not change (Waudby-Smith and Ramdas 2023).
func (a Arm) Bounds(alpha float64) Interval {
	const precise = 1e-9
	enough := math.Log(1 / alpha)
	above := func(p float64) float64 {
		value, _ := a.against(p, &higher)
		return value - enough
	}
	below := func(p float64) float64 {
		value, _ := a.against(p, &lower)
		return value - enough
	}
	bounds := Interval{0, 1}
	if above(0) > 0 {
		bounds[0] = max(0, root(0, 1, precise, above)-precise)
	}
	if below(1) > 0 {
		bounds[1] = min(1, root(0, 1, precise, below)+precise)
	}
	return bounds
}

// Difference returns the canary's rate minus the base's, averaged over strata with the weight of their smaller arm. It
// is false while no stratum has samples of both arms.
func (s Strata) Difference() (difference float64, ok bool) {
	difference = s.difference()
	return difference, !math.IsNaN(difference)
}

// A Weight is how much evidence there is for each decision, as logarithms of e-values. A decision needs at least
// Needed.
type Weight struct {
	Promote  float64
	RollBack float64
	Needed   float64
}

// Weigh returns the evidence for each decision of g. It is 0 for both while the judge does not prove anything.
func (g Gate) Weigh(e Evidence) Weight {
	w := Weight{Needed: math.Log(1 / g.Alpha)}
	if g.Youden > 0 {
		w.Promote, w.RollBack = e.Promote.ahead(-g.Seen()), e.RollBack.swap().ahead(g.Seen())
	}
	return w
}

// Leaves counts, for each arm, the requests whose caller left (Passed) among those whose outcome a caller could know.
type Leaves Strata

// Differ reports whether the callers of one arm leave more often: the rates differ by at least margin, and an e-value
// shows that they are not equal. Callers of equal arms appear to differ with probability at most 2 alpha, however often
// it is asked.
func (l Leaves) Differ(margin, alpha float64) bool {
	s, enough := Strata(l), math.Log(1/alpha)
	difference, ok := s.Difference()
	return ok && math.Abs(difference) >= margin && (s.ahead(0) >= enough || s.swap().ahead(0) >= enough)
}
