package eval

import (
	"fmt"
	"math"

	"sovereign/internal/base/fault"
	"sovereign/internal/grade/stat"
	"sovereign/internal/grade/trust"
)

// minCases is how many cases a gate needs at least.
const minCases = 20

// Thresholds are what a candidate must meet. A nil threshold is not checked.
type Thresholds struct {
	MinWinRate      *float64   `query:"min_win_rate" minimum:"0" maximum:"1" doc:"Of a pairwise run: the win rate, where a tie counts half"`
	MinPassRate     *float64   `query:"min_pass_rate" minimum:"0" maximum:"1" doc:"Of a criterion's run"`
	MaxRegression   *float64   `query:"max_regression" minimum:"0" maximum:"1" doc:"Of a criterion's run: how much lower the true pass rate may be than the baseline's"`
	MaxCostRatio    *float64   `query:"max_cost_ratio" minimum:"0" doc:"Of the candidate's total cost to the baseline's"`
	MaxLatencyRatio *float64   `query:"max_latency_ratio" minimum:"0" doc:"The median, over cases, of the candidate's latency to the baseline's"`
	RequireTrust    trust.Tier `query:"require_trust" enum:"provisional,measured,calibrated,certified" doc:"Of the judge, now"`
	Confidence      float64    `query:"confidence" default:"0.95" minimum:"0.5" maximum:"0.999999999" doc:"Of every bound, for all candidates of the run together"`
}

// A Check compares a bound with a threshold.
type Check struct {
	Check     string   `json:"check"`
	Observed  *float64 `json:"observed" doc:"The estimate; null if there is none"`
	Bound     *float64 `json:"bound" doc:"What the estimate proves at the confidence; the check is about this"`
	Threshold *float64 `json:"threshold"`
	Pass      bool     `json:"pass"`
	Reason    string   `json:"reason"`
}

// Evidence is what a run has found about one candidate.
type Evidence struct {
	Cases      int64
	Candidates int64 // of the run: the confidence is divided among them

	Pairwise bool
	Unpriced bool          // one of the two is an endpoint, whose answers cost nothing here
	Outcomes stat.Outcomes // of a pairwise run; a case without a judgement is a loss
	// of a criterion's run, the candidate first; a case without a judgement is a fail of the candidate alone
	Pairs stat.Pairs

	Unanswered stat.Pairs // of Pairs: those in which the baseline gave no answer

	Judge     *stat.Table // of the judge's valid certificate; nil without one
	Trust     trust.Tier
	Costs     [][2]float64 // by case that both answered: the candidate's and the baseline's, in dollars
	Latencies []float64    // by case: the candidate's divided by the baseline's; +Inf where only the baseline answered
}

// alpha returns the probability with which one bound about one candidate may err.
func (e *Evidence) alpha(confidence float64) float64 {
	return (1 - confidence) / float64(max(e.Candidates, 1))
}

// Judge checks a candidate. It refuses a threshold that the run cannot answer.
func (t *Thresholds) Judge(e *Evidence) (checks []Check, err error) {
	alpha := e.alpha(t.Confidence)
	for _, c := range []struct {
		name      string
		threshold *float64
		pairwise  *bool // the kind of run that answers it; nil for both
		check     func(e *Evidence, threshold, alpha float64) Check
	}{
		{"min_win_rate", t.MinWinRate, &yes, winRate},
		{"min_pass_rate", t.MinPassRate, &no, passRate},
		{"max_regression", t.MaxRegression, &no, regression},
		{costCheck, t.MaxCostRatio, nil, costRatio},
		{"max_latency_ratio", t.MaxLatencyRatio, nil, latencyRatio},
	} {
		if c.threshold == nil {
			continue
		}
		if c.pairwise != nil && *c.pairwise != e.Pairwise {
			return nil, fault.Invalid(c.name, "cannot be answered by this run: "+kindOf(e.Pairwise))
		}
		if c.name == costCheck && e.Unpriced {
			return nil, fault.Invalid(
				c.name, "cannot be answered by this run: the answers of an endpoint have no price here",
			)
		}
		check := c.check(e, *c.threshold, alpha)
		check.Check, check.Threshold = c.name, c.threshold
		checks = append(checks, check)
	}
	if t.RequireTrust != "" {
		checks = append(checks, trusted(e, t.RequireTrust))
	}
	if len(checks) > 0 {
		checks = append(checks, enough(e))
	}
	return checks, nil
}

var yes, no = true, false

const costCheck = "max_cost_ratio"

func kindOf(pairwise bool) string {
	if pairwise {
		return "it compares answers by a rubric, and has win rates"
	}
	return "it judges each answer by a criterion, and has pass rates"
}

// passed reports whether every check passed.
func passed(checks []Check) bool {
	for i := range checks {
		if !checks[i].Pass {
			return false
		}
	}
	return true
}

// finite returns a pointer to x, or nil if x is not a number that JSON has.
func finite(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

func percent(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }

func winRate(e *Evidence, threshold, alpha float64) Check {
	rate, bound := e.Outcomes.Rate(), e.Outcomes.LowerBound(alpha)
	return Check{
		Observed: finite(rate), Bound: finite(bound), Pass: bound >= threshold,
		Reason: fmt.Sprintf("it wins %d, loses %d and ties %d of %d cases: the win rate is at least %s, and %s is asked for",
			e.Outcomes.Wins, e.Outcomes.Losses, e.Outcomes.Ties, e.Outcomes.N(), percent(bound), percent(threshold)),
	}
}

// passRate judges the true pass rate if the judge has a valid certificate, and otherwise the rate as the judge sees it.
func passRate(e *Evidence, threshold, alpha float64) Check {
	n, passes := e.pairs(), e.Pairs.Both+e.Pairs.First
	rate, bound, of := float64(passes)/float64(n), stat.LowerBound(passes, n, 1-alpha), "as the judge sees it"
	if e.Judge != nil {
		var refused stat.Refusal
		bound, refused = e.Judge.PassRateAbove(passes, n, alpha)
		if refused == stat.Contradicted {
			return Check{Reason: "the verdicts contradict the judge's certificate, so that they prove nothing"}
		}
		rate, of = corrected(*e.Judge, passes, n), "corrected for the judge's errors"
	}
	return Check{
		Observed: finite(rate), Bound: finite(bound), Pass: bound >= threshold,
		Reason: fmt.Sprintf("%d of %d answers pass: the pass rate, %s, is at least %s, and %s is asked for", passes, n, of,
			percent(bound), percent(threshold)),
	}
}

// corrected estimates the true pass rate. It is NaN where the certificate does not allow that.
func corrected(judge stat.Table, passes, n int64) float64 {
	const shown = 0.95
	correction, refused := stat.Correctable(judge, shown)
	if refused != "" {
		return math.NaN()
	}
	rate, _, refused := correction.RoganGladen(passes, n)
	if refused != "" {
		return math.NaN()
	}
	return rate
}

func (e *Evidence) pairs() int64 {
	return e.Pairs.Both + e.Pairs.First + e.Pairs.Second + e.Pairs.Neither
}

// regression judges the true difference of pass rates.
func regression(e *Evidence, threshold, alpha float64) Check {
	difference, _ := e.Pairs.Difference(1 - alpha)
	c := Check{Observed: finite(difference)}
	if e.Judge == nil {
		c.Reason = "the judge has no valid certificate, so that nothing is known about how much of a difference it sees"
		return c
	}
	bound, proven := e.Pairs.Judged(*e.Judge, alpha, e.Unanswered).TrueDifferenceAbove(*e.Judge, alpha)
	if !proven {
		c.Reason = "the judge's certificate does not prove that it sees any difference"
		return c
	}
	c.Bound, c.Pass = finite(bound), bound > -threshold
	c.Reason = fmt.Sprintf("the true pass rate is at most %s points lower than the baseline's, and %s are allowed",
		points(-bound), points(threshold))
	return c
}

func points(x float64) string { return fmt.Sprintf("%.1f", 100*max(x, 0)) }

func costRatio(e *Evidence, threshold, alpha float64) Check {
	ratio, upper := stat.TotalsRatio(e.Costs, 1-alpha)
	if len(e.Costs) < minCases {
		upper = math.Inf(1)
	}
	return below("the total cost is", ratio, upper, threshold)
}

func latencyRatio(e *Evidence, threshold, alpha float64) Check {
	return below("the median latency is", stat.Median(e.Latencies), stat.MedianBelow(e.Latencies, 1-alpha), threshold)
}

func below(what string, ratio, upper, threshold float64) Check {
	c := Check{Observed: finite(ratio), Bound: finite(upper), Pass: upper <= threshold}
	if c.Bound == nil {
		c.Reason = what + " not known well enough: there are too few cases with both answers"
		return c
	}
	c.Reason = fmt.Sprintf("%s at most %.2f times the baseline's, and %.2f is allowed", what, upper, threshold)
	return c
}

func trusted(e *Evidence, tier trust.Tier) Check {
	return Check{
		Check: "require_trust", Pass: e.Trust.AtLeast(tier),
		Reason: fmt.Sprintf("the judge is %s, and %s is asked for", e.Trust, tier),
	}
}

func enough(e *Evidence) Check {
	observed, threshold := float64(e.Cases), float64(minCases)
	return Check{
		Check: "cases", Observed: &observed, Threshold: &threshold, Pass: e.Cases >= minCases,
		Reason: fmt.Sprintf("the run has %d cases, and a gate needs at least %d", e.Cases, minCases),
	}
}
