package policy_test

import (
	"math"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/alias"
	"sovereign/internal/domain/eval"
	"sovereign/internal/domain/policy"
	"sovereign/internal/grade/stat"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db/dbtest"
)

func TestAPolicyIsOffByDefaultAndSetByField(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		want := policy.EvidencePolicy{
			Object: "evidence_policy", MaxAgeDays: 30, MinTrust: trust.Measured, MaxRegression: 0.05, Confidence: 0.95,
			MaxUnprovenCanaryPercent: 20,
		}
		if got, err := f.policies.Get(t.Context(), dbtest.Theirs); err != nil || got != want {
			t.Errorf("%+v %v", got, err)
		}
		want.Required, want.MaxAgeDays, want.MinTrust = true, 7, trust.Certified
		f.set(policy.EvidencePolicyChange{MaxAgeDays: new(int64(7))})
		if got := f.set(policy.EvidencePolicyChange{MinTrust: new(trust.Certified)}); got != want {
			t.Errorf("%+v", got)
		}
		if got, err := f.policies.Get(t.Context(), dbtest.Mine); err != nil || got != want {
			t.Errorf("%+v %v", got, err)
		}
		entries, err := audit.List(t.Context(), f.db, dbtest.Mine, "workspace.evidence", 10, 0)
		if err != nil || len(entries) != 3 || !strings.Contains(string(entries[0].Before), `"min_trust":"measured"`) ||
			!strings.Contains(string(entries[0].After), `"min_trust":"certified"`) || entries[0].Actor.Kind != tenant.ActorOperator {
			t.Errorf("%v %+v", err, entries)
		}
	})
}

func TestAPolicyThatMakesNoSenseIsRefused(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		for field, change := range map[string]policy.EvidencePolicyChange{
			"max_age_days":                {MaxAgeDays: new(int64(0))},
			"min_trust":                   {MinTrust: new(trust.None)},
			"max_regression":              {MaxRegression: new(1.0)},
			"confidence":                  {Confidence: new(math.NaN())},
			"max_unproven_canary_percent": {MaxUnprovenCanaryPercent: new(int64(101))},
		} {
			_, err := f.policies.Set(t.Context(), dbtest.Mine, tenant.Operator, &change)
			dbtest.Refused(t, err, 400, field)
		}
	})
}

func TestWithoutAPolicyEveryRepointIsAllowed(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		for _, a := range []alias.Alias{to(modelA), to(modelB), split(modelB, modelC, 100), to(modelA)} {
			if err := f.put(dbtest.Theirs, a); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestAnUnprovenRepointIsRefusedWithTheRequestsThatWouldProveIt(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.allows(to(modelA))
		unproven := f.refuses(to(modelB), "sim/b may replace sim/a", "POST /v1/evals {", `"baseline_model":"sim/a"`, "/gate?", "CRITERION_ID")
		text, err := json.Marshal(unproven, json.Deterministic(true))
		want := `{"incumbent_model":"sim/a","unproven":[{"field":"target_model","model":"sim/b","why":"a new target","evals_started":0,"newest_eval":null,"requests":[` +
			`{"method":"POST","path":"/v1/evals","body":{"name":"support","criterion_id":"CRITERION_ID","baseline_model":"sim/a","candidate_models":["sim/b"],"sample_filters":{},"sample_count":1000}},` +
			`{"method":"GET","path":"/v1/evals/{id}/gate?candidate=sim%2Fb&confidence=0.96&max_regression=0.05&require_trust=measured"}]}]}`
		if err != nil || string(text) != want {
			t.Errorf("%v\nhave %s\nwant %s", err, text, want)
		}
		f.found.add(proof(modelA, modelB, func(e *finding) { e.evidence.Cases, e.evidence.Pairs.Both = 10, 9 }))
		if unproven = f.refuses(to(modelB), "proves nothing", "at least 20"); unproven.Missing[0].Newest.EvalID != "eval_sim/asim/b" ||
			!strings.Contains(unproven.Missing[0].Requests[1].Path, "confidence=0.995&") {
			t.Errorf("%+v", unproven.Missing[0])
		}
	})
}

func TestAProvenRepointIsAllowedAndItsProofIsAudited(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.allows(to(modelA))
		f.found.add(proof(modelA, modelB))
		f.allows(to(modelB))
		entries, err := audit.List(t.Context(), f.db, dbtest.Mine, "alias.proof", 10, 0)
		if err != nil || len(entries) != 1 || entries[0].Subject != "support" || entries[0].Actor.User != dbtest.Ann.User {
			t.Fatalf("%v %+v", err, entries)
		}
		var audited policy.Proof
		if err := json.Unmarshal(entries[0].After, &audited); err != nil || audited.EvalID != "eval_sim/asim/b" ||
			audited.Incumbent != modelA || audited.Model != modelB || len(audited.Checks) != 3 {
			t.Errorf("%v %s", err, entries[0].After)
		}
	})
}

func TestWhatAnEvalMustShow(t *testing.T) {
	for name, change := range map[string]func(*finding){
		"of the same models the other way round": func(e *finding) { e.baseline, e.candidate = modelB, modelA },
		"of another candidate":                   func(e *finding) { e.candidate = modelC },
		"of another baseline":                    func(e *finding) { e.baseline = modelC },
		"that is not DONE":                       func(e *finding) { e.done = false },
		"that is too old":                        func(e *finding) { e.at = clock.Of(e.at.Std().Add(-days(31))) },
		"by a judge that is not trusted enough":  func(e *finding) { e.evidence.Trust = trust.Provisional },
		"by a judge whose certificate is void":   func(e *finding) { e.evidence.Trust, e.evidence.Judge = trust.None, nil },
		"by a rubric": func(e *finding) {
			e.evidence = eval.Evidence{Cases: 2000, Candidates: 1, Pairwise: true, Outcomes: stat.Outcomes{Wins: 2000}}
		},
		"with parameters of its own":        func(e *finding) { e.parameters = `{"max_tokens":1}` },
		"of few cases":                      func(e *finding) { e.evidence.Cases, e.evidence.Pairs = 19, stat.Pairs{First: 19} },
		"that shows a regression":           func(e *finding) { e.evidence.Pairs = stat.Pairs{Both: 1700, Second: 200, Neither: 100} },
		"that shows too little":             func(e *finding) { e.evidence.Cases, e.evidence.Pairs = 100, stat.Pairs{Both: 100} },
		"of the best of sixteen candidates": func(e *finding) { e.evidence.Candidates, e.evidence.Pairs = 16, stat.Pairs{Both: 150} },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, f fixture) {
				f.allows(to(modelA))
				f.found.add(proof(modelA, modelB, change))
				f.refuses(to(modelB))
			})
		})
	}
}

// The evidence that is too little for the best of sixteen candidates, or for one of sixteen evals, is enough for one of
// one.
func TestConfidenceIsDividedAmongCandidatesAndEvals(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.allows(to(modelA))
		f.found.add(proof(modelA, modelB, func(e *finding) { e.evidence.Pairs = stat.Pairs{Both: 150} }))
		for range 15 {
			f.found.add(proof(modelA, modelB, func(e *finding) { e.done = false }))
		}
		f.refuses(to(modelB), "of 16 evals")
		f.found.evals = f.found.evals[:1]
		f.allows(to(modelB))
	})
}

func TestAnotherWorkspacesPolicyDoesNotMatter(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.allows(to(modelA))
		for _, model := range []string{modelC, modelB} { // the name stands for other models there
			if err := f.put(dbtest.Theirs, to(model)); err != nil {
				t.Error(err)
			}
		}
		f.refuses(to(modelB))
		f.refuses(to(modelC))
	})
}
