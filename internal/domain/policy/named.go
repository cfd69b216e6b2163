package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
)

// A Claim says that a model may take the incumbent's place in an alias.
type Claim struct {
	Alias     string
	Incumbent string
	Model     string
	EvalID    string // what must prove it; empty for any eval, or a verdict of the alias's own gate
	Field     string // of the request, for the refusal
	Why       string // a proof is needed
}

// Prove refuses a claim without a proof, on the terms of the workspace's policy, also where the policy asks for none.
// It records the proof.
func (s *Store) Prove(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, c Claim) error {
	p, err := read(ctx, tx.In(ws))
	if err != nil {
		return err
	}
	n := need{Field: c.Field, Model: c.Model, Why: c.Why, Eval: c.EvalID}
	proof, missing, err := s.prove(ctx, tx, ws, &p, c.Alias, c.Incumbent, n)
	switch {
	case err != nil:
		return err
	case missing != nil:
		unproven := &Unproven{Incumbent: c.Incumbent, Missing: []Missing{*missing}}
		return unproven.refusal(&p, c.Alias)
	}
	return audit.Record(ctx, tx, ws, by, "alias.proof", c.Alias, nil, proof)
}

// Verdict says whether an eval that has ended proves, on the terms of the workspace's policy, that a model may take
// another's place. short says why it does not.
func (s *Store) Verdict(
	ctx context.Context, tx *db.Tx, ws tenant.ID, evalID, incumbent, model string,
) (short string, err error) {
	p, err := read(ctx, tx.In(ws))
	if err != nil {
		return "", err
	}
	_, missing, err := s.prove(ctx, tx, ws, &p, model, incumbent, need{Model: model, Eval: evalID})
	if err != nil || missing == nil {
		return "", err
	}
	return missing.Newest.Reason, nil
}

// irrelevant says why an eval is not among those that can prove something about a pair of models.
func (s *Store) irrelevant(
	ctx context.Context, ws tenant.ID, p *EvidencePolicy, evalID, incumbent, model string,
) (string, error) {
	if s.evals == nil {
		return "there are no evals", nil
	}
	e, err := s.evals.Get(ctx, ws, evalID)
	if refusal, ok := errors.AsType[*fault.Fault](err); ok && refusal.Kind == fault.Missing {
		return "there is no such eval", nil
	}
	switch {
	case err != nil:
		return "", err
	case e.BaselineModel != incumbent || !slices.Contains(e.CandidateModels, model):
		return fmt.Sprintf(
			"it compares %v with %s, and not %s with %s", e.CandidateModels, e.BaselineModel, model, incumbent,
		), nil
	case e.Status != job.Done && e.Error != nil:
		return fmt.Sprintf("it is %s: %d of %d cases are done: %s", e.Status, e.Done, e.Total, *e.Error), nil
	case e.Status != job.Done:
		return fmt.Sprintf("it is %s: %d of %d cases are done", e.Status, e.Done, e.Total), nil
	case e.Source == "inline":
		return "its cases were chosen by hand", nil
	}
	return fmt.Sprintf("it was started more than %d days ago", p.MaxAgeDays), nil
}
