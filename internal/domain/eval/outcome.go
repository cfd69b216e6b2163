package eval

import "sovereign/internal/grade/judge"

// An Outcome is what came of a case for a candidate.
type Outcome string

// The outcomes. In a criterion's run a win is a case that the candidate passes and the baseline fails.
const (
	Win    Outcome = "win"
	Loss   Outcome = "loss"
	Tie    Outcome = "tie"
	Failed Outcome = "failed" // there is no judgement
)

// A settled case is what came of a case for one candidate.
type settled struct {
	model               int
	outcome             Outcome
	flipped             bool
	baseline, candidate judge.Verdict // of a criterion's run; "" without a judgement
	regression          float64       // the higher, the worse for the candidate
}

// A preference is what a judge said of two answers, in one order.
type preference struct {
	winner judge.Winner // as the judge was shown them
	failed bool
}

// settleComparison returns the outcome of a comparison. A model without an answer loses, and without both it is a tie;
// the judge is not asked then. In the first order the baseline's answer is A.
func settleComparison(model int, base, candidate *answer, asked, swapped preference) settled {
	s := settled{model: model}
	switch {
	case base.Failure != "" && candidate.Failure != "":
		s.outcome = Tie
	case base.Failure != "":
		s.outcome = Win
	case candidate.Failure != "":
		s.outcome = Loss
	case asked.failed || swapped.failed:
		s.outcome = Failed
	default:
		var winner judge.Winner
		winner, s.flipped = judge.Settle(asked.winner, swapped.winner)
		s.outcome = map[judge.Winner]Outcome{judge.WinnerA: Loss, judge.WinnerB: Win, judge.NoOne: Tie}[winner]
	}
	s.regression = map[Outcome]float64{Win: -1, Tie: 0, Failed: 0.5, Loss: 1}[s.outcome]
	return s
}

// A grading is what a judge said of one answer. A model without an answer fails, and the judge is not asked.
type grading struct {
	verdict judge.Verdict // "" without a judgement
	grade   float64
}

// settleCriterion returns the outcome of a case of a criterion's run.
func settleCriterion(model int, base, candidate grading) settled {
	s := settled{model: model, baseline: base.verdict, candidate: candidate.verdict}
	switch {
	case base.verdict == "" || candidate.verdict == "":
		s.outcome, s.regression = Failed, 0.5
		return s
	case base.verdict == candidate.verdict:
		s.outcome = Tie
	case candidate.verdict == judge.Pass:
		s.outcome, s.regression = Win, -1
	default:
		s.outcome, s.regression = Loss, 1
	}
	s.regression += base.grade - candidate.grade // of two losses the larger one is worse
	return s
}
