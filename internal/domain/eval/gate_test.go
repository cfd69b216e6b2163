package eval

import (
	"math/rand/v2"
	"testing"

	"sovereign/internal/base/fault"
	"sovereign/internal/grade/stat"
	"sovereign/internal/grade/trust"
)

func at(x float64) *float64 { return &x }

func TestAGateJudgesTheBoundAndNotTheEstimate(t *testing.T) {
	e := &Evidence{Cases: 100, Candidates: 1, Pairwise: true, Outcomes: stat.Outcomes{Wins: 55, Losses: 45}}
	checks, err := (&Thresholds{MinWinRate: at(0.5), Confidence: 0.95}).Judge(e)
	if err != nil || passed(checks) || *checks[0].Observed != 0.55 || *checks[0].Bound >= 0.5 {
		t.Errorf("55 of 100: %v %+v", err, checks)
	}
	e.Outcomes = stat.Outcomes{Wins: 65, Losses: 35}
	if checks, _ = (&Thresholds{MinWinRate: at(0.5), Confidence: 0.95}).Judge(e); !passed(checks) {
		t.Errorf("65 of 100: %+v", checks)
	}
	e.Candidates = 16
	if checks, _ = (&Thresholds{MinWinRate: at(0.55), Confidence: 0.95}).Judge(e); passed(checks) {
		t.Errorf("65 of 100, the best of sixteen: %+v", checks)
	}
}

func TestFewCasesNeverPassAndNoCheckAlwaysDoes(t *testing.T) {
	e := &Evidence{Cases: 19, Candidates: 1, Pairwise: true, Outcomes: stat.Outcomes{Wins: 19}, Trust: trust.Certified}
	for _, thresholds := range []Thresholds{
		{MinWinRate: at(0.1), Confidence: 0.95}, {RequireTrust: trust.Measured, Confidence: 0.95},
	} {
		if checks, err := thresholds.Judge(e); err != nil || passed(checks) {
			t.Errorf("%v %+v", err, checks)
		}
	}
	if checks, err := (&Thresholds{Confidence: 0.95}).Judge(e); err != nil || !passed(checks) || len(checks) != 0 {
		t.Errorf("nothing is asked: %v %+v", err, checks)
	}
}

func TestACheckThatTheRunCannotAnswerIsRefused(t *testing.T) {
	for _, c := range []struct {
		pairwise bool
		asked    Thresholds
	}{
		{true, Thresholds{MinPassRate: at(0.5)}},
		{true, Thresholds{MaxRegression: at(0.5)}},
		{false, Thresholds{MinWinRate: at(0.5)}},
	} {
		c.asked.Confidence = 0.95
		if _, err := c.asked.Judge(&Evidence{Cases: 50, Candidates: 1, Pairwise: c.pairwise}); err == nil || fault.From(err).Status != 400 {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// A worse candidate passes at most 5 % of the time, of one, four and sixteen candidates, with calibrations and verdicts drawn
// anew each time. The judge errs, so that it sees the difference shrunk.
func TestAWorseCandidateRarelyPassesTheRegressionCheck(t *testing.T) {
	const runs, cases, margin, se, sp = 1500, 200, 0.10, 0.92, 0.90
	r := rand.New(rand.NewPCG(20260, 3))
	binomial := func(n int, p float64) (x int64) {
		for range n {
			if r.Float64() < p {
				x++
			}
		}
		return x
	}
	for _, candidates := range []int64{1, 4, 16} {
		wrong := 0
		for range runs {
			judge := stat.Table{TP: binomial(150, se), TN: binomial(150, sp)}
			judge.FN, judge.FP = 150-judge.TP, 150-judge.TN
			any := false
			for range candidates {
				e := &Evidence{Cases: cases, Candidates: candidates, Judge: &judge}
				for range cases {
					base := r.Float64() < 0.9
					good := base && r.Float64() < (0.9-margin)/0.9 // worse by the margin
					verdict := func(good bool) bool {
						if good {
							return r.Float64() < se
						}
						return r.Float64() >= sp
					}
					switch candidate, baseline := verdict(good), verdict(base); {
					case candidate && baseline:
						e.Pairs.Both++
					case candidate:
						e.Pairs.First++
					case baseline:
						e.Pairs.Second++
					default:
						e.Pairs.Neither++
					}
				}
				checks, err := (&Thresholds{MaxRegression: at(margin), Confidence: 0.95}).Judge(e)
				if err != nil {
					t.Fatal(err)
				}
				any = any || passed(checks)
			}
			if any {
				wrong++
			}
		}
		if share := float64(wrong) / runs; share > 0.05 {
			t.Errorf("%d candidates: one passes in %.1f %% of the runs", candidates, 100*share)
		}
	}
}

func TestZeroVarianceDoesNotPassByItself(t *testing.T) {
	perfect := &stat.Table{TP: 100, TN: 100}
	e := &Evidence{Cases: 20, Candidates: 1, Pairs: stat.Pairs{Both: 20}, Judge: perfect}
	if checks, _ := (&Thresholds{MaxRegression: at(0.02), Confidence: 0.95}).Judge(e); passed(checks) {
		t.Errorf("twenty equal cases prove that 2 points are not lost: %+v", checks)
	}
	e.Cases, e.Pairs.Both = 2000, 2000
	if checks, _ := (&Thresholds{MaxRegression: at(0.02), Confidence: 0.95}).Judge(e); !passed(checks) {
		t.Errorf("two thousand equal cases: %+v", checks)
	}
}
