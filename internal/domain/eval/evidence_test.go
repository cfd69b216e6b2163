package eval_test

import (
	"context"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/eval"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/stat"
	"sovereign/internal/grade/trust"
	"sovereign/internal/plane/infer"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/job"
)

func gate(t testing.TB, e *judgingtest.Env, id, candidate string, asked eval.Thresholds) (eval.Gate, *fault.Fault) {
	t.Helper()
	asked.Confidence = 0.95
	g, err := e.Evals.Gate(t.Context(), e.DB.In(mine), id, candidate, &asked)
	return g, fault.From(err)
}

func TestTheGateAnswersOrRefusesWithTheSameChecks(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		contest{better: func(item int) judge.Winner {
			if item%10 == 0 {
				return judge.WinnerA
			}
			return judge.WinnerB
		}}.install(e)
		done := run(t, e, comparison(60), job.Done)
		half, most := 0.5, 0.95
		passes, refusal := gate(t, e, done.ID, "", eval.Thresholds{MinWinRate: &half})
		if refusal != nil || !passes.Pass || passes.Candidate != judgingtest.Candidate || len(passes.Checks) != 2 || *passes.Checks[0].Observed != 0.9 || *passes.Checks[0].Bound >= 0.9 ||
			!strings.HasPrefix(passes.Plain(), "PASS: sim/candidate in place of sim/base, by "+done.ID+"\npass min_win_rate: ") {
			t.Errorf("%+v %v\n%s", passes, refusal, passes.Plain())
		}
		_, refusal = gate(t, e, done.ID, judgingtest.Candidate, eval.Thresholds{MinWinRate: &most})
		if refusal == nil || refusal.Status != 412 || !strings.Contains(refusal.Message, "1 of 2 checks failed; min_win_rate: ") || !strings.Contains(refusal.Plain, "REFUSED: ") || !strings.Contains(refusal.Plain, "\nFAIL min_win_rate: ") {
			t.Fatalf("%+v", refusal)
		}
		if beside, ok := refusal.Beside.(eval.Gate); !ok || beside.Pass || len(beside.Checks) != 2 || *beside.Checks[0].Threshold != most || beside.EvalID != done.ID {
			t.Errorf("%+v", refusal.Beside)
		}
		if nothing, refusal := gate(t, e, done.ID, "", eval.Thresholds{}); refusal != nil || !nothing.Pass || nothing.Checks == nil {
			t.Errorf("%+v %v", nothing, refusal)
		}
		_, refusal = gate(t, e, done.ID, "", eval.Thresholds{RequireTrust: trust.Provisional})
		dbtest.Refused(t, refusal, 412, "the judge is none")
		_, refusal = gate(t, e, done.ID, "", eval.Thresholds{MinPassRate: &half})
		dbtest.Refused(t, refusal, 400, "min_pass_rate")
		_, refusal = gate(t, e, done.ID, "sim/none", eval.Thresholds{})
		dbtest.Refused(t, refusal, 400, "candidate")
		few := run(t, e, comparison(19), job.Done)
		_, refusal = gate(t, e, few.ID, "", eval.Thresholds{MinWinRate: judgingtest.Ptr(0.01)})
		dbtest.Refused(t, refusal, 412, "cases")
		two := run(t, e, comparison(20, func(n *eval.NewEval) { n.CandidateModels = append(n.CandidateModels, judgingtest.OtherModel) }), job.Done)
		_, refusal = gate(t, e, two.ID, "", eval.Thresholds{})
		dbtest.Refused(t, refusal, 400, "candidate is required")
		_, refusal = gate(t, e, done.ID, "", eval.Thresholds{MaxCostRatio: judgingtest.Ptr(0.9)})
		dbtest.Refused(t, refusal, 412, "the total cost")
		if ok, refusal := gate(t, e, done.ID, "", eval.Thresholds{MaxCostRatio: judgingtest.Ptr(1.0)}); refusal != nil || *ok.Checks[0].Bound != 1 {
			t.Errorf("%+v %v", ok, refusal)
		}
	})
}

func TestTheGateOfARunThatIsNotDoneIsRefused(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		hold := judgingtest.NewGate(t)
		contest := byTurns()
		contest.before = func(*infer.Request) error { hold.Wait(); return nil }
		contest.install(e)
		begun := create(t, e, comparison(20))
		_, refusal := gate(t, e, begun.ID, "", eval.Thresholds{MinWinRate: judgingtest.Ptr(0.0)})
		dbtest.Refused(t, refusal, 412, "proves nothing: 0 of 20 cases")
		if beside, ok := refusal.Beside.(eval.Gate); !ok || beside.Checks == nil || beside.Pass {
			t.Errorf("%+v", refusal.Beside)
		}
		_, refusal = gate(t, e, begun.ID, "", eval.Thresholds{MinPassRate: judgingtest.Ptr(0.0)})
		dbtest.Refused(t, refusal, 400, "min_pass_rate")
		hold.Open()
		await(t, e, begun.ID, job.Done)
	})
}

// The gate judges by the certificate as it is now: one that is void is none, and what was found before stays.
func TestAVoidedCertificateProvesNothing(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		verdicts := map[int]judge.Verdict{}
		graded := e.Grade(t, c.ID, slices.Concat(judgingtest.Grades(60, judgingtest.Grade{Report: true, Verdict: judge.Pass}), judgingtest.Grades(60, judgingtest.Grade{Report: true, Verdict: judge.Fail}))...)
		for _, g := range graded {
			verdicts[g.Item] = g.Verdict
		}
		e.Models.Say(func(item int) string { return judgingtest.Assessment(verdicts[item], 0.5) })
		e.Calibrate(t, c.ID)
		contest{passes: func(item int, model string) bool { return item%10 != 0 || model == judgingtest.Candidate }}.install(e)
		done := run(t, e, criterionRun(200, c.ID), job.Done)
		if got := done.Candidates[0]; done.Trust != trust.Certified && done.Trust != trust.Calibrated || done.CertificateID == nil || got.Corrected == nil || *got.Corrected != 1 || *got.Difference <= 0.05 || *done.Baseline.Corrected >= 0.95 {
			t.Fatalf("%s", judgingtest.JSON(t, done))
		}
		asked := eval.Thresholds{MaxRegression: judgingtest.Ptr(0.02), RequireTrust: trust.Calibrated}
		if g, refusal := gate(t, e, done.ID, "", asked); refusal != nil || !g.Pass {
			t.Errorf("%v %+v", refusal, g)
		}
		e.DeleteLabel(t, graded[0].ID)
		_, refusal := gate(t, e, done.ID, "", asked)
		dbtest.Refused(t, refusal, 412, "max_regression", "no valid certificate", "require_trust")
		if now, err := e.Evals.Get(t.Context(), mine, done.ID); err != nil || now.Trust != trust.None || *now.Candidates[0].Corrected != 1 {
			t.Errorf("%s %v", judgingtest.JSON(t, now), err)
		}
	})
}

func TestFailsOfTheBaselineCountOnTheJudgesScale(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		graded := e.Grade(t, c.ID, slices.Concat(judgingtest.Grades(60, judgingtest.Grade{Report: true, Verdict: judge.Pass}), judgingtest.Grades(60, judgingtest.Grade{Report: true, Verdict: judge.Fail}))...)
		verdicts := map[int]judge.Verdict{}
		for _, g := range graded {
			verdicts[g.Item] = g.Verdict
		}
		e.Models.Say(func(item int) string { return judgingtest.Assessment(verdicts[item], 0.5) })
		e.Calibrate(t, c.ID)
		contest{passes: func(item int, _ string) bool { return item%4 < 3 }, before: func(r *infer.Request) error {
			if r.Model == judgingtest.Baseline && question(r)%2 == 0 {
				return fault.InvalidBody.New("too long for it")
			}
			return nil
		}}.install(e)
		done := run(t, e, criterionRun(200, c.ID), job.Done)
		g, refusal := gate(t, e, done.ID, "", eval.Thresholds{MaxRegression: judgingtest.Ptr(0.5)})
		judge := stat.Table(e.Certificate(t, c.ID).Matrix)
		pairs := stat.Pairs{Both: 50, First: 100, Neither: 50} // items 1, 5 …; 0, 2, 4 …; and 3, 7 …
		want, _ := pairs.Judged(judge, 0.05, stat.Pairs{First: 100}).TrueDifferenceAbove(judge, 0.05)
		without, _ := pairs.TrueDifferenceAbove(judge, 0.05)
		if refusal != nil || math.Abs(*g.Checks[0].Bound-want) > 1e-12 || want >= without {
			t.Errorf("%v %s, want %g, and not %g", refusal, judgingtest.JSON(t, g), want, without)
		}
	})
}

// An estimate for a gate says how many cases it takes, where the judge's certificate allows to know that.
func TestAnEstimateSaysHowManyCasesAGateNeeds(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		grades := func(v judge.Verdict) []judgingtest.Grade {
			return judgingtest.Grades(60, judgingtest.Grade{Report: true, Verdict: v})
		}
		verdicts := map[int]judge.Verdict{}
		for _, g := range e.Grade(t, c.ID, slices.Concat(grades(judge.Pass), grades(judge.Fail))...) {
			verdicts[g.Item] = g.Verdict
		}
		e.Models.Say(func(item int) string { return judgingtest.Assessment(verdicts[item], 0.5) })
		caller, asked := tenant.Caller{Workspace: mine}, eval.Plan{MaxRegression: judgingtest.Ptr(0.1), Confidence: 0.95}
		if got, err := eval.EstimateFor(t.Context(), e.Evals, caller, criterionRun(20, c.ID), asked); err != nil || got.Needed != nil {
			t.Errorf("without a certificate %s: %v", judgingtest.JSON(t, got), err)
		}
		e.Calibrate(t, c.ID)
		needed := stat.CasesToGrade(0.9, 0.9, 0.1, stat.Table(e.Certificate(t, c.ID).Matrix), 0.8, 0.05)
		if got, err := eval.EstimateFor(t.Context(), e.Evals, caller, criterionRun(20, c.ID), asked); err != nil || got.Needed == nil || *got.Needed != needed {
			t.Errorf("%s, want %d: %v", judgingtest.JSON(t, got), needed, err)
		}
		if got, err := eval.EstimateFor(t.Context(), e.Evals, caller, criterionRun(20, c.ID), eval.Plan{}); err != nil || got.Needed != nil {
			t.Errorf("without a threshold %s: %v", judgingtest.JSON(t, got), err)
		}
		if got, err := eval.EstimateFor(t.Context(), e.Evals, caller, comparison(20), asked); err != nil || got.Needed != nil {
			t.Errorf("by a rubric %s: %v", judgingtest.JSON(t, got), err)
		}
	})
}

// Every eval of a pair that was started counts; those that are done prove something, unless their cases were chosen by
// hand.
func TestProofsCountEveryEvalThatWasStarted(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		byTurns().install(e)
		e.Log(t, mine, "a", judgingtest.LogItems(5)...)
		run(t, e, comparison(2), job.Done)
		first, second := run(t, e, fromLogs(5), job.Done), run(t, e, fromLogs(4), job.Done)
		e.Runner.Pause(context.Canceled)
		begun := create(t, e, fromLogs(3))
		if _, err := e.Runner.Cancel(t.Context(), mine, ann, begun.ID); err != nil {
			t.Fatal(err)
		}
		now := clock.Now()
		n, done, err := e.Evals.Proofs(t.Context(), e.DB.In(mine), judgingtest.Baseline, judgingtest.Candidate, now, time.Hour)
		if err != nil || n != 4 || !slices.Equal(done, []eval.Proof{{second.ID, 3}, {first.ID, 2}}) {
			t.Error(n, done, err)
		}
		if n, done, err = e.Evals.Proofs(t.Context(), e.DB.In(mine), judgingtest.Candidate, judgingtest.Baseline, now, time.Hour); err != nil || n != 0 || done != nil {
			t.Error(n, done, err)
		}
		if n, _, err = e.Evals.Proofs(t.Context(), e.DB.In(mine), judgingtest.Baseline, judgingtest.Candidate, now.Add(2*time.Hour), time.Hour); err != nil || n != 0 {
			t.Error(n, err)
		}
		// The first eval is so old that it does not count any more. It did when the third was started.
		if _, err := db.Exec(t.Context(), e.DB.In(mine), `
			UPDATE eval_pairs SET created_at = created_at - $2 WHERE workspace_id = $1 AND eval_id = $3`, (50 * time.Minute).Microseconds(), first.ID); err != nil {
			t.Fatal(err)
		}
		n, done, err = e.Evals.Proofs(t.Context(), e.DB.In(mine), judgingtest.Baseline, judgingtest.Candidate, now.Add(30*time.Minute), time.Hour)
		if err != nil || n != 3 || !slices.Equal(done, []eval.Proof{{second.ID, 3}}) {
			t.Error(n, done, err)
		}
	})
}

// An endpoint is called with the parameters, costs nothing, is retried, and fails its candidate when it is deleted.
func TestEndpointsAnswerAndFailTheirCandidateWhenTheyAreDeleted(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		byTurns().install(e)
		var deleted atomic.Bool
		var called atomic.Int64
		e.Evals.Endpoints = &eval.Endpoints{
			Check: func(_ context.Context, _ db.Scoped, id string) error {
				if id != "ep_1" || deleted.Load() {
					return fault.NotFound("endpoint", id)
				}
				return nil
			},
			Complete: func(_ context.Context, ws tenant.ID, id string, body []byte) ([]byte, time.Duration, error) {
				switch n := called.Add(1); {
				case deleted.Load():
					return nil, 0, fault.NotFound("endpoint", id)
				case n%5 == 0:
					return nil, 0, fault.Upstream.New("busy")
				}
				if ws != mine || !strings.Contains(string(body), `"max_tokens":77`) || !strings.Contains(string(body), `"model":"endpoint/ep_1"`) {
					t.Errorf("%s: %s", ws, body)
				}
				return []byte(`{"choices":[{"message":{"role":"assistant","content":"reply to item 0 of sim/candidate"},"finish_reason":"stop"}]}`), 20 * time.Millisecond, nil
			},
		}
		in := func(n *eval.NewEval) {
			n.CandidateModels = []string{"endpoint/ep_1", judgingtest.OtherModel}
			n.Parameters = params(`{"max_tokens":77}`)
		}
		done := run(t, e, comparison(12, in), job.Done)
		if c := done.Candidates[0]; c.CostUSD != 0 || *c.LatencyMS != 20 || c.Cases != 12 || done.Failed.Models["endpoint/ep_1"] != 0 || done.Cost != 12*6*judgingtest.Price {
			t.Errorf("%s", judgingtest.JSON(t, done))
		}
		_, refusal := gate(t, e, done.ID, "endpoint/ep_1", eval.Thresholds{MaxCostRatio: judgingtest.Ptr(1.5)})
		dbtest.Refused(t, refusal, 400, "max_cost_ratio", "endpoint")
		_, refusal = gate(t, e, done.ID, judgingtest.OtherModel, eval.Thresholds{MaxCostRatio: judgingtest.Ptr(1.5)})
		dbtest.Refused(t, refusal, 412, "cases")
		e.Runner.Pause(context.Canceled)
		begun := create(t, e, comparison(12, in))
		deleted.Store(true)
		e.Runner.Resume()
		lost := await(t, e, begun.ID, job.Done)
		if c := lost.Candidates[0]; c.Failure == nil || !strings.Contains(*c.Failure, "ep_1") || lost.Candidates[1].Cases != 12 {
			t.Errorf("%s", judgingtest.JSON(t, lost))
		}
		_, err := e.Evals.Create(t.Context(), mine, ann, comparison(12, in))
		dbtest.Refused(t, err, 404, "ep_1")
		if again, err := e.Evals.Get(t.Context(), mine, done.ID); err != nil || again.Candidates[0].Cases != 12 {
			t.Error(again, err)
		}
	})
}

// Answers of endpoints cost nothing. One that answers without end is stopped before it fills the disk.
func TestAnEndpointThatAnswersTooMuchFailsAsAWhole(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		byTurns().install(e)
		long := `{"choices":[{"message":{"role":"assistant","content":"` + strings.Repeat("long ", 200) + `"},"finish_reason":"stop"}]}`
		e.Evals.Endpoints = &eval.Endpoints{
			Check: func(context.Context, db.Scoped, string) error { return nil },
			Complete: func(context.Context, tenant.ID, string, []byte) ([]byte, time.Duration, error) {
				return []byte(long), time.Millisecond, nil
			},
		}
		defer eval.SetMaxFree(5000)()
		done := run(t, e, comparison(30, func(n *eval.NewEval) { n.CandidateModels = []string{"endpoint/ep_1", judgingtest.Candidate} }), job.Done)
		stored, err := db.One[int64](t.Context(), e.DB.In(mine), `
			SELECT CAST(COALESCE(SUM(LENGTH(answer)), 0) AS BIGINT) FROM eval_answers WHERE workspace_id = $1 AND eval_id = $2 AND model = 1`, done.ID)
		if c := done.Candidates[0]; err != nil || stored > 5000 || c.Failure == nil || !strings.Contains(*c.Failure, "longer") || done.Candidates[1].Cases != 30 {
			t.Errorf("%d bytes are stored, %v: %s", stored, err, judgingtest.JSON(t, done))
		}
	})
}

// A page of one candidate's cases does not read the long answers of the others.
func TestAPageReadsTheAnswersThatItShows(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		byTurns().install(e)
		long := []byte(`{"choices":[{"message":{"role":"assistant","content":"` + strings.Repeat("long ", 50_000) + `"}}]}`)
		e.Evals.Endpoints = &eval.Endpoints{
			Check: func(context.Context, db.Scoped, string) error { return nil },
			Complete: func(context.Context, tenant.ID, string, []byte) ([]byte, time.Duration, error) {
				return long, time.Millisecond, nil
			},
		}
		done := run(t, e, comparison(32, func(n *eval.NewEval) { n.CandidateModels = []string{judgingtest.Candidate, "endpoint/ep_1"} }), job.Done)
		allocated := func(candidate string) uint64 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if all := cases(t, e, done.ID, eval.CaseFilter{Candidate: candidate, Sort: "regression"}); len(all) != 32 {
				t.Errorf("%d cases of %s", len(all), candidate)
			}
			runtime.ReadMemStats(&after)
			return after.TotalAlloc - before.TotalAlloc
		}
		if short, long := allocated(judgingtest.Candidate), allocated("endpoint/ep_1"); short > long/2 {
			t.Errorf("%d bytes for short answers, %d for long ones", short, long)
		}
		if all := cases(t, e, done.ID, eval.CaseFilter{Sort: "regression"}); len(all) != 64 || len(all[0].Answer.Response) == 0 {
			t.Errorf("%d cases of both", len(all))
		}
	})
}
