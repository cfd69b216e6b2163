package eval_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"sovereign/internal/base/clock"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/eval"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/live"
	"sovereign/internal/plane/infer"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/job"
)

// fromLogs asks for a comparison on n logged exchanges.
func fromLogs(n int, change ...func(*eval.NewEval)) eval.NewEval {
	in := comparison(0, change...)
	in.Cases, in.SampleCount = nil, n
	return in
}

func TestCasesOfLogsAreDrawnWithoutRepeatsAndBySeed(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		byTurns().install(e)
		items := judgingtest.LogItems(30)
		e.Log(t, mine, "a", append(items, items[0], items[1])...)
		e.Log(t, theirs, "a", 7_000_000)
		seed := int64(7)
		ids := func(in eval.NewEval) (all []string) {
			in.Seed = &seed
			done := run(t, e, in, job.Done)
			for _, c := range cases(t, e, done.ID, eval.CaseFilter{}) {
				all = append(all, *c.RequestID)
			}
			if done.Source != "logs" || done.LeftOut != 2 {
				t.Errorf("%s", judgingtest.JSON(t, done))
			}
			return all
		}
		all := ids(fromLogs(100))
		if slices.Sort(all); len(all) != 30 || len(slices.Compact(all)) != 30 || slices.Contains(all, "req_log_7000000") {
			t.Errorf("%d cases: %v", len(all), all)
		}
		first, again := ids(fromLogs(10)), ids(fromLogs(10))
		if len(first) != 10 || !slices.Equal(first, again) {
			t.Errorf("the same seed draws %v and %v", first, again)
		}
		seed++
		other := ids(fromLogs(10))
		if slices.Equal(first, other) {
			t.Error("another seed draws the same")
		}
		if _, err := db.Exec(t.Context(), e.DB.In(mine), `UPDATE eval_secrets SET secret = $2 WHERE workspace_id = $1`, []byte("another")); err != nil {
			t.Fatal(err)
		}
		if slices.Equal(other, ids(fromLogs(10))) {
			t.Error("the secret of the workspace does not matter")
		}
		_, err := e.Evals.Create(t.Context(), mine, ann, fromLogs(10, func(n *eval.NewEval) { n.SampleFilters = &criterion.Filters{Tag: "none"} }))
		dbtest.Refused(t, err, 412, "no logged exchange matches")
		e.Settings.Put(mine, live.Settings{})
		_, err = e.Evals.Create(t.Context(), mine, ann, fromLogs(10))
		dbtest.Refused(t, err, 409, "logging")
	})
}

// The baseline's logged answer is taken where it was logged, costs nothing, and is marked.
func TestLoggedAnswersAreReusedForTheirOwnModelOnly(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		var once sync.Once
		byTurns().install(e)
		e.Log(t, mine, "a", judgingtest.LogItems(12)...) // logged from sim/chat
		reuse := func(n *eval.NewEval) { n.Reuse = true }
		done := run(t, e, fromLogs(12, reuse), job.Done)
		if done.Baseline.Reused != 0 || done.Cost != 48*judgingtest.Price {
			t.Errorf("another model's answers were reused: %s", judgingtest.JSON(t, done))
		}
		if _, err := db.Exec(t.Context(), e.LogDB.In(mine), `UPDATE log_rows SET model = $2, cost = 7000000 WHERE workspace_id = $1`, judgingtest.Baseline); err != nil {
			t.Fatal(err)
		}
		estimate, err := e.Evals.Estimate(t.Context(), mine, fromLogs(12, reuse))
		if err != nil || estimate.Calls != 36 {
			t.Errorf("%+v %v", estimate, err)
		}
		reached, hold := make(chan struct{}), judgingtest.NewGate(t)
		stopped := byTurns()
		stopped.before = func(*infer.Request) error { once.Do(func() { close(reached) }); hold.Wait(); return nil }
		stopped.install(e)
		begun := create(t, e, fromLogs(12, reuse))
		<-reached
		e.Runner.Pause(errors.New("killed"))
		hold.Open()
		e.Stop()
		byTurns().install(e)
		e.Serve(t)
		done = await(t, e, begun.ID, job.Done)
		if done.Baseline.Reused != 12 || done.Cost != 36*judgingtest.Price || done.Baseline.CostUSD != 12*7000000 {
			t.Errorf("%s", judgingtest.JSON(t, done))
		}
		for _, c := range cases(t, e, done.ID, eval.CaseFilter{}) {
			if !c.Baseline.Reused || c.Answer.Reused || *c.Baseline.RequestID != *c.RequestID || strings.Contains(string(c.Baseline.Response), "sim/base") {
				t.Errorf("%s", judgingtest.JSON(t, c))
			}
		}
	})
}

// The texts of cases go with the log that they come from; what was found stays.
func TestTextsOfLogsExpireAndResultsStay(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		byTurns().install(e)
		e.Log(t, mine, "a", judgingtest.LogItems(9)...)
		done, kept := run(t, e, fromLogs(9), job.Done), run(t, e, comparison(3), job.Done)
		if c := cases(t, e, done.ID, eval.CaseFilter{})[0]; c.ExpiresAt == nil || len(c.Messages) < 10 {
			t.Errorf("%s", judgingtest.JSON(t, c))
		}
		if _, err := db.Exec(t.Context(), e.DB.In(mine), `UPDATE eval_cases SET expires_at = $2 WHERE workspace_id = $1 AND expires_at > 0`, clock.Now()-1); err != nil {
			t.Fatal(err)
		}
		e.Sweep(t)
		for _, c := range cases(t, e, done.ID, eval.CaseFilter{}) {
			if string(c.Messages) != "null" || string(c.Baseline.Response) != "null" || string(c.Answer.Response) != "null" || c.Verdicts[0].Critique != "" || c.Outcome == "" || c.Verdicts[0].Winner == nil {
				t.Errorf("%s", judgingtest.JSON(t, c))
			}
		}
		if again, err := e.Evals.Get(t.Context(), mine, done.ID); err != nil || *again.Candidates[0].Wins != *done.Candidates[0].Wins {
			t.Error(again, err)
		}
		_, err := e.Evals.Label(t.Context(), mine, ann, done.ID, "1", eval.CaseLabel{Model: judgingtest.Baseline, Verdict: judge.Pass})
		dbtest.Refused(t, err, 409, "deleted")
		if c := cases(t, e, kept.ID, eval.CaseFilter{})[0]; len(c.Messages) < 10 || c.ExpiresAt != nil || c.Verdicts[0].Critique == "" {
			t.Errorf("%s", judgingtest.JSON(t, c))
		}
	})
}

// An eval whose texts expire while it waits ends all the same: those cases fail.
func TestCasesWhoseTextsAreGoneFail(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		byTurns().install(e)
		c := e.NewCriterion(t)
		e.Log(t, mine, "a", judgingtest.LogItems(5)...)
		for _, in := range []eval.NewEval{fromLogs(5), criterionRun(0, c.ID, func(n *eval.NewEval) { n.SampleCount = 5 })} {
			in.Cases = nil
			e.Runner.Pause(errors.New("until the texts are gone"))
			begun := create(t, e, in)
			if _, err := db.Exec(t.Context(), e.DB.In(mine), `UPDATE eval_cases SET expires_at = $2 WHERE workspace_id = $1 AND expires_at > 0`, clock.Now()-1); err != nil {
				t.Fatal(err)
			}
			e.Sweep(t)
			e.Runner.Resume()
			if done := await(t, e, begun.ID, job.Done); done.Candidates[0].Failed != 5 || done.Cost != 0 {
				t.Errorf("%s", judgingtest.JSON(t, done))
			}
		}
	})
}

// Texts that expire while models answer are not stored after the sweep that deletes them.
func TestTextsThatExpireDuringARunAreNotStored(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		e.Log(t, mine, "a", judgingtest.LogItems(3)...)
		e.Judges.SetConcurrency(3) // all cases are begun before the sweep
		for _, in := range []eval.NewEval{fromLogs(3), criterionRun(0, c.ID, func(n *eval.NewEval) { n.SampleCount = 3 })} {
			in.Cases = nil
			hold, asked := judgingtest.NewGate(t), make(chan struct{}, 100)
			e.Models.Do(func(item int, r *infer.Request) (string, error) {
				asked <- struct{}{}
				hold.Wait()
				return answerOf(item, r), nil
			})
			e.Runner.Pause(errors.New("until the texts expire"))
			begun := create(t, e, in)
			if _, err := db.Exec(t.Context(), e.DB.In(mine), `UPDATE eval_cases SET expires_at = $2 WHERE workspace_id = $1 AND expires_at > 0`, clock.Now()-1); err != nil {
				t.Fatal(err)
			}
			e.Runner.Resume()
			for range 3 {
				<-asked
			}
			e.Sweep(t)
			hold.Open()
			done := await(t, e, begun.ID, job.Done)
			if done.Candidates[0].Failed != 0 {
				t.Errorf("%s", judgingtest.JSON(t, done))
			}
			for _, one := range cases(t, e, done.ID, eval.CaseFilter{}) {
				for _, v := range one.Verdicts {
					if v.Critique != "" {
						t.Errorf("a critique stays: %s", judgingtest.JSON(t, v))
					}
				}
				if string(one.Baseline.Response) != "null" || string(one.Answer.Response) != "null" {
					t.Errorf("an answer stays: %s", judgingtest.JSON(t, one))
				}
			}
		}
	})
}

// newDataset stores a dataset of the lines.
func newDataset(t *testing.T, e *judgingtest.Env, lines ...string) string {
	t.Helper()
	if _, err := db.Exec(t.Context(), e.DB.In(mine), `
		INSERT INTO datasets (workspace_id, id, name, role, row_count, provenance, curation, created_at)
		VALUES ($1, 'ds_1', 'examples', 'eval', $2, '{}', '{}', 1)`, len(lines)); err != nil {
		t.Fatal(err)
	}
	for i, line := range lines {
		if _, err := db.Exec(t.Context(), e.DB.In(mine), `INSERT INTO dataset_examples (workspace_id, hash, line) VALUES ($1, $2, $3)`, []byte{byte(i)}, []byte(line)); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(t.Context(), e.DB.In(mine), `INSERT INTO dataset_rows (workspace_id, dataset_id, position, hash) VALUES ($1, 'ds_1', $2, $3)`, i, []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	return "ds_1"
}

func TestCasesOfADatasetAreItsQuestionsWithoutWeights(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		var sent []string
		contest := byTurns()
		contest.before = func(r *infer.Request) error {
			if r.Model == judgingtest.Candidate {
				sent = append(sent, string(r.Body))
			}
			return nil
		}
		contest.install(e)
		e.Judges.SetConcurrency(1)
		const talk = `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"hello","weight":1},{"role":"user","content":"question 2"},{"role":"assistant","content":"two","weight":1}],"tools":[{"type":"function","function":{"name":"f"}}]}`
		id := newDataset(t, e,
			`{"messages":[{"role":"user","content":"question 1"},{"role":"assistant","content":"one"}]}`, talk,
			`{"messages":[{"role":"user","content":"question 1"},{"role":"assistant","content":"another one"}]}`,
			`{"messages":[]}`)
		done := run(t, e, comparison(0, func(n *eval.NewEval) { n.DatasetID = id; n.Cases = nil }), job.Done)
		if done.Cases != 2 || done.LeftOut != 2 || done.Source != "dataset" || *done.DatasetID != id {
			t.Errorf("%s", judgingtest.JSON(t, done))
		}
		if bodies := strings.Join(sent, "\n"); strings.Contains(bodies, "weight") || strings.Contains(bodies, `"two"`) || !strings.Contains(bodies, `"tools":[{`) || !strings.Contains(bodies, "hello") {
			t.Errorf("%s", bodies)
		}
		if one := run(t, e, comparison(0, func(n *eval.NewEval) { n.DatasetID, n.Cases, n.SampleCount = id, nil, 1 }), job.Done); one.Cases != 1 {
			t.Errorf("%s", judgingtest.JSON(t, one))
		}
	})
}

// What comes inline has no credentials when it is stored, sent or shown.
func TestInlineCasesAreRedacted(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		const secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKL"
		contest := byTurns()
		contest.before = func(r *infer.Request) error {
			if strings.Contains(string(r.Body), secret) {
				t.Errorf("sent: %s", r.Body)
			}
			return nil
		}
		contest.install(e)
		in := comparison(1)
		in.Cases[0].Messages = fmt.Appendf(nil, `[{"role":"user","content":"question 1: use %s"}]`, secret)
		in.Rubric = "It never says " + secret
		done := run(t, e, in, job.Done)
		shown := string(judgingtest.JSON(t, done)) + string(judgingtest.JSON(t, cases(t, e, done.ID, eval.CaseFilter{})))
		if strings.Contains(shown, secret) || !strings.Contains(shown, "[redacted]") {
			t.Error(shown)
		}
	})
}

// A case becomes a label with one request, for the eval's judge by default, and only once.
func TestACaseBecomesALabel(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		contest{passes: func(int, string) bool { return true }}.install(e)
		c := e.NewCriterion(t)
		done := run(t, e, criterionRun(3, c.ID), job.Done)
		in := eval.CaseLabel{Model: judgingtest.Candidate, Verdict: judge.Fail, Critique: "rude"}
		made, err := e.Evals.Label(t.Context(), mine, ann, done.ID, "2", in)
		if err != nil || *made.CriterionID != c.ID || made.Verdict != judge.Fail || made.Source != "eval" {
			t.Fatalf("%+v %v", made, err)
		}
		read, err := e.Labels.Get(t.Context(), mine, made.ID)
		if err != nil || !strings.Contains(string(read.Subject.Steps[0].Response), "reply to item 1 of sim/candidate") {
			t.Errorf("%s %v", judgingtest.JSON(t, read), err)
		}
		_, err = e.Evals.Label(t.Context(), mine, ann, done.ID, "2", in)
		dbtest.Refused(t, err, 409, "graded before")
		in.Model = judgingtest.Baseline
		if _, err = e.Evals.Label(t.Context(), mine, ann, done.ID, "2", in); err != nil {
			t.Error(err)
		}
		in.Model = "sim/none"
		_, err = e.Evals.Label(t.Context(), mine, ann, done.ID, "2", in)
		dbtest.Refused(t, err, 400, "model")
		in.Model = judgingtest.Baseline
		_, err = e.Evals.Label(t.Context(), mine, ann, done.ID, "9", in)
		dbtest.Refused(t, err, 404, "9")
		if all, err := e.Labels.List(t.Context(), mine, &label.Filters{CriterionID: c.ID}, 10, 0); err != nil || len(all) != 2 {
			t.Error(all, err)
		}
	})
}
