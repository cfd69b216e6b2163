package reward

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/domain/judging"
	"sovereign/internal/grade/judge"
)

func said(v judge.Verdict, grade float64) judging.Answer {
	return judging.Answer{Assessment: judge.Assessment{Verdict: v, Grade: grade}}
}

func TestEachModeMakesItsReward(t *testing.T) {
	judges := []Judge{{CriterionID: "a", Weight: 3}, {CriterionID: "b", Weight: 1}}
	pass, fail := said(judge.Pass, 0.75), said(judge.Fail, 0.25)
	for _, c := range []struct {
		mode    Mode
		judges  int
		answers []judging.Answer
		reward  float64
		verdict judge.Verdict
		flags   []Flag
	}{
		{Single, 1, []judging.Answer{pass}, 0.75, judge.Pass, nil},
		{Single, 1, []judging.Answer{fail}, 0.25, judge.Fail, nil},
		{Single, 1, []judging.Answer{said(judge.Fail, 0.6)}, 0.6, judge.Fail, nil}, // the judge's own threshold decides
		{Weighted, 2, []judging.Answer{pass, fail}, 0.625, judge.Pass, []Flag{FlagDisagree}},
		{Weighted, 2, []judging.Answer{fail, pass}, 0.375, judge.Fail, []Flag{FlagDisagree}},
		{Weighted, 2, []judging.Answer{said(judge.Pass, 0.5), said(judge.Pass, 0.5)}, 0.5, judge.Pass, nil},
		{All, 2, []judging.Answer{pass, pass}, 0.75, judge.Pass, nil},
		{All, 2, []judging.Answer{pass, fail}, 0.25, judge.Fail, []Flag{FlagDisagree}},
	} {
		got := combine(c.mode, judges[:c.judges], c.answers)
		if got.Reward == nil || *got.Reward != c.reward || got.Verdict != c.verdict || !slices.Equal(got.Flags, c.flags) {
			t.Errorf("%s of %+v: %+v", c.mode, c.answers, got)
		}
	}
}

// A missing grade is never 0, and never left out of a mean.
func TestAMissingGradeOfAnyJudgeIsNoReward(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "judges")
		mode := rapid.SampledFrom([]Mode{Single, Weighted, All}).Draw(t, "mode")
		judges, answers, failed := make([]Judge, n), make([]judging.Answer, n), false
		for i := range answers {
			judges[i] = Judge{CriterionID: string(rune('a' + i)), Weight: rapid.Float64Range(0.001, 1000).Draw(t, "weight")}
			answers[i] = said(rapid.SampledFrom([]judge.Verdict{judge.Pass, judge.Fail}).Draw(t, "verdict"),
				rapid.Float64Range(0, 1).Draw(t, "grade"))
			if rapid.IntRange(0, 3).Draw(t, "fails") == 0 {
				answers[i], failed = judging.Answer{Failure: "malformed: no JSON"}, true
			}
		}
		got := combine(mode, judges, answers)
		if (got.Reward == nil) != failed || (got.Verdict == "") != failed || slices.Contains(got.Flags, FlagJudgeFailed) != failed {
			t.Fatalf("%+v of %+v", got, answers)
		}
		if !failed && !(*got.Reward >= 0 && *got.Reward <= 1) {
			t.Fatalf("a reward of %v", *got.Reward)
		}
		for i, g := range got.Grades {
			if g.CriterionID != judges[i].CriterionID || (g.Grade == nil) != (answers[i].Failure != "") {
				t.Fatalf("grade %d is %+v of %+v", i, g, answers[i])
			}
		}
	})
}
