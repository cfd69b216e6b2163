package adoption

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/alias"
	"sovereign/internal/domain/eval"
	"sovereign/internal/domain/modelversion"
	"sovereign/internal/domain/policy"
	"sovereign/internal/domain/train"
	"sovereign/internal/grade/stat"
	"sovereign/internal/grade/trust"
	"sovereign/internal/live"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/job"
	"sovereign/internal/store/vault"
)

const base = "ft/base/tiny/bigram"

// A trial is the one eval that there is: of the version against a baseline.
type trial struct {
	eval.Eval
	evidence eval.Evidence
}

func (e *trial) Proofs(
	_ context.Context, _ db.Scoped, baseline, candidate string, _ clock.Time, _ time.Duration,
) (int64, []eval.Proof, error) {
	if baseline != e.BaselineModel || candidate != e.CandidateModels[0] {
		return 0, nil, nil
	}
	if e.Status != job.Done || e.Source == "inline" {
		return 1, nil, nil
	}
	return 1, []eval.Proof{{ID: e.ID, Nth: 1}}, nil
}

func (e *trial) Get(_ context.Context, _ tenant.ID, evalID string) (eval.Eval, error) {
	if evalID != e.ID {
		return eval.Eval{}, fault.NotFound("eval", evalID)
	}
	return e.Eval, nil
}

func (e *trial) Judge(_ context.Context, _ db.Scoped, _, _ string, t *eval.Thresholds) ([]eval.Check, error) {
	return t.Judge(&e.evidence)
}

type fixture struct {
	*Store
	t       *testing.T
	version modelversion.Version
	trial   *trial
	served  error
}

func each(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dbtest.AddWorkspaces(t, d, dbtest.Mine, dbtest.Theirs)
		f := &fixture{t: t}
		changes := feed.New(d, slog.New(slog.DiscardHandler), alias.NewPublisher(d, live.NewAliases()).Sources())
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); changes.Run(ctx) }()
		t.Cleanup(func() { stop(); <-done })
		root, err := vault.CreateRoot(filepath.Join(t.TempDir(), "root.key"))
		f.ok(err)
		v, err := vault.Open(t.Context(), d, root)
		f.ok(err)
		folder, err := artifact.OpenFolder(t.TempDir())
		f.ok(err)
		policies := policy.NewStore(d)
		f.Store = NewStore(Config{
			DB: d, Feed: changes, Versions: modelversion.NewStore(d, artifact.NewStore(d, folder), v), Aliases: alias.NewStore(d, changes),
			Proofs: policies, Check: func(tenant.ID, alias.Alias) error { return f.served },
		})
		f.Aliases.Obey(policies)
		_, err = d.Tx(t.Context(), func(tx *db.Tx) (err error) {
			f.version, err = f.Versions.Create(t.Context(), tx, dbtest.Mine, dbtest.Ann, modelversion.New{Files: train.Manifest{}, Proof: modelversion.Proof{
				Name: "ft/bigram-1", BaseModel: "tiny/bigram", Method: "grpo", Hyperparams: jsontext.Value("{}"),
				Source: modelversion.Source{Type: "grpo_run", ID: "grpo_1", Step: 4}, Certificates: []string{}, Data: []modelversion.Data{},
			}})
			return err
		})
		f.ok(err)
		f.trial = &trial{
			Eval: eval.Eval{
				ID: "eval_1", BaselineModel: base, CandidateModels: []string{"ft/bigram-1"}, Parameters: jsontext.Value("{}"), Cases: 200,
				Source: "dataset", Job: job.Job{Status: job.Done},
			},
			evidence: eval.Evidence{
				Cases: 200, Candidates: 1, Pairs: stat.Pairs{First: 150, Neither: 50}, Judge: &stat.Table{TP: 150, TN: 150}, Trust: trust.Calibrated,
			},
		}
		policies.AttachEvals(f.trial)
		_, err = f.Aliases.Put(t.Context(), dbtest.Mine, dbtest.Ann, alias.Alias{Name: "support", TargetModel: base, FallbackModels: alias.Models{"sim/chat"}})
		f.ok(err)
		test(t, f)
	})
}

func (f *fixture) ok(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) adopts(r Request) (Adoption, error) {
	return f.Adopt(f.t.Context(), dbtest.Mine, dbtest.Ann, f.version.ID, r)
}

var asked = Request{AliasName: "support", CanaryPercent: 20, EvalID: "eval_1"}

func TestAProvenVersionBecomesTheCanaryOfAnAlias(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		got, err := f.adopts(asked)
		f.ok(err)
		a := got.Alias
		if a.TargetModel != base || a.CanaryModel != "ft/bigram-1" || a.CanaryPercent != 20 || len(a.FallbackModels) != 1 || got.Version.AdoptedAt == nil {
			t.Errorf("%+v", got)
		}
		entries := dbtest.Count(t, f.DB, "audit_entries")
		f.trial.Status = job.Failed // what was adopted needs no proof again
		again, err := f.adopts(asked)
		f.ok(err)
		if again.AdoptedAt != got.AdoptedAt || again.Alias.UpdatedAt != a.UpdatedAt || dbtest.Count(t, f.DB, "audit_entries") != entries {
			t.Errorf("a repetition: %+v, and then %+v", got, again)
		}
		f.trial.Status = job.Done
		r := asked
		r.CanaryPercent = 100
		whole, err := f.adopts(r)
		if err != nil || whole.Alias.CanaryPercent != 100 || whole.AdoptedAt == got.AdoptedAt {
			t.Errorf("a cut-over: %+v %v", whole, err)
		}
		f.trial.Status = job.Failed
		if after, err := f.adopts(asked); err != nil || after.Alias.CanaryPercent != 100 {
			t.Errorf("the alias stands for it already: %+v %v", after, err)
		}
	})
}

func TestAnUnprovenVersionIsNotAdoptedAndTheRefusalSaysWhy(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		entries := dbtest.Count(t, f.DB, "audit_entries")
		for want, change := range map[string]func(*Request, *fixture){
			"there is no such eval": func(r *Request, _ *fixture) { r.EvalID = "eval_9" },
			"it is RUNNING: 3 of 9 cases are done": func(_ *Request, f *fixture) {
				f.trial.Job = job.Job{Status: job.Running, Progress: job.Progress{Done: 3, Total: 9}}
			},
			"it is FAILED: 0 of 9 cases are done: the wallet is empty": func(_ *Request, f *fixture) {
				f.trial.Job = job.Job{Status: job.Failed, Progress: job.Progress{Total: 9}, Error: new("the wallet is empty")}
			},
			"it compares [ft/bigram-1] with sim/chat": func(_ *Request, f *fixture) { f.trial.BaselineModel = "sim/chat" },
			"its cases were chosen by hand":           func(_ *Request, f *fixture) { f.trial.Source = "inline" },
			"points lower than the baseline's":        func(_ *Request, f *fixture) { f.trial.evidence.Pairs = stat.Pairs{Second: 150, Neither: 50} },
			"no valid certificate":                    func(_ *Request, f *fixture) { f.trial.evidence.Judge = nil },
			"a gate needs at least 20":                func(_ *Request, f *fixture) { f.trial.evidence.Cases = 19 },
			"parameters of its own":                   func(_ *Request, f *fixture) { f.trial.Parameters = jsontext.Value(`{"max_tokens":1}`) },
			"POST /v1/evals":                          func(r *Request, f *fixture) { r.EvalID, f.trial.Status = "", job.Failed },
			"no engine":                               func(_ *Request, f *fixture) { f.served = fault.Invalid("canary_model", "cannot be called: no engine") },
		} {
			before, r := *f.trial, asked
			change(&r, f)
			if _, err := f.adopts(r); err == nil || fault.From(err).Kind != fault.Precondition || !strings.Contains(err.Error(), want) {
				t.Errorf("want %q, got %v", want, err)
			}
			*f.trial, f.served = before, nil
		}
		a, err := f.Aliases.Get(t.Context(), dbtest.Mine, "support")
		f.ok(err)
		v, err := f.Versions.Get(t.Context(), dbtest.Mine, f.version.ID)
		f.ok(err)
		if a.CanaryModel != "" || v.AdoptedAt != nil || dbtest.Count(t, f.DB, "audit_entries") != entries {
			t.Errorf("a refusal leaves %+v, %+v", a, v.AdoptedAt)
		}
	})
}

func TestAnAdoptionNamesWhatThereIs(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for want, change := range map[string]func(*Request){
			"aliasName is missing":  func(r *Request) { r.AliasName = "" },
			"canaryPercent must be": func(r *Request) { r.CanaryPercent = 0 },
			"no alias":              func(r *Request) { r.AliasName = "other" },
		} {
			r := asked
			change(&r)
			if _, err := f.adopts(r); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("want %q, got %v", want, err)
			}
		}
		if _, err := f.Adopt(t.Context(), dbtest.Theirs, dbtest.Ann, f.version.ID, asked); fault.From(err).Kind != fault.Missing {
			t.Errorf("another workspace: %v", err)
		}
	})
}
