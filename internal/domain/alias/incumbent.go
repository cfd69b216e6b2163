package alias

import (
	"context"
	"fmt"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

// An Incumbent is the model that a name stands for. It outlives the alias: deleting an alias and making it anew with
// another model is a repoint.
type Incumbent struct {
	Model    string
	Previous string     // the one before the last repoint; empty if there was none
	Since    clock.Time // when Model became the incumbent
}

// A Change of an alias, as a policy sees it.
type Change struct {
	Incumbent *Incumbent // nil for a name that was never used
	Before    *Alias     // nil for an alias that is made, or made anew
	After     Alias
}

// A Policy decides about changes of aliases.
type Policy interface {
	// Allows refuses a change that needs a proof which is not there. It is called in the transaction of the change,
	// before anything is written, and not for a change that makes no difference.
	Allows(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, c Change) error
}

// Obey has every change wait for p's consent. It must be called before the store is used.
func (s *Store) Obey(p Policy) { s.policy = p }

// Incumbent returns the model that a stands for: its target, or its canary after a cut-over.
func (a *Alias) Incumbent() string {
	if a.CanaryPercent == 100 {
		return a.CanaryModel
	}
	return a.TargetModel
}

// Allowed asks the policy whether an alias may become a.
func (s *Store) Allowed(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, before *Alias, a Alias) error {
	if s.policy == nil {
		return nil
	}
	now, err := incumbentOf(ctx, tx.In(ws), a.Name)
	if err != nil {
		return err
	}
	return s.policy.Allows(ctx, tx, ws, by, Change{Incumbent: now, Before: before, After: a})
}

// incumbentOf reads the incumbent of a name, or returns nil.
func incumbentOf(ctx context.Context, in db.Scoped, name string) (*Incumbent, error) {
	now, err := db.Maybe[Incumbent](ctx, in,
		`SELECT model, previous, since FROM alias_incumbents WHERE workspace_id = $1 AND name = $2`, name)
	if err != nil {
		return nil, fmt.Errorf("read the incumbent of %s: %w", name, err)
	}
	return now, nil
}

// recordIncumbent records which model a name stands for from now on.
func recordIncumbent(ctx context.Context, in db.Scoped, a *Alias) error {
	now, err := incumbentOf(ctx, in, a.Name)
	if err != nil {
		return err
	}
	next := Incumbent{Model: a.Incumbent(), Since: clock.Now()}
	if now != nil {
		next.Previous = now.Model
	}
	if next.Previous == next.Model {
		return nil
	}
	if _, err := db.Exec(ctx, in, `
		INSERT INTO alias_incumbents (workspace_id, name, model, previous, since) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (workspace_id, name) DO UPDATE SET
			model = excluded.model, previous = excluded.previous, since = excluded.since`,
		a.Name, next.Model, next.Previous, next.Since); err != nil {
		return fmt.Errorf("write the incumbent of %s: %w", a.Name, err)
	}
	return nil
}
