package eval

import (
	"math"
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

// A worse candidate passes at most 5 % of the time, of one, four and sixteen candidates, with calibrations and verdicts
// drawn anew each time. The judge errs, so that it sees the difference shrunk.
func TestSerialAWorseCandidateRarelyPassesTheRegressionCheck(t *testing.T) {
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

// A baseline that often gives no answer makes no candidate better than it is: its fails are no verdicts, and a judge
// would have passed some of them.
func TestABaselineThatFailsHelpsNoWorseCandidate(t *testing.T) {
	const runs, cases, margin, se, sp, answers = 400, 2000, 0.05, 0.95, 0.85, 0.6
	r := rand.New(rand.NewPCG(20260, 4))
	chance := func(p float64) bool { return r.Float64() < p }
	wrong := 0
	for range runs {
		var judge stat.Table
		for range 300 {
			if chance(se) {
				judge.TP++
			}
			if chance(sp) {
				judge.TN++
			}
		}
		judge.FN, judge.FP = 300-judge.TP, 300-judge.TN
		verdict := func(good bool) bool { return good && chance(se) || !good && !chance(sp) }
		e := &Evidence{Cases: cases, Candidates: 1, Judge: &judge}
		for range cases {
			answered := chance(answers)
			candidate := verdict(chance(0.9*answers - margin)) // the baseline's rate is 0.9 of its answers
			baseline := answered && verdict(chance(0.9))
			one := []*stat.Pairs{&e.Pairs}
			if !answered {
				one = append(one, &e.Unanswered)
			}
			for _, p := range one {
				switch {
				case candidate && baseline:
					p.Both++
				case candidate:
					p.First++
				case baseline:
					p.Second++
				default:
					p.Neither++
				}
			}
		}
		if checks, err := (&Thresholds{MaxRegression: at(margin), Confidence: 0.95}).Judge(e); err != nil {
			t.Fatal(err)
		} else if passed(checks) {
			wrong++
		}
	}
	if share := float64(wrong) / runs; share > 0.05 {
		t.Errorf("a candidate that is worse by the margin passes in %.1f %% of the runs", 100*share)
	}
}

// A certificate says how wrong the judge may be, also one of few labels: the true rate is judged, and never the judge's
// own.
func TestAPassRateIsJudgedAsTheCertificateAllows(t *testing.T) {
	e := &Evidence{Cases: 200, Candidates: 1, Pairs: stat.Pairs{Both: 190, Neither: 10}}
	for name, c := range map[string]struct {
		judge *stat.Table
		asked float64
		pass  bool
	}{
		"no certificate: as the judge sees it": {nil, 0.9, true},
		"a good judge":                         {&stat.Table{TP: 298, FN: 2, TN: 298, FP: 2}, 0.9, true},
		"a judge that may pass anything":       {&stat.Table{TP: 10, TN: 5, FP: 5}, 0.5, false},
		"labels of one class alone":            {&stat.Table{TP: 300}, 0.1, false},
		"a judge that the verdicts contradict": {&stat.Table{TP: 150, FN: 150, TN: 300}, 0.1, false},
	} {
		e.Judge = c.judge
		checks, err := (&Thresholds{MinPassRate: at(c.asked), Confidence: 0.95}).Judge(e)
		if err != nil || passed(checks) != c.pass {
			t.Errorf("%s: %v %+v", name, err, checks)
		}
	}
}

// Costs and latencies are those of the cases that have them: a few prove nothing, however many cases the run has.
func TestRatiosOfAFewCasesProveNothing(t *testing.T) {
	e := &Evidence{Cases: 500, Candidates: 1}
	for range minCases - 1 {
		e.Costs = append(e.Costs, [2]float64{1, 2})
	}
	asked := &Thresholds{MaxCostRatio: at(0.9), Confidence: 0.95}
	if checks, _ := asked.Judge(e); passed(checks) || checks[0].Bound != nil {
		t.Errorf("of %d costs: %+v", len(e.Costs), checks)
	}
	e.Costs = append(e.Costs, [2]float64{1, 2})
	if checks, _ := asked.Judge(e); !passed(checks) {
		t.Errorf("of %d costs: %+v", len(e.Costs), checks)
	}
	asked = &Thresholds{MaxLatencyRatio: at(0.9), Confidence: 0.95}
	e.Latencies = []float64{.5, .5, .5, .5}
	if checks, _ := asked.Judge(e); passed(checks) {
		t.Errorf("of four latencies: %+v", checks)
	}
	for range 30 {
		e.Latencies = append(e.Latencies, .5)
	}
	if checks, _ := asked.Judge(e); !passed(checks) {
		t.Errorf("of %d latencies: %+v", len(e.Latencies), checks)
	}
	for range 60 { // cases that the candidate alone did not answer
		e.Latencies = append(e.Latencies, math.Inf(1))
	}
	if checks, _ := asked.Judge(e); passed(checks) {
		t.Errorf("a candidate that is fast where it answers: %+v", checks)
	}
}

// No evidence at all passes no check, and no figure is one that JSON does not have.
func TestNoEvidencePassesNothing(t *testing.T) {
	for _, pairwise := range []bool{true, false} {
		for _, judge := range []*stat.Table{nil, {}, {TP: 50, TN: 50}} {
			asked := Thresholds{MaxCostRatio: at(2), MaxLatencyRatio: at(2), Confidence: 0.95}
			if pairwise {
				asked.MinWinRate = at(0.1)
			} else {
				asked.MinPassRate, asked.MaxRegression = at(0.1), at(0.9)
			}
			checks, err := asked.Judge(&Evidence{Candidates: 1, Pairwise: pairwise, Judge: judge})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range checks {
				if c.Pass {
					t.Errorf("nothing passes %s: %+v", c.Check, c)
				}
				for _, x := range []*float64{c.Observed, c.Bound} {
					if x != nil && (math.IsNaN(*x) || math.IsInf(*x, 0)) {
						t.Errorf("%s has the figure %v", c.Check, *x)
					}
				}
			}
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
