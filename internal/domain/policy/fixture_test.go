package policy_test

import (
	"cmp"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/alias"
	"sovereign/internal/domain/canary"
	"sovereign/internal/domain/eval"
	"sovereign/internal/domain/policy"
	"sovereign/internal/grade/stat"
	"sovereign/internal/grade/trust"
	"sovereign/internal/live"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
)

const (
	modelA = "sim/a"
	modelB = "sim/b"
	modelC = "sim/c"
)

// A fixture is the aliases of two workspaces, which obey their policies. What evals and gates have found is the test's.
type fixture struct {
	t        *testing.T
	db       *db.DB
	aliases  *alias.Store
	policies *policy.Store
	found    *findings
}

// each runs test on each engine. The workspace Mine asks for proofs.
func each(t *testing.T, test func(t *testing.T, f fixture)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dbtest.AddWorkspaces(t, d, dbtest.Mine, dbtest.Theirs)
		changes := feed.New(d, slog.New(slog.DiscardHandler), alias.NewPublisher(d, live.NewAliases()).Sources())
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); changes.Run(ctx) }()
		t.Cleanup(func() { stop(); <-done })
		f := fixture{t: t, db: d, aliases: alias.NewStore(d, changes), found: &findings{}}
		f.policies = policy.NewStore(d)
		f.policies.AttachEvals(f.found)
		f.policies.AttachCanaries(f.found)
		f.aliases.Obey(f.policies)
		f.set(policy.EvidencePolicyChange{Required: new(true)})
		test(t, f)
	})
}

// set changes the policy of Mine.
func (f fixture) set(change policy.EvidencePolicyChange) policy.EvidencePolicy {
	f.t.Helper()
	p, err := f.policies.Set(f.t.Context(), dbtest.Mine, tenant.Operator, &change)
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

func (f fixture) put(ws tenant.ID, a alias.Alias) error {
	_, err := f.aliases.Put(f.t.Context(), ws, dbtest.Ann, a)
	return err
}

// allows puts an alias of Mine.
func (f fixture) allows(a alias.Alias) {
	f.t.Helper()
	if err := f.put(dbtest.Mine, a); err != nil {
		f.t.Errorf("%+v: %v", a, err)
	}
}

// refuses checks that an alias of Mine is refused for want of a proof, and stays as it is.
func (f fixture) refuses(a alias.Alias, words ...string) *policy.Unproven {
	f.t.Helper()
	before := dbtest.Count(f.t, f.db, "audit_entries")
	err := f.put(dbtest.Mine, a)
	dbtest.Refused(f.t, err, 412, words...)
	if after := dbtest.Count(f.t, f.db, "audit_entries"); after != before {
		f.t.Errorf("a refused change of %s leaves %d audit entries", a.Name, after-before)
	}
	if err == nil {
		return &policy.Unproven{}
	}
	unproven, ok := fault.From(err).Beside.(*policy.Unproven)
	if !ok {
		f.t.Fatalf("the refusal does not say what would prove it: %v", err)
	}
	return unproven
}

func (f fixture) deletes(name string) {
	f.t.Helper()
	if err := f.aliases.Delete(f.t.Context(), dbtest.Mine, dbtest.Ann, name); err != nil {
		f.t.Fatal(err)
	}
}

// An alias of a target alone.
func to(model string) alias.Alias { return alias.Alias{Name: "support", TargetModel: model} }

// split sends a share of an alias's requests to a canary.
func split(target, canary string, percent int) alias.Alias {
	return alias.Alias{Name: "support", TargetModel: target, CanaryModel: canary, CanaryPercent: percent}
}

// Findings are what evals and gates have found.
type findings struct {
	evals    []finding
	promoted map[[3]string]bool // by alias, target and canary
}

// A finding is an eval.
type finding struct {
	id, baseline, candidate string
	at                      clock.Time
	done                    bool
	evidence                eval.Evidence
	parameters              string
}

// proof is an eval of a large sample on which two models did equally well.
func proof(baseline, candidate string, change ...func(*finding)) finding {
	e := finding{id: "eval_" + baseline + candidate, baseline: baseline, candidate: candidate, at: clock.Now(), done: true, evidence: eval.Evidence{
		Cases: 2000, Candidates: 1, Pairs: stat.Pairs{Both: 1900, Neither: 100}, Judge: &stat.Table{TP: 150, TN: 150}, Trust: trust.Measured,
	}}
	for _, one := range change {
		one(&e)
	}
	return e
}

func days(n int) time.Duration { return time.Duration(n) * 24 * time.Hour }

func (f *findings) add(all ...finding) { f.evals = append(f.evals, all...) }

func (f *findings) Proofs(
	_ context.Context, _ db.Scoped, baseline, candidate string, now clock.Time, within time.Duration,
) (started int64, done []eval.Proof, err error) {
	count := func(until clock.Time) (n int64) {
		for _, e := range f.evals {
			if e.baseline == baseline && e.candidate == candidate && e.at <= until && e.at >= until.Add(-within) {
				n++
			}
		}
		return n
	}
	for _, e := range f.evals {
		if e.baseline == baseline && e.candidate == candidate && e.at >= now.Add(-within) && e.done {
			done = append(done, eval.Proof{ID: e.id, Nth: count(e.at)})
		}
	}
	return count(now), done, nil
}

func (f *findings) Judge(_ context.Context, _ db.Scoped, evalID, candidate string, t *eval.Thresholds) ([]eval.Check, error) {
	for i := range f.evals {
		if e := &f.evals[i]; e.id == evalID && e.candidate == candidate {
			return t.Judge(&e.evidence)
		}
	}
	return nil, fault.NotFound("eval", evalID)
}

func (f *findings) Get(_ context.Context, _ tenant.ID, evalID string) (eval.Eval, error) {
	for i := range f.evals {
		if e := &f.evals[i]; e.id == evalID {
			return eval.Eval{ID: e.id, Parameters: jsontext.Value(cmp.Or(e.parameters, "{}"))}, nil
		}
	}
	return eval.Eval{}, fault.NotFound("eval", evalID)
}

func (f *findings) Promoted(_ context.Context, _ db.Scoped, name, from, to string, _ canary.Terms) (bool, error) {
	return f.promoted[[3]string{name, from, to}], nil
}
