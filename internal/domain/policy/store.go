package policy

import (
	"context"
	"fmt"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/alias"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
)

// A Store keeps evidence policies, and applies them to aliases.
type Store struct {
	db       *db.DB
	evals    Evals    // nil: none
	canaries Canaries // nil: none
}

// NewStore keeps the policies of d.
func NewStore(d *db.DB) *Store { return &Store{db: d} }

// AttachEvals lets evals prove something. It must be called before the store is used.
func (s *Store) AttachEvals(e Evals) { s.evals = e }

// AttachCanaries lets the gates of aliases prove something. It must be called before the store is used.
func (s *Store) AttachCanaries(c Canaries) { s.canaries = c }

// Get reads a workspace's policy.
func (s *Store) Get(ctx context.Context, ws tenant.ID) (EvidencePolicy, error) {
	return read(ctx, s.db.In(ws))
}

func read(ctx context.Context, in db.Scoped) (EvidencePolicy, error) {
	p, err := db.Maybe[EvidencePolicy](ctx, in, `
		SELECT 'evidence_policy' AS object, required, max_age_days, min_trust, max_regression, confidence,
			max_unproven_canary_percent
		FROM evidence_policies WHERE workspace_id = $1`)
	switch {
	case err != nil:
		return EvidencePolicy{}, fmt.Errorf("read the evidence policy: %w", err)
	case p == nil:
		return standard, nil
	}
	return *p, nil
}

// Set changes a workspace's policy, and returns all of it. Changes of aliases obey it from then on.
func (s *Store) Set(
	ctx context.Context, ws tenant.ID, by tenant.Actor, change *EvidencePolicyChange,
) (after EvidencePolicy, err error) {
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		before, err := read(ctx, tx.In(ws))
		if err != nil {
			return err
		}
		after = before.with(change)
		if err := after.check(); err != nil {
			return err
		}
		if _, err := db.Exec(ctx, tx.In(ws), `
			INSERT INTO evidence_policies (workspace_id, required, max_age_days, min_trust, max_regression, confidence,
				max_unproven_canary_percent, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
			ON CONFLICT (workspace_id) DO UPDATE SET required = excluded.required, max_age_days = excluded.max_age_days,
				min_trust = excluded.min_trust, max_regression = excluded.max_regression, confidence = excluded.confidence,
				max_unproven_canary_percent = excluded.max_unproven_canary_percent, updated_at = excluded.updated_at`,
			after.Required, after.MaxAgeDays, after.MinTrust, after.MaxRegression, after.Confidence,
			after.MaxUnprovenCanaryPercent, clock.Now()); err != nil {
			return fmt.Errorf("write the evidence policy: %w", err)
		}
		return audit.Record(ctx, tx, ws, by, "workspace.evidence", string(ws), before, after)
	})
	if err != nil {
		return EvidencePolicy{}, err
	}
	return after, nil
}

// Allows implements alias.Policy. It records the proofs of a change that it allows.
func (s *Store) Allows(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, c alias.Change) error {
	p, err := read(ctx, tx.In(ws))
	if err != nil || !p.Required {
		return err
	}
	var proofs []*Proof
	var missing []Missing
	for _, n := range p.needs(c) {
		proof, lack, err := s.prove(ctx, tx, ws, &p, c.After.Name, c.Incumbent.Model, n)
		if err != nil {
			return err
		}
		if lack != nil {
			missing = append(missing, *lack)
			continue
		}
		proofs = append(proofs, proof)
	}
	if len(missing) > 0 {
		unproven := &Unproven{Incumbent: c.Incumbent.Model, Previous: c.Incumbent.Previous, Missing: missing}
		return unproven.refusal(&p, c.After.Name)
	}
	for _, proof := range proofs {
		if err := audit.Record(ctx, tx, ws, by, "alias.proof", c.After.Name, nil, proof); err != nil {
			return err
		}
	}
	return nil
}
