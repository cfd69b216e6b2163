package grpo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/eval"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/train"
	"sovereign/internal/store/db"
)

// An Evaluation is what candidates need to be compared with their base models.
type Evaluation struct {
	Evals Evals
	// Serves says why a workspace cannot call a model.
	Serves func(ws tenant.ID, model string) error
	// Verdict says why an eval that has ended does not prove that a model may take another's place; empty if it does.
	Verdict func(ctx context.Context, tx *db.Tx, ws tenant.ID, evalID, incumbent, model string) (string, error)
}

// Evals is what candidates need of evals.
type Evals interface {
	Create(ctx context.Context, ws tenant.ID, by tenant.Actor, n eval.NewEval) (eval.Eval, error)
	Get(ctx context.Context, ws tenant.ID, evalID string) (eval.Eval, error)
}

// What the gate of a candidate says.
const (
	gatePass    = "pass"
	gateRefused = "refused"
)

const (
	// A candidate is looked at again after so long: one that no engine serves, and one whose eval was refused.
	unservedPause, refusedPause = 5 * time.Second, time.Minute
	// mostCases is how many cases an eval of a candidate has at most, and fewestCases how many a gate needs.
	mostCases, fewestCases = 1000, 20
	// oneRound is how many candidates are looked at together.
	oneRound = 100
)

// A due candidate waits for its eval, or for the end of it.
type due struct {
	WorkspaceID tenant.ID
	ID, RunID   string
	EvalID      string
	Version     string // the name that it is called by; empty after it was deleted
	BaseModel   string
	// the name of the version that the run began with; empty for the base model, and after it was deleted
	Parent string
}

// baseline is the model that the candidate is compared with: what it was trained from.
func (c *due) baseline() string { return cmp.Or(c.Parent, train.BaseName(c.BaseModel)) }

const dueColumns = `SELECT c.workspace_id, c.id, c.run_id, c.eval_id, COALESCE(v.name, '') AS version,
	COALESCE(v.base_model, '') AS base_model, COALESCE(p.name, '') AS parent FROM grpo_candidates c
	LEFT JOIN model_versions v ON v.workspace_id = c.workspace_id AND v.id = c.model_version_id
	LEFT JOIN model_versions p ON p.workspace_id = v.workspace_id AND p.id = v.parent_id`

// evaluate makes the evals of candidates that can be served, and notes what the gates of those say that have ended.
func (s *Store) evaluate(ctx context.Context) error {
	if s.Evaluation == nil {
		return nil
	}
	all, err := db.Query[due](ctx, s.DB.Across("candidates of all workspaces are evaluated"), dueColumns+`
		WHERE c.gate = '' AND (c.eval_id <> '' OR c.due_at <= $1) ORDER BY c.due_at, c.id LIMIT $2`,
		clock.Now(), oneRound)
	if err != nil {
		return fmt.Errorf("find candidates: %w", err)
	}
	var failed error
	for i := range all {
		if all[i].EvalID == "" {
			err = s.compare(ctx, &all[i])
		} else {
			err = s.conclude(ctx, &all[i])
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// compare makes the eval of a candidate against what it was trained from: one, in the transaction that notes it.
func (s *Store) compare(ctx context.Context, c *due) error {
	if c.Version == "" {
		return s.note(ctx, c, gateRefused, "the model version was deleted", 0)
	}
	for _, model := range []string{c.baseline(), c.Version} {
		if err := s.Evaluation.Serves(c.WorkspaceID, model); err != nil {
			return s.note(ctx, c, "", "it waits for an engine: "+fault.From(err).Message, unservedPause)
		}
	}
	asked, err := s.asked(ctx, c)
	if err != nil {
		return s.refused(ctx, c, err)
	}
	for {
		err := s.createEval(ctx, c, asked)
		if err == nil || !tooDear(err) || asked.SampleCount <= fewestCases {
			return s.refused(ctx, c, err)
		}
		asked.SampleCount = max(asked.SampleCount/2, fewestCases)
	}
}

// tooDear reports whether an eval is refused for what it would cost.
func tooDear(err error) bool {
	refusal, ok := errors.AsType[*fault.Fault](err)
	return ok && refusal.Field == "max_cost_usd"
}

// refused notes why an eval could not be made. A failure of the server is no reason.
func (s *Store) refused(ctx context.Context, c *due, err error) error {
	refusal, ok := errors.AsType[*fault.Fault](err)
	if err == nil || !ok || refusal.Status >= 500 {
		return err
	}
	return s.note(ctx, c, "", "its eval cannot be made: "+refusal.Message, refusedPause)
}

// asked returns the eval of a candidate: by the judge that rewarded it, on what was held out of its dataset where
// something was. It may cost what is left of the run's budget.
func (s *Store) asked(ctx context.Context, c *due) (*eval.NewEval, error) {
	r, err := s.find(ctx, s.DB.In(c.WorkspaceID), c.RunID)
	if err != nil {
		return nil, err
	}
	in, err := r.request()
	if err != nil {
		return nil, err
	}
	run, err := s.view(ctx, r)
	if err != nil {
		return nil, err
	}
	set, err := s.Datasets.Get(ctx, c.WorkspaceID, in.DatasetID)
	if err != nil {
		return nil, err
	}
	if set.HoldoutID != nil {
		if held, err := s.Datasets.Get(ctx, c.WorkspaceID, *set.HoldoutID); err == nil && held.Rows >= fewestCases {
			set = held
		}
	}
	left := in.Budget - run.Spent
	if left <= 0 {
		return nil, fault.Precondition.New(
			"the run has spent its budget of $%s, which also pays for the eval", in.Budget,
		)
	}
	seed := *in.Seed
	return &eval.NewEval{
		Name: "Candidate of " + c.RunID, CriterionID: in.CriterionID, BaselineModel: c.baseline(), Seed: &seed,
		CandidateModels: []string{c.Version}, DatasetID: set.ID, SampleCount: int(min(set.Rows, mostCases)),
		Spending: judging.Spending{MaxCostUSD: &left},
	}, nil
}

// createEval makes an eval, unless the candidate has one by now.
func (s *Store) createEval(ctx context.Context, c *due, asked *eval.NewEval) error {
	_, err := s.DB.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(c.WorkspaceID)
		waits, err := db.One[int64](ctx, in, `SELECT COUNT(*) FROM grpo_candidates
			WHERE workspace_id = $1 AND id = $2 AND eval_id = '' AND gate = ''`, c.ID)
		if err != nil || waits == 0 {
			return err
		}
		made, err := s.Evaluation.Evals.Create(tx.Bind(ctx), c.WorkspaceID, tenant.Gate, *asked)
		if err != nil {
			return err
		}
		if _, err := db.Exec(ctx, in, `UPDATE grpo_candidates SET eval_id = $3, gate_reason = ''
			WHERE workspace_id = $1 AND id = $2`, c.ID, made.ID); err != nil {
			return fmt.Errorf("note the eval of a candidate: %w", err)
		}
		return nil
	})
	return err
}

// conclude notes what the gate of a candidate says, when its eval has ended.
func (s *Store) conclude(ctx context.Context, c *due) error {
	e, err := s.Evaluation.Evals.Get(ctx, c.WorkspaceID, c.EvalID)
	if err != nil || !e.Status.Ended() {
		return err
	}
	_, err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		short, err := s.Evaluation.Verdict(
			tx.Bind(ctx), tx, c.WorkspaceID, c.EvalID, e.BaselineModel, e.CandidateModels[0],
		)
		if err != nil {
			return err
		}
		gate := gatePass
		if short != "" {
			gate = gateRefused
		}
		return s.note(tx.Bind(ctx), c, gate, short, 0)
	})
	return err
}

// note writes what the gate of a candidate says, or why it waits, and until when.
func (s *Store) note(ctx context.Context, c *due, gate, reason string, pause time.Duration) error {
	if _, err := db.Exec(ctx, s.DB.In(c.WorkspaceID), `UPDATE grpo_candidates SET gate = $3, gate_reason = $4, due_at = $5
		WHERE workspace_id = $1 AND id = $2 AND gate = ''`, c.ID, gate, reason, clock.Now().Add(pause)); err != nil {
		return fmt.Errorf("note the gate of a candidate: %w", err)
	}
	return nil
}
