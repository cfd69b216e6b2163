package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/canary"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/eval"
	"sovereign/internal/store/db"
)

// Evals are the evals of workspaces.
type Evals interface {
	// Proofs returns how many evals of a candidate against a baseline were started within a time up to now, whatever
	// became of them, and those that are DONE and whose cases can prove something, newest first.
	Proofs(ctx context.Context, in db.Scoped, baseline, candidate string, now clock.Time, within time.Duration) (
		started int64, done []eval.Proof, err error)
	// Get reads an eval.
	Get(ctx context.Context, ws tenant.ID, evalID string) (eval.Eval, error)
	// Judge checks a candidate of an eval that is DONE.
	Judge(ctx context.Context, in db.Scoped, evalID, candidate string, t *eval.Thresholds) ([]eval.Check, error)
}

// Canaries are the gates of aliases.
type Canaries interface {
	// Promoted reports whether the alias's own gate has found, in this epoch or the last one, that a canary may replace
	// a target, on these terms.
	Promoted(ctx context.Context, in db.Scoped, name, target, canary string, t canary.Terms) (bool, error)
}

// A Proof is what a repoint was allowed by. It stands in the audit trail.
type Proof struct {
	Field      string       `json:"field"`
	Incumbent  string       `json:"incumbent_model"`
	Model      string       `json:"model"`
	Gate       bool         `json:"gate,omitzero"`    // a verdict of the alias's own gate
	EvalID     string       `json:"eval_id,omitzero"` // or an eval
	Confidence float64      `json:"confidence,omitzero"`
	Checks     []eval.Check `json:"checks,omitzero"`
}

// maxTried bounds how many evals of a pair are judged for one repoint, newest first. A repeated eval makes the proof
// harder, so that more of them are of no use. maxStarted is how many evals of a pair can prove something.
const (
	maxTried   = 20
	maxStarted = 100
)

// forFirst is the part of 1 - Confidence that the first eval of a pair may err. The others share the rest.
const forFirst = 0.8

// alpha returns the probability with which the n-th eval of a pair may err. It is at most (1 - Confidence)/n. The sum
// over all n is 1 - Confidence, so that evals which are started one after the other, each after a look at the last,
// keep the confidence together.
func (p *EvidencePolicy) alpha(n int64) float64 {
	if n <= 1 {
		return (1 - p.Confidence) * forFirst
	}
	return (1 - p.Confidence) * (1 - forFirst) / float64(n*(n-1))
}

// thresholds returns what the n-th eval of a pair must show.
func (p *EvidencePolicy) thresholds(n int64) *eval.Thresholds {
	return &eval.Thresholds{MaxRegression: &p.MaxRegression, RequireTrust: p.MinTrust, Confidence: 1 - p.alpha(n)}
}

// terms returns what a verdict of the alias's own gate must show.
func (p *EvidencePolicy) terms(now clock.Time) canary.Terms {
	return canary.Terms{
		MaxRegression: p.MaxRegression, Confidence: p.Confidence, MinTrust: p.MinTrust, Since: now.Add(-p.age()),
	}
}

// age returns how old a proof may be.
func (p *EvidencePolicy) age() time.Duration { return time.Duration(p.MaxAgeDays) * 24 * time.Hour }

// prove looks for a proof that a model may take the incumbent's place in the alias of that name. Without one it returns
// what is missing.
func (s *Store) prove(
	ctx context.Context, tx *db.Tx, ws tenant.ID, p *EvidencePolicy, name, incumbent string, n need,
) (*Proof, *Missing, error) {
	in := tx.In(ws)
	proof := &Proof{Field: n.Field, Incumbent: incumbent, Model: n.Model}
	if s.canaries != nil && n.Eval == "" {
		promoted, err := s.canaries.Promoted(ctx, in, name, incumbent, n.Model, p.terms(clock.Now()))
		if err != nil || promoted {
			proof.Gate = promoted
			return proof, nil, err
		}
	}
	var started int64
	var done []eval.Proof
	var err error
	if s.evals != nil {
		if started, done, err = s.evals.Proofs(ctx, in, incumbent, n.Model, clock.Now(), p.age()); err != nil {
			return nil, nil, err
		}
	}
	missing := &Missing{Field: n.Field, Model: n.Model, Why: n.Why, EvalsStarted: started}
	if n.Eval != "" {
		at := slices.IndexFunc(done, func(e eval.Proof) bool { return e.ID == n.Eval })
		if at < 0 {
			why, err := s.irrelevant(tx.Bind(ctx), ws, p, n.Eval, incumbent, n.Model)
			if err != nil {
				return nil, nil, err
			}
			missing.Newest, done = &Shortcoming{EvalID: n.Eval, Reason: why}, nil
		} else {
			done = done[at : at+1]
		}
	}
	for _, tried := range done[:min(len(done), maxTried)] {
		thresholds := p.thresholds(max(tried.Nth, started))
		checks, short, err := s.judge(tx.Bind(ctx), in, ws, tried.ID, n.Model, thresholds)
		if err != nil {
			return nil, nil, err
		}
		if max(tried.Nth, started) > maxStarted {
			short = fmt.Sprintf(
				"more than %d evals of these models were started, which prove nothing together", maxStarted,
			)
		}
		if short == "" {
			proof.EvalID, proof.Confidence, proof.Checks = tried.ID, thresholds.Confidence, checks
			return proof, nil, nil
		}
		if missing.Newest == nil {
			missing.Newest = &Shortcoming{EvalID: tried.ID, Reason: short}
		}
	}
	missing.Requests, err = p.requests(ctx, in, name, incumbent, n.Model, started)
	return nil, missing, err
}

// maxUnanswered is the part of an eval's cases, one in so many, that the incumbent may leave without an answer. They
// are its fails, and whoever repoints the alias could cause them, as with a provider's key that is set wrong.
const maxUnanswered = 20

// unanswered counts the cases without an answer of the baseline.
func unanswered(e *eval.Eval) int64 { return e.Failed.Models[e.BaselineModel] }

// judge checks an eval. short says why it proves nothing, and is empty if it proves all. An eval that cannot be asked,
// as one by a rubric, proves nothing.
func (s *Store) judge(
	ctx context.Context, in db.Scoped, ws tenant.ID, evalID, candidate string, t *eval.Thresholds,
) (checks []eval.Check, short string, err error) {
	e, err := s.evals.Get(ctx, ws, evalID)
	if err != nil {
		return nil, "", err
	}
	switch {
	case string(e.Parameters) != "{}":
		return nil, "it sends parameters of its own, which the callers of the alias do not", nil
	case e.SampleFilters != nil && e.SampleFilters.FinishReason != "":
		return nil, "its cases were chosen by finish_reason, which is how a model answered them", nil
	case unanswered(&e) > e.Cases/maxUnanswered:
		return nil, fmt.Sprintf("%s gave no answer to %d of %d cases, which says nothing about its answers",
			e.BaselineModel, unanswered(&e), e.Cases), nil
	}
	checks, err = s.evals.Judge(ctx, in, evalID, candidate, t)
	if refusal, ok := errors.AsType[*fault.Fault](err); ok && refusal.Status < http.StatusInternalServerError {
		return nil, refusal.Message, nil
	}
	return checks, shortcoming(checks), err
}

// shortcoming says which checks failed, or returns an empty text.
func shortcoming(checks []eval.Check) string {
	var failed []string
	for i := range checks {
		if !checks[i].Pass {
			failed = append(failed, checks[i].Reason)
		}
	}
	if len(checks) == 0 {
		failed = append(failed, "it was not checked")
	}
	return strings.Join(failed, "; ")
}

// Missing is a proof that is not there, and how to get it.
type Missing struct {
	Field        string       `json:"field"`
	Model        string       `json:"model"`
	Why          string       `json:"why"`
	EvalsStarted int64        `json:"evals_started"`
	Newest       *Shortcoming `json:"newest_eval"`
	Requests     []Request    `json:"requests"`
}

// A Shortcoming is why an eval proves nothing.
type Shortcoming struct {
	EvalID string `json:"id"`
	Reason string `json:"reason"`
}

// A Request can be sent as it stands; {id} is the id in the answer to the one before it.
type Request struct {
	Method string   `json:"method"`
	Path   string   `json:"path"`
	Body   *newEval `json:"body,omitzero"`
}

// A newEval is the body of POST /v1/evals.
type newEval struct {
	Name            string   `json:"name"`
	CriterionID     string   `json:"criterion_id"`
	BaselineModel   string   `json:"baseline_model"`
	CandidateModels []string `json:"candidate_models"`
	SampleFilters   struct{} `json:"sample_filters"`
	SampleCount     int64    `json:"sample_count"`
}

// The suggested eval is about as many logged requests as it takes to prove, with this power, a model that is as good as
// the incumbent, and at most maxSample. The power is high because another eval would have to show more. Where the
// number is not known, it is sampleCount.
const (
	power       = 0.95
	sampleCount = 1000
	maxSample   = 10_000
)

// noJudge stands for a judge in a suggested eval, where none is trusted enough.
const noJudge = "CRITERION_ID"

// requests returns what would prove that a model may replace the incumbent: an eval, and its gate at the confidence
// that one eval more asks for.
func (p *EvidencePolicy) requests(
	ctx context.Context, in db.Scoped, name, incumbent, model string, started int64,
) ([]Request, error) {
	body := &newEval{
		Name: name, CriterionID: noJudge, BaselineModel: incumbent, CandidateModels: []string{model},
		SampleCount: sampleCount,
	}
	judge, err := criterion.Trusted(ctx, in, p.MinTrust)
	if err != nil {
		return nil, err
	}
	alpha := p.alpha(min(started+1, maxStarted))
	if judge != "" {
		needed, err := eval.CasesNeeded(ctx, in, judge, p.MaxRegression, alpha, power)
		if err != nil {
			return nil, err
		}
		body.CriterionID, body.SampleCount = judge, min(cmp.Or(needed, sampleCount), maxSample)
	}
	gate := url.Values{
		"candidate": {model}, "max_regression": {number(p.MaxRegression)}, "require_trust": {string(p.MinTrust)},
		"confidence": {number(1 - alpha)},
	}
	return []Request{
		{Method: http.MethodPost, Path: "/v1/evals", Body: body},
		{Method: http.MethodGet, Path: "/v1/evals/{id}/gate?" + gate.Encode()},
	}, nil
}

// number writes x as a query has it, with nine decimals at most, rounded up.
func number(x float64) string {
	return strconv.FormatFloat(math.Ceil(x*1e9-1e-6)/1e9, 'f', -1, 64)
}

// Unproven is what a refusal has beside its error.
type Unproven struct {
	Incumbent string    `json:"incumbent_model"`
	Previous  string    `json:"previous_model,omitzero"`
	Missing   []Missing `json:"unproven"`
}

// refusal says what is missing, and how to get it.
func (u *Unproven) refusal(p *EvidencePolicy, name string) error {
	first := &u.Missing[0]
	var text strings.Builder
	fmt.Fprintf(&text, "the evidence policy asks for a proof that %s may replace %s in %q (%s)",
		first.Model, u.Incumbent, name, first.Why)
	if first.Newest != nil {
		fmt.Fprintf(&text, ". The newest of %d evals in %d days, %s, proves nothing: %s",
			first.EvalsStarted, p.MaxAgeDays, first.Newest.EvalID, first.Newest.Reason)
	}
	body, err := json.Marshal(first.Requests[0].Body)
	if err != nil {
		return fmt.Errorf("write a request: %w", err)
	}
	fmt.Fprintf(&text, ". To prove it: POST %s %s, and when that is DONE, GET %s must answer 200",
		first.Requests[0].Path, body, first.Requests[1].Path)
	if first.Requests[0].Body.CriterionID == noJudge {
		fmt.Fprintf(&text, ", where %s is a judge that is at least %s (now there is none)", noJudge, p.MinTrust)
	}
	if u.Previous != "" {
		fmt.Fprintf(&text, ". Going back to %s needs no proof", u.Previous)
	}
	refusal := fault.Precondition.New("%s", text.String())
	refusal.Field, refusal.Beside = first.Field, u
	return refusal
}
