package eval

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/grade/stat"
	"sovereign/internal/live"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
)

// A Gate is the answer to whether a candidate may be deployed.
type Gate struct {
	Object    string  `json:"object" enum:"gate"`
	Pass      bool    `json:"pass"`
	EvalID    string  `json:"eval_id"`
	Candidate string  `json:"candidate"`
	Checks    []Check `json:"checks" nullable:"false" doc:"Those that were asked for, and that there are enough cases"`

	baseline string
}

// Plain is a short report, for the log of a pipeline.
func (g Gate) Plain() string { return g.report("") }

// report is Plain with a reason where there are no checks.
func (g *Gate) report(reason string) string {
	var out strings.Builder
	answer := map[bool]string{true: "PASS", false: "REFUSED"}[g.Pass]
	fmt.Fprintf(&out, "%s: %s in place of %s, by %s\n", answer, g.Candidate, g.baseline, g.EvalID)
	for _, c := range g.Checks {
		fmt.Fprintf(&out, "%s %s: %s\n", map[bool]string{true: "pass", false: "FAIL"}[c.Pass], c.Check, c.Reason)
	}
	if len(g.Checks) == 0 && reason != "" {
		fmt.Fprintf(&out, "%s\n", reason)
	}
	return out.String()
}

// refuse returns the gate as a refusal, with its checks.
func (g *Gate) refuse(reason string) error {
	f := fault.Precondition.New("%s", reason)
	f.Beside, f.Plain = *g, g.report(reason)
	return f
}

// Gate checks a candidate of an eval, which may be left out where there is one. It is refused, with the same checks,
// when one fails or the eval is not done.
func (s *Store) Gate(ctx context.Context, in db.Scoped, evalID, candidate string, t *Thresholds) (Gate, error) {
	r, err := find(ctx, in, evalID)
	if err != nil {
		return Gate{}, err
	}
	if candidate == "" {
		if len(r.asked.CandidateModels) > 1 {
			return Gate{}, fault.Invalid("candidate", "is required: the eval has several")
		}
		candidate = r.asked.CandidateModels[0]
	}
	g := Gate{
		Object: "gate", EvalID: r.ID, Candidate: candidate, Checks: []Check{}, baseline: r.asked.BaselineModel,
	}
	model, err := r.number(candidate)
	if err != nil {
		return Gate{}, err
	}
	if _, err := t.Judge(r.noEvidence(candidate)); err != nil { // no run of this kind answers it
		return Gate{}, err
	}
	if r.Status != job.Done {
		return Gate{}, g.refuse(r.unfinished())
	}
	evidence, lost, err := r.evidence(ctx, in, candidate, model, t)
	switch {
	case err != nil:
		return Gate{}, err
	case lost != "":
		return Gate{}, g.refuse("the candidate failed: " + lost)
	}
	if g.Checks, err = t.Judge(evidence); err != nil {
		return Gate{}, err
	}
	if g.Checks == nil {
		g.Checks = []Check{}
	}
	if g.Pass = passed(g.Checks); !g.Pass {
		return Gate{}, g.refuse(failedChecks(g.Checks))
	}
	return g, nil
}

// unfinished says why an eval that is not done proves nothing.
func (r *record) unfinished() string {
	if r.Error != nil {
		return fmt.Sprintf("the eval is %s and proves nothing: %s", r.Status, *r.Error)
	}
	return fmt.Sprintf("the eval is %s and proves nothing: %d of %d cases are done", r.Status, r.Done, r.Total)
}

// failedChecks names the checks that failed, with their reasons.
func failedChecks(checks []Check) string {
	var reasons []string
	for _, c := range checks {
		if !c.Pass {
			reasons = append(reasons, c.Check+": "+c.Reason)
		}
	}
	return fmt.Sprintf("%d of %d checks failed; %s", len(reasons), len(checks), strings.Join(reasons, "; "))
}

// number returns the number of a candidate.
func (r *record) number(candidate string) (int, error) {
	at := slices.Index(r.asked.CandidateModels, candidate)
	if at < 0 {
		return 0, fault.Invalid("candidate", "is not a candidate of this eval")
	}
	return at + 1, nil
}

// Judge checks a candidate of an eval that is done, by the judge's certificate as it is now.
func (s *Store) Judge(ctx context.Context, in db.Scoped, evalID, candidate string, t *Thresholds) ([]Check, error) {
	g, err := s.Gate(ctx, in, evalID, candidate, t)
	if err == nil {
		return g.Checks, nil
	}
	if refused, ok := fault.From(err).Beside.(Gate); ok && len(refused.Checks) > 0 {
		return refused.Checks, nil
	}
	return nil, err
}

// noEvidence returns the evidence about a candidate of a run that has found nothing.
func (r *record) noEvidence(candidate string) *Evidence {
	return &Evidence{
		Candidates: int64(len(r.asked.CandidateModels)), Pairwise: r.asked.pairwise(),
		Unpriced: isEndpoint(r.asked.BaselineModel) || isEndpoint(candidate),
	}
}

func isEndpoint(model string) bool { return strings.HasPrefix(model, live.EndpointPrefix) }

// evidence reads what an eval has found about a candidate, as far as it is asked for: an eval may have 10,000 answers
// of each model. lost says why the candidate failed as a whole.
func (r *record) evidence(ctx context.Context, in db.Scoped, candidate string, model int, asked *Thresholds,
) (e *Evidence, lost string, err error) {
	reasons, err := failures(ctx, in, r.ID)
	if err != nil || reasons[model] != "" {
		return nil, reasons[model], err
	}
	counted, err := tallies(ctx, in, r.ID, model, model)
	if err != nil {
		return nil, "", err
	}
	t := counted[model]
	if t == nil {
		t = &tally{}
	}
	certificate, tier, err := r.certificate(ctx, in)
	if err != nil {
		return nil, "", err
	}
	e = r.noEvidence(candidate)
	e.Cases, e.Outcomes, e.Pairs, e.Trust = t.cases(), t.Outcomes, t.Pairs, tier
	e.Outcomes.Losses += t.failed
	e.Pairs.Second += t.failed
	if certificate != nil {
		table := stat.Table(certificate.Matrix)
		e.Judge = &table
	}
	if asked.MaxRegression != nil {
		err = e.readUnanswered(ctx, in, r.ID, model)
	}
	if err == nil && (asked.MaxCostRatio != nil || asked.MaxLatencyRatio != nil) {
		err = e.readAnswers(ctx, in, r.ID, model)
	}
	return e, "", err
}

// readUnanswered counts the cases that the baseline did not answer, by the verdict on the candidate.
func (e *Evidence) readUnanswered(ctx context.Context, in db.Scoped, evalID string, model int) error {
	type row struct{ Passes, Fails int64 }
	n, err := db.One[row](ctx, in, `
		SELECT COUNT(CASE WHEN o.candidate = 'pass' THEN 1 END) AS passes,
			COUNT(CASE WHEN o.candidate = 'fail' THEN 1 END) AS fails
		FROM eval_outcomes o JOIN eval_answers b ON b.workspace_id = $1 AND b.eval_id = $2 AND b.position = o.position
			AND b.model = 0
		WHERE o.workspace_id = $1 AND o.eval_id = $2 AND o.model = $3 AND o.baseline = 'fail' AND b.failure <> ''`,
		evalID, model)
	if err != nil {
		return fmt.Errorf("count the cases without an answer of %s: %w", evalID, err)
	}
	e.Unanswered = stat.Pairs{First: n.Passes, Neither: n.Fails}
	return nil
}

// readAnswers reads the costs of the cases that both models answered, and the latencies of those that the baseline did:
// a candidate that does not answer is never fast.
func (e *Evidence) readAnswers(ctx context.Context, in db.Scoped, evalID string, model int) error {
	type row struct {
		Failed               bool
		Cost, BaseCost       money.Nano
		Latency, BaseLatency int64
	}
	for a, err := range db.Rows[row](ctx, in, `
		SELECT c.failure <> '' AS failed, c.cost, b.cost AS base_cost, c.latency, b.latency AS base_latency
		FROM eval_answers b JOIN eval_answers c ON c.workspace_id = $1 AND c.eval_id = $2 AND c.position = b.position
			AND c.model = $3
		WHERE b.workspace_id = $1 AND b.eval_id = $2 AND b.model = 0 AND b.failure = ''
			ORDER BY b.position`, evalID, model) {
		if err != nil {
			return fmt.Errorf("read the answers of %s: %w", evalID, err)
		}
		switch {
		case a.Failed:
			e.Latencies = append(e.Latencies, math.Inf(1))
			continue
		case a.BaseLatency > 0:
			e.Latencies = append(e.Latencies, float64(a.Latency)/float64(a.BaseLatency))
		}
		e.Costs = append(e.Costs, [2]float64{dollars(a.Cost), dollars(a.BaseCost)})
	}
	return nil
}

// dollars returns an amount as a statistic: nothing is charged by it.
func dollars(n money.Nano) float64 { return float64(n) / float64(money.Dollar) }

// A Proof is an eval that can prove something about a pair of models.
type Proof struct {
	ID  string
	Nth int64 // among the evals of the pair that were started within a time up to its own start
}

// Proofs counts the evals of a pair of models that were started within a time up to now, and returns those that are
// done, the newest first. Evals of inline cases are counted and prove nothing: their cases were chosen by hand.
func (s *Store) Proofs(
	ctx context.Context, in db.Scoped, baseline, candidate string, now clock.Time, within time.Duration,
) (started int64, done []Proof, err error) {
	type row struct {
		ID, Source string
		Status     job.Status
		CreatedAt  clock.Time
	}
	rows, err := db.Query[row](ctx, in, `
		SELECT e.id, e.source, j.status, p.created_at FROM eval_pairs p
		JOIN evals e ON e.workspace_id = $1 AND e.id = p.eval_id JOIN jobs j ON j.workspace_id = $1 AND j.id = p.eval_id
		WHERE p.workspace_id = $1 AND p.baseline = $2 AND p.candidate = $3 AND p.created_at >= $4
			ORDER BY p.created_at DESC, p.eval_id DESC`, baseline, candidate, now.Add(-2*within))
	if err != nil {
		return 0, nil, fmt.Errorf("find the evals of %s: %w", candidate, err)
	}
	before := 0 // the first row that is too old to count with r
	for i, r := range rows {
		for before < len(rows) && rows[before].CreatedAt >= r.CreatedAt.Add(-within) {
			before++
		}
		if r.CreatedAt < now.Add(-within) {
			break
		}
		if started++; r.Status == job.Done && r.Source != inline {
			done = append(done, Proof{ID: r.ID, Nth: int64(before - i)})
		}
	}
	return started, done, nil
}
