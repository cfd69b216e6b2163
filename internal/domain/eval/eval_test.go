package eval_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/eval"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/stat"
	"sovereign/internal/plane/infer"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/job"
	"sovereign/internal/store/quota"
)

func TestAComparisonShowsWhatWasAskedAnsweredAndSaid(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		byTurns().install(e)
		in := comparison(30)
		in.Cases = append(in.Cases, in.Cases[3]) // the same question
		done := run(t, e, in, job.Done)
		c := done.Candidates[0]
		want := stat.Outcomes{Wins: 10, Losses: 10, Ties: 10}
		if *c.Wins != 10 || *c.Losses != 10 || *c.Ties != 10 || *c.WinRate != 0.5 || *c.WinRateCI != want.Interval(0.95) || *done.FlipRate != 0 || c.Failed != 0 ||
			done.Cases != 30 || done.LeftOut != 1 || done.Progress != (job.Progress{Done: 30, Total: 30}) || c.PassRate != nil || c.Difference != nil {
			t.Errorf("%s", judgingtest.JSON(t, done))
		}
		// Two answers and two verdicts a case.
		if n, twice := e.Models.Answered(); n != 120 || twice || done.Cost != e.Models.Paid() || done.Estimate != 120*judgingtest.Estimate {
			t.Errorf("%d answers, twice: %v; it cost %s of %s, and was estimated at %s", n, twice, done.Cost, e.Models.Paid(), done.Estimate)
		}
		losses := cases(t, e, done.ID, eval.CaseFilter{Outcome: eval.Loss})
		if len(losses) != 10 {
			t.Fatalf("%d losses", len(losses))
		}
		l := losses[0]
		if l.ID != "2" || string(l.Messages) != string(judgingtest.Exchange(1).Messages) || !strings.Contains(string(l.Baseline.Response), "reply to item 1 of sim/base") ||
			!strings.Contains(string(l.Answer.Response), "reply to item 1 of sim/candidate") || len(l.Verdicts) != 2 || *l.Verdicts[0].ShownFirst != "baseline" || *l.Verdicts[1].ShownFirst != "candidate" ||
			*l.Verdicts[0].Winner != "baseline" || *l.Verdicts[1].Winner != "baseline" || l.Verdicts[0].Critique == "" || l.Baseline.CostUSD != judgingtest.Price || l.Flipped {
			t.Errorf("%s", judgingtest.JSON(t, l))
		}
		worst := cases(t, e, done.ID, eval.CaseFilter{Sort: "regression"})
		if len(worst) != 30 || worst[0].Outcome != eval.Loss || worst[29].Outcome != eval.Win {
			t.Errorf("%d cases from %s to %s", len(worst), worst[0].Outcome, worst[29].Outcome)
		}
		if page, _, err := e.Evals.Cases(t.Context(), mine, done.ID, &eval.CaseFilter{}, 5, 28); err != nil || len(page) != 2 || page[0].ID != "29" {
			t.Error(page, err)
		}
		if all := exported(t, e, mine, done.ID); len(all) != 30 || all[29].ID != "30" {
			t.Errorf("%d cases in the export", len(all))
		}
	})
}

// The figures of an eval, while it runs and when it is done, are what a recount of its cases gives.
func TestFiguresEqualARecountOfTheCases(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		contest{passes: func(item int, model string) bool { return (item*7+len(model))%5 > 1 }, before: func(r *infer.Request) error {
			if r.Model == judgingtest.Candidate && question(r)%9 == 4 {
				return fault.InvalidBody.New("too long for it")
			}
			return nil
		}}.install(e)
		done := run(t, e, criterionRun(40, c.ID, func(n *eval.NewEval) { n.CandidateModels = append(n.CandidateModels, judgingtest.OtherModel) }), job.Done)
		for _, got := range done.Candidates {
			var pairs stat.Pairs
			var passes, base, answered int64
			for _, one := range cases(t, e, done.ID, eval.CaseFilter{Candidate: got.Model}) {
				pass := map[string]bool{}
				for _, v := range one.Verdicts {
					pass[*v.Of] = *v.Verdict == judge.Pass
				}
				if one.Answer.Failure != nil && len(one.Verdicts) != 1 {
					t.Errorf("a judge was asked about no answer: %s", judgingtest.JSON(t, one))
				}
				if one.Answer.Failure == nil {
					answered++
				}
				cell, want := &pairs.Neither, eval.Tie
				switch {
				case pass["candidate"] && pass["baseline"]:
					cell = &pairs.Both
				case pass["candidate"]:
					cell, want = &pairs.First, eval.Win
				case pass["baseline"]:
					cell, want = &pairs.Second, eval.Loss
				}
				if *cell++; one.Outcome != want {
					t.Errorf("%s, want %s", judgingtest.JSON(t, one), want)
				}
				if pass["candidate"] {
					passes++
				}
				if pass["baseline"] {
					base++
				}
			}
			difference, interval := pairs.Difference(0.95)
			if *got.PassRate != float64(passes)/40 || *got.PassRateCI != stat.Wilson(passes, 40, 0.95) || *got.Difference != difference || *got.DifferenceCI != interval ||
				*got.PValue != stat.McNemar(pairs.First, pairs.Second) || *got.Wins != pairs.First || *got.Losses != pairs.Second || *done.Baseline.PassRate != float64(base)/40 ||
				done.Failed.Models[got.Model] != 40-answered || *got.NotCorrected != "no_certificate" || got.WinRate != nil {
				t.Errorf("%+v: %s", pairs, judgingtest.JSON(t, got))
			}
		}
	})
}

// An eval whose server is killed in any of its steps goes on, asks for nothing that is stored, and says what it paid.
func TestAnEvalThatIsKilledAtEveryStepPaysForNothingTwice(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		e.Judges.SetConcurrency(3)
		for _, in := range []eval.NewEval{
			comparison(6, func(n *eval.NewEval) { n.CandidateModels = append(n.CandidateModels, judgingtest.OtherModel) }),
			criterionRun(6, c.ID, func(n *eval.NewEval) {
				n.CandidateModels = append(n.CandidateModels, judgingtest.OtherModel)
				n.Parameters = params(`{"temperature":0.5}`) // the same questions would be the same bodies
			}),
		} {
			calls := map[bool]int{true: 6 * (3 + 4), false: 6 * (3 + 3)}[in.CriterionID == ""]
			before, _ := e.Models.Answered()
			paid := e.Models.Paid()
			var id string
			for kill := range calls / 3 {
				var running atomic.Int64
				reached, hold := make(chan struct{}), judgingtest.NewGate(t)
				e.Models.Do(func(item int, r *infer.Request) (string, error) {
					if n := running.Add(1); n == 3 {
						close(reached)
						hold.Wait()
					} else if n > 3 {
						hold.Wait()
					}
					return answerOf(item, r), nil
				})
				if kill == 0 {
					id = create(t, e, in).ID
				} else {
					e.Serve(t)
				}
				select {
				case <-reached:
				case <-t.Context().Done():
				}
				e.Runner.Pause(errors.New("killed"))
				hold.Open()
				e.Stop() // what it still does, it cannot write
				if got, err := e.Evals.Get(t.Context(), mine, id); err != nil || got.Status.Ended() {
					break
				}
			}
			e.Models.Do(func(item int, r *infer.Request) (string, error) { return answerOf(item, r), nil })
			e.Serve(t)
			done := await(t, e, id, job.Done)
			n, twice := e.Models.Answered()
			if n-before != calls || twice || done.Progress != (job.Progress{Done: 6, Total: 6}) {
				t.Errorf("%d answers, want %d; twice: %v; %s", n-before, calls, twice, judgingtest.JSON(t, done))
			}
			if done.Cost != e.Models.Paid()-paid {
				t.Errorf("it says that it cost %s, and %s was paid", done.Cost, e.Models.Paid()-paid)
			}
			if n := e.Models.Unkept(); n != 0 {
				t.Errorf("%d answers were asked for that were stored", n)
			}
		}
	})
}

// answerOf answers as a model or as either kind of judge.
func answerOf(item int, r *infer.Request) string {
	switch {
	case r.Model != judgingtest.Model:
		return fmt.Sprintf("reply to item %d of %s", question(r), r.Model)
	case strings.Contains(string(r.Body), "RESPONSE B"):
		return prefer(judge.WinnerB, candidateFirst(r))
	}
	return judgingtest.Assessment(judge.Pass, 0.9)
}

// A judge that prefers a place decides nothing: its flips are ties. One that gives no verdicts fails the cases, which
// count against the candidate in the gate.
func TestALyingJudgeHelpsNoCandidate(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		say := func(text string) {
			e.Models.Do(func(item int, r *infer.Request) (string, error) {
				if r.Model == judgingtest.Model {
					return text, nil
				}
				return answerOf(item, r), nil
			})
		}
		say(`{"critique":"the first","winner":"A"}`)
		first := run(t, e, comparison(25), job.Done)
		if c := first.Candidates[0]; *c.Ties != 25 || *c.Flipped != 25 || *first.FlipRate != 1 || *c.WinRate != 0.5 {
			t.Errorf("%s", judgingtest.JSON(t, first))
		}
		if flipped := cases(t, e, first.ID, eval.CaseFilter{Flipped: judgingtest.Ptr(true)}); len(flipped) != 25 {
			t.Errorf("%d flipped", len(flipped))
		}
		for _, text := range []string{"B is better", `{"critique":"","winner":"candidate"}`, `{"winner":"B"}`} {
			say(text)
			bad := run(t, e, comparison(25), job.Done)
			c := bad.Candidates[0]
			if c.Failed != 25 || *c.Wins+*c.Losses+*c.Ties != 0 || bad.Failed.Judge != 25 || c.WinRate != nil || bad.Cost != 25*4*judgingtest.Price {
				t.Errorf("%s", judgingtest.JSON(t, bad))
			}
			checks, err := e.Evals.Judge(t.Context(), e.DB.In(mine), bad.ID, judgingtest.Candidate, &eval.Thresholds{MinWinRate: judgingtest.Ptr(0.01), Confidence: 0.95})
			if err != nil || checks[0].Pass || *checks[0].Observed != 0 {
				t.Errorf("%v %+v", err, checks)
			}
		}
		c := e.NewCriterion(t)
		say("no idea")
		bad := run(t, e, criterionRun(25, c.ID), job.Done)
		if bad.Candidates[0].Failed != 25 || bad.Candidates[0].PassRate != nil || bad.Baseline.Failed != 25 {
			t.Errorf("%s", judgingtest.JSON(t, bad))
		}
		checks, err := e.Evals.Judge(t.Context(), e.DB.In(mine), bad.ID, judgingtest.Candidate, &eval.Thresholds{MinPassRate: judgingtest.Ptr(0.01), Confidence: 0.95})
		if err != nil || checks[0].Pass {
			t.Errorf("%v %+v", err, checks)
		}
	})
}

// A model without an answer loses; without both it is a tie. No judge is asked.
func TestAFailedGenerationIsAFailureOfItsModel(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		contest := byTurns()
		contest.before = func(r *infer.Request) error {
			n := question(r)
			if r.Model == judgingtest.Candidate && n < 4 || r.Model == judgingtest.Baseline && n >= 2 && n < 6 {
				return fault.InvalidBody.New("no")
			}
			return nil
		}
		contest.install(e)
		done := run(t, e, comparison(10), job.Done)
		for _, one := range cases(t, e, done.ID, eval.CaseFilter{}) {
			var n int
			_, _ = fmt.Sscanf(one.ID, "%d", &n)
			want := map[bool]eval.Outcome{true: eval.Win, false: eval.Loss}[n-1 >= 4]
			if n-1 == 2 || n-1 == 3 {
				want = eval.Tie
			}
			if n-1 < 6 && (one.Outcome != want || len(one.Verdicts) != 0) || n-1 >= 6 && len(one.Verdicts) != 2 {
				t.Errorf("%s", judgingtest.JSON(t, one))
			}
		}
		if done.Failed.Models[judgingtest.Candidate] != 4 || done.Failed.Models[judgingtest.Baseline] != 4 || done.Failed.Judge != 0 {
			t.Errorf("%+v", done.Failed)
		}
	})
}

// A candidate that is gone or down fails as a whole, and the others go on. Without the baseline, or any candidate, the
// run fails.
func TestACandidateThatIsGoneOrDownFailsAsAWhole(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		e.Judges.SetConcurrency(2)
		broken, refusal := judgingtest.Candidate, error(fault.ModelNotFound.New("no model sim/candidate"))
		contest := byTurns()
		contest.before = func(r *infer.Request) error {
			if r.Model == broken {
				return refusal
			}
			return nil
		}
		contest.install(e)
		two := func(n *eval.NewEval) { n.CandidateModels = append(n.CandidateModels, judgingtest.OtherModel) }
		gone := run(t, e, comparison(8, two), job.Done)
		if c := gone.Candidates[0]; c.Failure == nil || !strings.Contains(*c.Failure, "no model") || c.Cases != 0 || gone.Candidates[1].Cases != 8 {
			t.Errorf("%s", judgingtest.JSON(t, gone))
		}
		_, err := e.Evals.Gate(t.Context(), e.DB.In(mine), gone.ID, judgingtest.Candidate, &eval.Thresholds{Confidence: 0.95})
		dbtest.Refused(t, err, 412, "no model")
		refusal = fault.Upstream.New("it is down")
		down := run(t, e, comparison(60, two), job.Done)
		if c := down.Candidates[0]; c.Failure == nil || !strings.Contains(*c.Failure, "24 requests in a row") || c.Cases >= 60 || down.Candidates[1].Cases != 60 {
			t.Errorf("%s", judgingtest.JSON(t, down))
		}
		alone := run(t, e, comparison(60), job.Failed)
		if !strings.Contains(*alone.Error, "every candidate has failed") {
			t.Errorf("%s", judgingtest.JSON(t, alone))
		}
		broken, refusal = judgingtest.Baseline, fault.ModelNotFound.New("no model sim/base")
		if failed := run(t, e, comparison(8), job.Failed); !strings.Contains(*failed.Error, "the baseline sim/base failed") {
			t.Errorf("%s", judgingtest.JSON(t, failed))
		}
		broken, refusal = judgingtest.Model, fault.Upstream.New("it is down")
		if failed := run(t, e, comparison(60), job.Failed); !strings.Contains(*failed.Error, "gives no answers") {
			t.Errorf("%s", judgingtest.JSON(t, failed))
		}
		broken, refusal = judgingtest.Candidate, fault.InsufficientBalance.New("the wallet is empty")
		if failed := run(t, e, comparison(1), job.Failed); !strings.Contains(*failed.Error, "wallet") {
			t.Errorf("%s", judgingtest.JSON(t, failed))
		}
	})
}

func TestAnEvalStopsAtItsSpendingLimitAndACancelledOneKeepsWhatItHas(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		e.Judges.SetConcurrency(1)
		byTurns().install(e)
		_, err := e.Evals.Create(t.Context(), mine, ann, comparison(10, func(n *eval.NewEval) { n.Spending = judgingtest.Limit(judgingtest.Estimate) }))
		dbtest.Refused(t, err, 400, "max_cost_usd")
		limited := func(n *eval.NewEval) { n.Spending = judgingtest.Limit(10 * 4 * judgingtest.Estimate) }
		if done := run(t, e, comparison(10, limited), job.Done); done.Cost != 40*judgingtest.Price {
			t.Errorf("%s", done.Cost)
		}
		// The answers cost ten times as much as was estimated.
		e.Models.SetPrice(10 * judgingtest.Estimate)
		stopped := run(t, e, comparison(10, limited), job.Failed)
		if !strings.Contains(*stopped.Error, "max_cost_usd") || stopped.Cost != 40*judgingtest.Estimate || stopped.Done != 1 || *stopped.Candidates[0].Wins != 1 {
			t.Errorf("%s", judgingtest.JSON(t, stopped))
		}
		e.Models.SetPrice(judgingtest.Price)
		reached, hold := make(chan struct{}), judgingtest.NewGate(t)
		contest := byTurns()
		var asked atomic.Int64
		contest.before = func(*infer.Request) error {
			if asked.Add(1) == 14 {
				close(reached)
				hold.Wait()
			}
			return nil
		}
		contest.install(e)
		begun := create(t, e, comparison(10))
		<-reached
		if _, err := e.Runner.Cancel(t.Context(), mine, ann, begun.ID); err != nil {
			t.Fatal(err)
		}
		hold.Open()
		cancelled := await(t, e, begun.ID, job.Cancelled)
		if cancelled.Done != 3 || len(cases(t, e, begun.ID, eval.CaseFilter{})) != 3 || *cancelled.Candidates[0].Losses != 1 || cancelled.Cost < 12*judgingtest.Price {
			t.Errorf("%s", judgingtest.JSON(t, cancelled))
		}
		_, err = e.Evals.Gate(t.Context(), e.DB.In(mine), begun.ID, "", &eval.Thresholds{Confidence: 0.95})
		dbtest.Refused(t, err, 412, "CANCELLED")
	})
}

func TestACriterionThatChangesOrGoesFailsItsEval(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		for _, c := range []struct {
			change func(id string) error
			want   string
		}{
			{func(id string) error {
				_, err := e.Criteria.Update(t.Context(), mine, ann, id, &criterion.Definition{Rubric: judgingtest.Ptr("It is short.")}, judgingtest.Catalog{})
				return err
			}, "has changed meanwhile"},
			{func(id string) error { return e.Criteria.Delete(t.Context(), mine, ann, id) }, "no criterion"},
		} {
			of := e.NewCriterion(t)
			var asked atomic.Int64
			e.Models.Do(func(item int, r *infer.Request) (string, error) {
				if asked.Add(1) == 5 {
					if err := c.change(of.ID); err != nil {
						t.Error(err)
					}
				}
				return answerOf(item, r), nil
			})
			failed := run(t, e, criterionRun(100, of.ID), job.Failed)
			if !strings.Contains(*failed.Error, c.want) || asked.Load() > 300 {
				t.Errorf("%s after %d requests", *failed.Error, asked.Load())
			}
		}
	})
}

func TestAnotherWorkspaceFindsNothing(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		byTurns().install(e)
		c := e.NewCriterion(t)
		done := run(t, e, comparison(20), job.Done)
		ctx := t.Context()
		_, err := e.Evals.Get(ctx, theirs, done.ID)
		dbtest.Refused(t, err, 404, done.ID)
		_, _, err = e.Evals.Cases(ctx, theirs, done.ID, &eval.CaseFilter{}, 10, 0)
		dbtest.Refused(t, err, 404, done.ID)
		_, err = e.Evals.Gate(ctx, e.DB.In(theirs), done.ID, "", &eval.Thresholds{Confidence: 0.95})
		dbtest.Refused(t, err, 404, done.ID)
		_, err = e.Evals.Label(ctx, theirs, ann, done.ID, "1", eval.CaseLabel{Model: judgingtest.Baseline, Verdict: judge.Pass})
		dbtest.Refused(t, err, 404, done.ID)
		_, err = e.Evals.Create(ctx, theirs, ann, criterionRun(5, c.ID))
		dbtest.Refused(t, err, 404, c.ID)
		_, err = e.Evals.Create(ctx, theirs, ann, comparison(0, func(n *eval.NewEval) { n.DatasetID = "ds_x" }))
		dbtest.Refused(t, err, 404, "ds_x")
		if all, err := e.Evals.List(ctx, theirs, 10, 0); err != nil || len(all) != 0 {
			t.Error(all, err)
		}
		if n, ids, err := e.Evals.Proofs(ctx, e.DB.In(theirs), judgingtest.Baseline, judgingtest.Candidate, clock.Now(), time.Hour); err != nil || n != 0 || ids != nil {
			t.Error(n, ids, err)
		}
	})
}

func TestAnEvalThatBreaksARuleIsRefusedByItsField(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		for want, change := range map[string]func(*eval.NewEval){
			"name":                  func(n *eval.NewEval) { n.Name = "" },
			"rubric or":             func(n *eval.NewEval) { n.Rubric = "" },
			"rubric has":            func(n *eval.NewEval) { n.CriterionID = c.ID },
			"judge_model is":        func(n *eval.NewEval) { n.JudgeModel = "" },
			"judge_model cannot":    func(n *eval.NewEval) { n.JudgeModel = "sim/none" },
			"baseline_model":        func(n *eval.NewEval) { n.BaselineModel = "sim/none" },
			"candidate_models must": func(n *eval.NewEval) { n.CandidateModels = nil },
			"candidate_models[1]":   func(n *eval.NewEval) { n.CandidateModels = append(n.CandidateModels, judgingtest.Candidate) },
			"candidate_models[0]":   func(n *eval.NewEval) { n.CandidateModels = []string{"my-alias"} },
			"cases has":             func(n *eval.NewEval) { n.DatasetID = "ds_1" },
			"sample_filters":        func(n *eval.NewEval) { n.SampleFilters = &criterion.Filters{} },
			"reuse_logged_answers":  func(n *eval.NewEval) { n.Reuse = true },
			"sample_count":          func(n *eval.NewEval) { n.SampleCount = 5 },
			"cases[0].messages":     func(n *eval.NewEval) { n.Cases[0].Messages = []byte(`[]`) },
			"cases[1].messages":     func(n *eval.NewEval) { n.Cases[1].Messages = []byte(`"hi"`) },
			"cases[1].id":           func(n *eval.NewEval) { n.Cases[0].ID = "2" },
			"cases[0].tools":        func(n *eval.NewEval) { n.Cases[0].Tools = []byte(`{}`) },
			"parameters.stream":     func(n *eval.NewEval) { n.Parameters = params(`{"stream":true}`) },
			"parameters.n":          func(n *eval.NewEval) { n.Parameters = params(`{"n":2}`) },
			"parameters.max_tokens": func(n *eval.NewEval) { n.Parameters = params(`{"max_tokens":0}`) },
		} {
			in := comparison(2)
			change(&in)
			_, err := e.Evals.Create(t.Context(), mine, ann, in)
			dbtest.Refused(t, err, 400, want)
		}
		_, err := e.Evals.Create(t.Context(), mine, ann, comparison(2, func(n *eval.NewEval) { n.CandidateModels = []string{"endpoint/ep_1"} }))
		dbtest.Refused(t, err, 404, "ep_1")
		if _, err := quota.Set(t.Context(), e.DB, mine, ann, map[string]int64{"evals": 0}); err != nil {
			t.Fatal(err)
		}
		_, err = e.Evals.Create(t.Context(), mine, ann, comparison(2))
		dbtest.Refused(t, err, 409, "quota of evals is 0")
		if _, err := quota.Set(t.Context(), e.DB, mine, ann, map[string]int64{"evals": 5, "eval_cases": 1}); err != nil {
			t.Fatal(err)
		}
		_, err = e.Evals.Create(t.Context(), mine, ann, comparison(2))
		dbtest.Refused(t, err, 409, "quota of eval_cases is 1", "2 more do not fit")
		if n := dbtest.Count(t, e.DB, "eval_cases"); n != 0 {
			t.Errorf("%d cases of refused evals", n)
		}
	})
}

func TestAnEstimateCountsRequestsAndStartsNothing(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		in := comparison(7, func(n *eval.NewEval) { n.CandidateModels = append(n.CandidateModels, judgingtest.OtherModel) })
		got, err := e.Evals.Estimate(t.Context(), mine, in)
		if want := int64(7 * (3 + 4)); err != nil || got.Calls != want || got.CostUSD != judgingtest.Estimate*49 || got.Cases != 7 || e.Models.Calls() != 0 || dbtest.Count(t, e.DB, "evals") != 0 {
			t.Errorf("%+v %v", got, err)
		}
	})
}

// A page of long cases is shorter than was asked for, and says that there are more.
func TestAPageThatIsCutSaysThatThereAreMore(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		byTurns().install(e)
		done := run(t, e, comparison(5), job.Done)
		defer eval.SetPageBytes(300)()
		read := 0
		for {
			page, err := eval.ListCases(t.Context(), e.Evals, tenant.Caller{Workspace: mine}, done.ID, 4, read)
			if err != nil || len(page.Data) == 0 {
				t.Fatalf("after %d: %v", read, err)
			}
			if read += len(page.Data); !page.HasMore {
				break
			}
		}
		if read != 5 {
			t.Errorf("%d of 5 cases are listed", read)
		}
	})
}
