package grpo

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/eval"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/job"
)

// trials are the evals of candidates. Only those count whose transaction has committed.
type trials struct {
	mu      sync.Mutex
	d       *db.DB
	asked   []eval.NewEval
	status  job.Status
	served  []string
	refuse  func(eval.NewEval) error
	verdict string
}

func (e *trials) Create(ctx context.Context, _ tenant.ID, _ tenant.Actor, n eval.NewEval) (eval.Eval, error) {
	if e.refuse != nil {
		if err := e.refuse(n); err != nil {
			return eval.Eval{}, err
		}
	}
	_, err := e.d.Tx(ctx, func(tx *db.Tx) error {
		tx.OnEnd(func(o db.Outcome) {
			if o == db.Committed {
				e.mu.Lock()
				defer e.mu.Unlock()
				e.asked = append(e.asked, n)
			}
		})
		return nil
	})
	return eval.Eval{ID: "eval_1"}, err
}

func (e *trials) Get(_ context.Context, _ tenant.ID, evalID string) (eval.Eval, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	found := eval.Eval{ID: evalID, Job: job.Job{Status: e.status}}
	if len(e.asked) > 0 { // another transaction may see the eval before it is counted
		found.BaselineModel, found.CandidateModels = e.asked[0].BaselineModel, e.asked[0].CandidateModels
	}
	return found, nil
}

func (e *trials) serves(_ tenant.ID, model string) error {
	if slices.ContainsFunc(e.served, func(prefix string) bool { return strings.HasPrefix(model, prefix) }) {
		return nil
	}
	return fault.Invalid("model", "cannot be called")
}

// candidate ends a run, which leaves a candidate.
func (f *fixture) candidate() Run {
	f.t.Helper()
	made := f.start()
	lease := f.lease()
	f.beat(lease, 1)
	f.save(lease, 4)
	f.finish(lease, "succeeded", 4)
	return f.get(made.ID)
}

// evaluated lets candidates be looked at, also those that are to wait.
func (f *fixture) evaluated(e *trials) Candidate {
	f.t.Helper()
	_, err := db.Exec(f.t.Context(), f.Store.DB.In(dbtest.Mine), `UPDATE grpo_candidates SET due_at = 0 WHERE workspace_id = $1`)
	f.ok(err)
	s := *f.Store // the module's own loop has no evals
	s.Evaluation = &Evaluation{Evals: e, Serves: e.serves, Verdict: func(
		_ context.Context, _ *db.Tx, _ tenant.ID, _, _, _ string,
	) (string, error) {
		return e.verdict, nil
	}}
	f.ok(s.evaluate(f.t.Context()))
	all, err := f.candidates(f.t.Context(), f.Store.DB.In(dbtest.Mine), "")
	f.ok(err)
	return all[0]
}

func TestACandidateGetsItsEvalWhenItCanBeServed(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		run := f.candidate()
		e := &trials{d: f.DB, status: job.Running}
		if c := f.evaluated(e); c.EvalID != nil || c.GateReason == nil || !strings.Contains(*c.GateReason, "waits for an engine") {
			t.Errorf("without an engine: %+v", c)
		}
		e.served = []string{"ft/"}
		if c := f.evaluated(e); c.EvalID == nil || c.Gate != nil || c.GateReason != nil || len(e.asked) != 1 {
			t.Fatalf("with an engine: %+v, %d evals", c, len(e.asked))
		}
		n := e.asked[0]
		if n.BaselineModel != "ft/base/tiny/bigram" || !strings.HasPrefix(n.CandidateModels[0], "ft/bigram-") || n.CriterionID != f.judge.ID ||
			n.DatasetID != "ds_1" || *n.MaxCostUSD != 10*money.Dollar-run.Spent || n.Parameters != nil {
			t.Errorf("%+v", n)
		}
		if c := f.evaluated(e); c.Gate != nil || len(e.asked) != 1 {
			t.Errorf("while it runs: %+v, %d evals", c, len(e.asked))
		}
		e.status, e.verdict = job.Done, "it is worse"
		if c := f.evaluated(e); c.Gate == nil || *c.Gate != gateRefused || *c.GateReason != "it is worse" {
			t.Errorf("at its end: %+v", c)
		}
		e.verdict = ""
		if c := f.evaluated(e); *c.Gate != gateRefused {
			t.Errorf("a verdict stays: %+v", c)
		}
	})
}

func TestACandidateIsComparedWithWhatItWasTrainedFrom(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		parent, err := f.Versions.Get(t.Context(), dbtest.Mine, f.candidate().Candidate.ModelVersionID)
		f.ok(err)
		in := f.request()
		in.BaseModel = parent.ID
		_, err = f.Create(t.Context(), dbtest.Mine, dbtest.Ann, in)
		f.ok(err)
		lease := f.lease()
		f.save(lease, 4)
		f.finish(lease, "succeeded", 4)
		e := &trials{d: f.DB, status: job.Running, served: []string{"ft/"}}
		f.evaluated(e)
		var baselines []string
		for _, n := range e.asked {
			baselines = append(baselines, n.BaselineModel)
		}
		slices.Sort(baselines)
		if want := []string{"ft/base/tiny/bigram", parent.Name}; !slices.Equal(baselines, want) {
			t.Errorf("compared with %q, want %q", baselines, want)
		}
	})
}

func TestACandidateHasOneEvalWhateverLooksAtItAtOnce(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.candidate()
		e := &trials{d: f.DB, status: job.Running, served: []string{""}}
		s := *f.Store
		s.Evaluation = &Evaluation{Evals: e, Serves: e.serves}
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				if err := s.evaluate(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if len(e.asked) != 1 {
			t.Errorf("%d evals", len(e.asked))
		}
	})
}

func TestAnEvalThatIsTooDearHasFewerCasesAndARefusalIsNoted(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.candidate()
		e := &trials{d: f.DB, served: []string{""}, refuse: func(n eval.NewEval) error {
			return fault.Invalid("max_cost_usd", "is less than this would cost")
		}}
		if c := f.evaluated(e); c.EvalID != nil || c.Gate != nil || !strings.Contains(*c.GateReason, "less than this would cost") {
			t.Errorf("%+v", c)
		}
		e.refuse = func(eval.NewEval) error { return errors.New("the disk is gone") }
		s := *f.Store
		s.Evaluation = &Evaluation{Evals: e, Serves: e.serves}
		_, err := db.Exec(t.Context(), f.Store.DB.In(dbtest.Mine), `UPDATE grpo_candidates SET due_at = 0 WHERE workspace_id = $1`)
		f.ok(err)
		if err := s.evaluate(t.Context()); err == nil {
			t.Error("a failure of the server is none of the candidate")
		}
		e.refuse, e.status = nil, job.Done
		if c := f.evaluated(e); c.EvalID == nil || c.GateReason != nil {
			t.Errorf("afterwards: %+v", c)
		}
	})
}
