package alias

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/quota"
)

// A Store keeps aliases. Every change is audited in its own transaction, and in force when its method returns.
type Store struct {
	db     *db.DB
	feed   *feed.Feed
	policy Policy
}

// NewStore keeps aliases in d and publishes changes through f.
func NewStore(d *db.DB, f *feed.Feed) *Store { return &Store{db: d, feed: f} }

// Put creates an alias, or replaces the whole of the one that has its name, and returns it as it is kept. The caller
// has checked it. A Put that makes no difference is no repoint: it changes no time and is not audited.
func (s *Store) Put(ctx context.Context, ws tenant.ID, by tenant.Actor, a Alias) (Alias, error) {
	fallbacks, err := a.FallbackModels.text()
	if err != nil {
		return Alias{}, err
	}
	var after Alias
	err = s.feed.Change(ctx, func(tx *db.Tx) error {
		before, err := find(ctx, tx.In(ws), a.Name)
		if err != nil {
			return err
		}
		tx.Touch(changed, ws, a.Name) // a repetition too waits until it is in force
		if before != nil && before.same(a) {
			after = *before
			return nil
		}
		if err := s.allowed(ctx, tx, ws, by, before, a); err != nil {
			return err
		}
		after = a
		after.Object, after.UpdatedAt = object, clock.Now()
		after.CreatedAt = after.UpdatedAt
		if before != nil {
			after.CreatedAt = before.CreatedAt
		}
		if _, err := db.Exec(ctx, tx.In(ws), `
			INSERT INTO aliases (workspace_id, name, target_model, description, canary_model, canary_percent, fallback_models, created_at, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
			ON CONFLICT (workspace_id, name) DO UPDATE SET
				target_model = excluded.target_model, description = excluded.description, canary_model = excluded.canary_model,
				canary_percent = excluded.canary_percent, fallback_models = excluded.fallback_models, updated_at = excluded.updated_at`,
			a.Name, a.TargetModel, a.Description, a.CanaryModel, a.CanaryPercent, fallbacks, after.CreatedAt, after.UpdatedAt); err != nil {
			return fmt.Errorf("put alias %s: %w", a.Name, err)
		}
		if before == nil {
			if err := quota.Check(ctx, tx.In(ws), quota.Aliases, 1); err != nil {
				return err
			}
		}
		if err := recordIncumbent(ctx, tx.In(ws), &after); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, "alias.put", a.Name, before, after)
	})
	if err != nil {
		return Alias{}, err
	}
	return after, nil
}

// Delete ends an alias: its name is unknown from then on, and its history stays.
func (s *Store) Delete(ctx context.Context, ws tenant.ID, by tenant.Actor, name string) error {
	return s.feed.Change(ctx, func(tx *db.Tx) error {
		before, err := find(ctx, tx.In(ws), name)
		if err != nil {
			return err
		}
		if before == nil {
			return fault.NotFound(object, name)
		}
		if _, err := db.Exec(ctx, tx.In(ws), `DELETE FROM aliases WHERE workspace_id = $1 AND name = $2`, name); err != nil {
			return fmt.Errorf("delete alias %s: %w", name, err)
		}
		tx.Touch(changed, ws, name)
		return audit.Record(ctx, tx, ws, by, "alias.delete", name, before, nil)
	})
}

// object is what an alias is called on the wire and in the audit trail.
const object = "alias"

const columns = `'alias' AS object, name, target_model, description, canary_model, canary_percent, fallback_models, created_at, updated_at FROM aliases`

// find is the alias of that name, or nil.
func find(ctx context.Context, scope db.Scoped, name string) (*Alias, error) {
	a, err := db.Maybe[Alias](ctx, scope, `SELECT `+columns+` WHERE workspace_id = $1 AND name = $2`, name)
	if err != nil {
		return nil, fmt.Errorf("find alias: %w", err)
	}
	return a, nil
}

// Get is the alias of that name.
func (s *Store) Get(ctx context.Context, ws tenant.ID, name string) (Alias, error) {
	a, err := find(ctx, s.db.In(ws), name)
	if err != nil {
		return Alias{}, err
	}
	if a == nil {
		return Alias{}, fault.NotFound(object, name)
	}
	return *a, nil
}

// List reads a workspace's aliases, the newest first, and those of one instant by name.
func (s *Store) List(ctx context.Context, ws tenant.ID, limit, offset int) ([]Alias, error) {
	return db.Query[Alias](ctx, s.db.In(ws), `SELECT `+columns+`
		WHERE workspace_id = $1 ORDER BY created_at DESC, name LIMIT $2 OFFSET $3`, limit, offset)
}

// History reads every change of the aliases that had that name, newest first: a deleted one can still be read, and
// one that was made again continues it.
func (s *Store) History(ctx context.Context, ws tenant.ID, name string, limit, offset int) ([]audit.Entry, error) {
	entries, err := audit.History(ctx, s.db, ws, object, name, limit, offset)
	if err != nil || len(entries) > 0 {
		return entries, err
	}
	if first, err := audit.History(ctx, s.db, ws, object, name, 1, 0); err != nil || len(first) > 0 {
		return nil, err // the page is behind the end
	}
	return nil, fault.NotFound(object, name)
}

// text is m as the table keeps it.
func (m Models) text() (string, error) {
	text, err := json.Marshal([]string(m))
	if err != nil {
		return "", fmt.Errorf("write models: %w", err)
	}
	return string(text), nil
}

// Scan reads m as the table keeps it.
func (m *Models) Scan(kept any) error {
	text, ok := kept.(string)
	if !ok {
		return fmt.Errorf("models are kept as text, not %T", kept)
	}
	return json.Unmarshal([]byte(text), (*[]string)(m))
}
