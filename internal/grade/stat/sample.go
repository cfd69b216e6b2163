package stat

// A Result is what became of a request that was drawn for a canary's gate.
type Result string

// The results.
const (
	Passed   Result = "pass"    // by the judge's verdict
	Rejected Result = "fail"    // by the judge's verdict
	Errored  Result = "error"   // the arm's model failed: an error, a timeout, a broken stream, a fallback
	Missing  Result = "missing" // it was answered, and the judge has no verdict after all retries
)

// A Sample is a request that was drawn for a canary's gate.
type Sample struct {
	Stratum int // from 1; a change of the canary's share begins the next
	Percent int // of the requests that the canary gets in this stratum; 0 stands for an even split
	Canary  bool
	Result  Result
	Uniform float64 // in [0, 1), drawn by a hash of the request's id: the same sample counts the same twice
}

// Add counts a sample. Samples are added in the order in which they were drawn: an order that depends on results would
// void the guarantee.
//
// A missing verdict counts against the decision. An errored request is a fail; but a judge passes some bad answers, so
// that in Promote an errored request of the base, and in RollBack one of the canary, passes with the probability
// falsePass, the upper bound of 1 - Sp. Otherwise errors would weigh more than bad answers.
func (e *Evidence) Add(s Sample, falsePass float64) {
	e.Promote = e.Promote.add(s, !s.Canary, falsePass)
	e.RollBack = e.RollBack.add(s, s.Canary, falsePass)
}

// add counts a sample. lenient says that a pass of its arm is evidence against the decision.
func (s Strata) add(one Sample, lenient bool, falsePass float64) Strata {
	for len(s) < one.Stratum {
		s = append(s, Stratum{})
	}
	stratum := &s[one.Stratum-1]
	stratum.Percent = one.Percent
	arm := &stratum.Base
	if one.Canary {
		arm = &stratum.Canary
	}
	arm.N++
	switch {
	case one.Result == Passed, one.Result == Missing && lenient, one.Result == Errored && lenient &&
		one.Uniform < falsePass:
		arm.Passed++
	}
	return s
}
