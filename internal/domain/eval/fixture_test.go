package eval_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/eval"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/grade/judge"
	"sovereign/internal/plane/infer"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/job"
)

const (
	mine   = dbtest.Mine
	theirs = dbtest.Theirs
)

var ann = dbtest.Ann

// comparison asks for a comparison of the baseline and the candidate on n inline cases.
func comparison(n int, change ...func(*eval.NewEval)) eval.NewEval {
	in := eval.NewEval{
		Name: "new for old", Rubric: "It is polite.", JudgeModel: judgingtest.Model,
		BaselineModel: judgingtest.Baseline, CandidateModels: []string{judgingtest.Candidate},
	}
	for i := range n {
		in.Cases = append(in.Cases, eval.NewCase{Messages: judgingtest.Exchange(i).Messages})
	}
	for _, one := range change {
		one(&in)
	}
	return in
}

// criterionRun is comparison by a criterion.
func criterionRun(n int, criterionID string, change ...func(*eval.NewEval)) eval.NewEval {
	in := comparison(n, change...)
	in.Rubric, in.JudgeModel, in.CriterionID = "", "", criterionID
	return in
}

func create(t testing.TB, e *judgingtest.Env, in eval.NewEval) eval.Eval {
	t.Helper()
	made, err := e.Evals.Create(t.Context(), mine, ann, in)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func await(t testing.TB, e *judgingtest.Env, id string, want job.Status) eval.Eval {
	t.Helper()
	return judgingtest.Await(t, want, func() (eval.Eval, job.Job, error) {
		got, err := e.Evals.Get(t.Context(), mine, id)
		return got, got.Job, err
	})
}

func run(t testing.TB, e *judgingtest.Env, in eval.NewEval, want job.Status) eval.Eval {
	t.Helper()
	return await(t, e, create(t, e, in).ID, want)
}

func cases(t testing.TB, e *judgingtest.Env, id string, f eval.CaseFilter) []eval.Case {
	t.Helper()
	all, _, err := e.Evals.Cases(t.Context(), mine, id, &f, 1000, 0)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// question returns the number of the item that a generation is about.
func question(r *infer.Request) (n int) {
	at := bytes.LastIndex(r.Body, []byte("question "))
	_, _ = fmt.Sscanf(string(r.Body[at:]), "question %d", &n)
	return n
}

// A contest answers as two models and their judge. better says which model's answer to a case is better; grade says
// whether a model's answer passes.
type contest struct {
	better func(item int) judge.Winner // A for the baseline, B for the candidate
	passes func(item int, model string) bool
	before func(r *infer.Request) error // called first; may be nil
}

// install lets e's models be those of the contest.
func (c contest) install(e *judgingtest.Env) {
	e.Models.Do(func(item int, r *infer.Request) (string, error) {
		if c.before != nil {
			if err := c.before(r); err != nil {
				return "", err
			}
		}
		if r.Model != judgingtest.Model {
			return fmt.Sprintf("reply to item %d of %s", question(r), r.Model), nil
		}
		if c.better == nil {
			model := judgingtest.Baseline
			if bytes.Contains(r.Body, []byte("of "+judgingtest.Candidate)) {
				model = judgingtest.Candidate
			}
			if c.passes(item, model) {
				return judgingtest.Assessment(judge.Pass, 0.9), nil
			}
			return judgingtest.Assessment(judge.Fail, 0.1), nil
		}
		return prefer(c.better(item), candidateFirst(r)), nil
	})
}

// candidateFirst reports whether a judge is shown the candidate's answer first.
func candidateFirst(r *infer.Request) bool {
	return bytes.Index(r.Body, []byte("of "+judgingtest.Candidate)) < bytes.Index(r.Body, []byte("of "+judgingtest.Baseline))
}

// prefer is a judge's answer that prefers the baseline (A) or the candidate (B), whichever was shown first.
func prefer(winner judge.Winner, swapped bool) string {
	if swapped {
		winner = map[judge.Winner]judge.Winner{judge.WinnerA: judge.WinnerB, judge.WinnerB: judge.WinnerA, judge.NoOne: judge.NoOne}[winner]
	}
	return fmt.Sprintf(`{"critique":"as I see it","winner":%q}`, winner)
}

// by returns a contest that the candidate wins, loses and ties by turns: 0, 3, 6 … are wins, 1, 4 … losses.
func byTurns() contest {
	return contest{better: func(item int) judge.Winner {
		return []judge.Winner{judge.WinnerB, judge.WinnerA, judge.NoOne}[item%3]
	}}
}

// exported reads the export of an eval.
func exported(t testing.TB, e *judgingtest.Env, ws tenant.ID, id string) (all []eval.Case) {
	t.Helper()
	var out bytes.Buffer
	if err := e.Evals.Export(context.WithoutCancel(t.Context()), ws, id, &out); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		var c eval.Case
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// params returns the parameters of a request.
func params(text string) (all map[string]jsontext.Value) {
	_ = json.Unmarshal([]byte(text), &all)
	return all
}
