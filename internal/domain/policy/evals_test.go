package policy_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/alias"
	"sovereign/internal/domain/eval"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/domain/policy"
	"sovereign/internal/grade/judge"
	"sovereign/internal/live"
	"sovereign/internal/plane/infer"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/job"
)

// A world is a fixture with real evals, by a judge that is measured, of requests that were logged.
type world struct {
	fixture
	*judgingtest.Env
	criterion string
}

func eachWorld(t *testing.T, test func(t *testing.T, w world)) {
	t.Helper()
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		changes := feed.New(e.DB, judgingtest.Quiet, alias.NewPublisher(e.DB, live.NewAliases()).Sources())
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); changes.Run(ctx) }()
		t.Cleanup(func() { stop(); <-done })
		w := world{fixture: fixture{t: t, db: e.DB, aliases: alias.NewStore(e.DB, changes), policies: policy.NewStore(e.DB)}, Env: e}
		w.policies.AttachEvals(e.Evals)
		w.aliases.Obey(w.policies)
		w.set(policy.EvidencePolicyChange{Required: new(true)})
		w.calibrate()
		e.Log(t, dbtest.Mine, "", judgingtest.LogItems(300)...)
		test(t, w)
	})
}

// calibrate makes a judge, and measures that it is right. It then lets every answer pass.
func (w *world) calibrate() {
	w.t.Helper()
	w.criterion = w.NewCriterion(w.t).ID
	verdicts := map[int]judge.Verdict{}
	for _, v := range []judge.Verdict{judge.Pass, judge.Fail} {
		for _, g := range w.Grade(w.t, w.criterion, judgingtest.Grades(60, judgingtest.Grade{Report: true, Verdict: v})...) {
			verdicts[g.Item] = v
		}
	}
	w.Models.Do(func(item int, r *infer.Request) (string, error) {
		if r.Model != judgingtest.Model {
			return fmt.Sprintf("reply to item %d of %s", item, r.Model), nil
		}
		if verdicts[item] == judge.Fail {
			return judgingtest.Assessment(judge.Fail, 0.1), nil
		}
		return judgingtest.Assessment(judge.Pass, 0.9), nil
	})
	w.Calibrate(w.t, w.criterion)
}

// run runs an eval to its end.
func (w *world) run(n eval.NewEval) eval.Eval {
	w.t.Helper()
	made, err := w.Evals.Create(w.t.Context(), dbtest.Mine, dbtest.Ann, n)
	if err != nil {
		w.t.Fatal(err)
	}
	return judgingtest.Await(w.t, job.Done, func() (eval.Eval, job.Job, error) {
		e, err := w.Evals.Get(w.t.Context(), dbtest.Mine, made.ID)
		return e, e.Job, err
	})
}

// suggested returns the eval that a refusal suggests, as its caller would send it.
func (w *world) suggested(u *policy.Unproven) (n eval.NewEval) {
	w.t.Helper()
	body, err := json.Marshal(u.Missing[0].Requests[0].Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := json.Unmarshal(body, &n, json.RejectUnknownMembers(true)); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func TestTheSuggestedEvalProvesARepoint(t *testing.T) {
	eachWorld(t, func(t *testing.T, w world) {
		w.allows(to(judgingtest.Baseline))
		n := w.suggested(w.refuses(to(judgingtest.Candidate)))
		if n.CriterionID != w.criterion {
			t.Errorf("the judge is %q", n.CriterionID)
		}
		w.set(policy.EvidencePolicyChange{MaxRegression: new(0.2)})
		wide := w.suggested(w.refuses(to(judgingtest.Candidate)))
		w.set(policy.EvidencePolicyChange{MaxRegression: new(0.05)})
		if wide.SampleCount < 20 || 4*wide.SampleCount > n.SampleCount || n.SampleCount > 10_000 {
			t.Errorf("%d cases for a margin of 0.05, and %d for 0.2", n.SampleCount, wide.SampleCount)
		}
		w.run(n)
		w.allows(to(judgingtest.Candidate))
		w.allows(to(judgingtest.Baseline))
		w.deletes("support")
		w.set(policy.EvidencePolicyChange{MinTrust: new(w.Certificate(t, w.criterion).Trust)})
		w.allows(to(judgingtest.Baseline))
		w.ChangeRubric(t, w.criterion, "It is very polite.") // voids the certificate
		w.allows(to(judgingtest.Candidate))                  // the model before
		other := alias.Alias{Name: "other", TargetModel: judgingtest.Baseline}
		w.allows(other)
		other.TargetModel = judgingtest.Candidate
		w.refuses(other, "no valid certificate")
	})
}

func TestEvalsThatWereMadeToPassProveNothing(t *testing.T) {
	eachWorld(t, func(t *testing.T, w world) {
		w.allows(to(judgingtest.Baseline))
		good := w.suggested(w.refuses(to(judgingtest.Candidate)))
		for name, change := range map[string]func(*eval.NewEval){
			"easy cases that were chosen by hand": func(n *eval.NewEval) {
				n.SampleFilters, n.SampleCount = nil, 0
				for i := range 300 {
					n.Cases = append(n.Cases, eval.NewCase{Messages: judgingtest.Exchange(i).Messages})
				}
			},
			"parameters that make all models equally bad": func(n *eval.NewEval) {
				n.Parameters = map[string]jsontext.Value{"max_tokens": jsontext.Value("1")}
			},
			"a rubric": func(n *eval.NewEval) {
				n.CriterionID, n.Rubric, n.JudgeModel = "", "It is polite.", judgingtest.Model
			},
			"few cases": func(n *eval.NewEval) { n.SampleCount = 30 },
			"the candidate against itself": func(n *eval.NewEval) {
				n.BaselineModel, n.CandidateModels = judgingtest.Candidate, []string{judgingtest.Baseline}
			},
		} {
			n := good
			change(&n)
			w.run(n)
			if w.refuses(to(judgingtest.Candidate)); t.Failed() {
				t.Fatalf("%s prove a repoint", name)
			}
		}
		if err := w.put(dbtest.Theirs, to(judgingtest.Baseline)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.policies.Set(t.Context(), dbtest.Theirs, tenant.Operator, &policy.EvidencePolicyChange{Required: new(true)}); err != nil {
			t.Fatal(err)
		}
		w.run(good) // of Mine
		dbtest.Refused(t, w.put(dbtest.Theirs, to(judgingtest.Candidate)), 412, "CRITERION_ID")
		w.set(policy.EvidencePolicyChange{MaxRegression: new(0.06)})
		w.allows(to(judgingtest.Candidate)) // the last of five that were started
	})
}

// The requests that a model cut short are those in which every other model looks better.
func TestCasesThatWereChosenByTheirAnswersProveNothing(t *testing.T) {
	eachWorld(t, func(t *testing.T, w world) {
		w.allows(to(judgingtest.Baseline))
		n := w.suggested(w.refuses(to(judgingtest.Candidate)))
		n.SampleFilters.FinishReason = "stop"
		w.run(n)
		w.refuses(to(judgingtest.Candidate), "finish_reason")
		n.SampleFilters.FinishReason = ""
		w.run(n)
		w.allows(to(judgingtest.Candidate))
	})
}

// An incumbent that is made to fail while the eval runs, as with a provider's key that is set wrong, is not outdone.
func TestAnIncumbentThatGivesNoAnswersIsNotOutdone(t *testing.T) {
	eachWorld(t, func(t *testing.T, w world) {
		w.allows(to(judgingtest.Baseline))
		n := w.suggested(w.refuses(to(judgingtest.Candidate)))
		var asked, every atomic.Int64
		every.Store(2)
		w.Models.Do(func(item int, r *infer.Request) (string, error) {
			switch {
			case r.Model == judgingtest.Baseline && asked.Add(1)%every.Load() == 0:
				return "", fault.InvalidBody.New("not with this key")
			case r.Model != judgingtest.Model:
				return fmt.Sprintf("reply to item %d of %s", item, r.Model), nil
			}
			return judgingtest.Assessment(judge.Pass, 0.9), nil
		})
		w.run(n)
		w.refuses(to(judgingtest.Candidate), "sim/base gave no answer to 150 of 300 cases")
		every.Store(50)
		w.run(n)
		w.allows(to(judgingtest.Candidate)) // a few failures do not matter
	})
}
