package reward

import (
	"slices"

	"sovereign/internal/domain/judging"
	"sovereign/internal/grade/judge"
)

// A Flag says what is special about a scored item, or why it has no reward.
type Flag string

// The flags.
const (
	FlagDisagree    Flag = "judges_disagree" // its judges have different verdicts
	FlagJudgeFailed Flag = "judge_failed"    // a judge gave no verdict
	FlagPending     Flag = "pending"         // not judged in time; send it again
	FlagOverBudget  Flag = "over_budget"     // the budget did not suffice
	FlagStopped     Flag = "stopped"         // the session ended first
)

// A JudgeGrade is what one judge said of an item. Grade and verdict are null where it failed, and Failure says why.
type JudgeGrade struct {
	CriterionID string         `json:"criterion_id"`
	Grade       *float64       `json:"grade" doc:"0 to 1; null where the judge failed"`
	Verdict     *judge.Verdict `json:"verdict" enum:"pass,fail"`
	Critique    string         `json:"critique,omitempty"`
	Failure     string         `json:"failure,omitempty" doc:"Why there is no grade"`
}

// An outcome is what the judges of a session make of one item. Reward is nil where a grade is missing: a missing grade
// is never 0.
type outcome struct {
	Reward  *float64
	Verdict judge.Verdict // "" without a reward
	Grades  []JudgeGrade
	Flags   []Flag
}

// combine makes the outcome of the judges' answers, one for each judge.
func combine(mode Mode, judges []Judge, answers []judging.Answer) outcome {
	o := outcome{Grades: make([]JudgeGrade, len(judges)), Flags: []Flag{}}
	failed := false
	for i, a := range answers {
		g := JudgeGrade{CriterionID: judges[i].CriterionID, Critique: a.Critique}
		if a.Failure != "" {
			failed, g.Failure = true, a.Failure
		} else {
			g.Grade, g.Verdict = &a.Grade, &a.Verdict
		}
		o.Grades[i] = g
	}
	if failed || len(answers) == 0 {
		o.Flags = append(o.Flags, FlagJudgeFailed)
		return o
	}
	reward, passes := modes[mode](judges, answers)
	o.Reward, o.Verdict = &reward, judge.Fail
	if passes {
		o.Verdict = judge.Pass
	}
	if slices.ContainsFunc(answers, func(a judging.Answer) bool { return a.Verdict != answers[0].Verdict }) {
		o.Flags = append(o.Flags, FlagDisagree)
	}
	return o
}

// modes says how each mode makes a reward and a verdict of answers that are all there.
var modes = map[Mode]func([]Judge, []judging.Answer) (reward float64, passes bool){
	Single: func(_ []Judge, answers []judging.Answer) (float64, bool) {
		return answers[0].Grade, answers[0].Verdict == judge.Pass
	},
	Weighted: func(judges []Judge, answers []judging.Answer) (float64, bool) {
		sum, weights := 0.0, 0.0
		for i, a := range answers {
			sum += judges[i].Weight * a.Grade
			weights += judges[i].Weight
		}
		mean := min(max(sum/weights, 0), 1) // rounding must not leave the range
		return mean, mean >= weightedThreshold
	},
	All: func(_ []Judge, answers []judging.Answer) (float64, bool) {
		lowest, passes := answers[0].Grade, true
		for _, a := range answers {
			lowest, passes = min(lowest, a.Grade), passes && a.Verdict == judge.Pass
		}
		return lowest, passes
	},
}

// weightedThreshold is the lowest weighted mean that passes.
const weightedThreshold = 0.5
