package alias

import (
	"context"
	"fmt"
	"slices"

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
	gates  Gates  // nil: gates are stored, and judge nothing
	policy Policy // nil allows every change
}

// NewStore keeps aliases in d and publishes changes through f.
func NewStore(d *db.DB, f *feed.Feed) *Store { return &Store{db: d, feed: f} }

// Attach sets what compares canaries. It must be called before the store is used.
func (s *Store) Attach(g Gates) { s.gates = g }

// Put creates an alias, or replaces the whole of the one that has its name, and returns it as it is kept. The caller
// has checked it. A Put that makes no difference is no repoint: it changes no time and is not audited.
func (s *Store) Put(ctx context.Context, ws tenant.ID, by tenant.Actor, a Alias) (Alias, error) {
	var after Alias
	err := s.feed.Change(ctx, func(tx *db.Tx) error {
		before, err := Find(ctx, tx.In(ws), a.Name)
		if err != nil {
			return err
		}
		if before != nil && before.same(a) {
			after = *before
			tx.Touch(changed, ws, a.Name) // a repetition too waits until it is in force
			return nil
		}
		if err := s.Allowed(ctx, tx, ws, by, before, a); err != nil {
			return err
		}
		after = a
		if before != nil {
			after.GateEpoch, after.GateStratum, after.GateKey = before.GateEpoch, before.GateStratum, before.GateKey
		}
		if s.gates != nil && (after.Gated() || after.GateEpoch != "") {
			if err := s.gates.Begin(ctx, tx, ws, before, &after); err != nil {
				return err
			}
		}
		return Save(ctx, tx, ws, by, before, &after)
	})
	if err != nil {
		return Alias{}, err
	}
	return s.show(ctx, ws, after)
}

// Save writes an alias, audited, in a transaction. before is what it replaces, nil for a new one.
func Save(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, before, after *Alias) error {
	fallbacks, err := after.FallbackModels.text()
	if err != nil {
		return err
	}
	after.Object, after.UpdatedAt = object, clock.Now()
	after.CreatedAt = after.UpdatedAt
	if before != nil {
		after.CreatedAt = before.CreatedAt
	}
	g := &after.GateSettings
	if _, err := db.Exec(ctx, tx.In(ws), `
		INSERT INTO aliases (workspace_id, name, target_model, description, canary_model, canary_percent, fallback_models, created_at, updated_at,
			gate_criterion_id, gate_mode, gate_min_samples, gate_rollback_threshold, gate_window_hours, gate_sample_percent, gate_max_cost,
			gate_epoch, gate_stratum, gate_key)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
		ON CONFLICT (workspace_id, name) DO UPDATE SET
			target_model = excluded.target_model, description = excluded.description, canary_model = excluded.canary_model,
			canary_percent = excluded.canary_percent, fallback_models = excluded.fallback_models, updated_at = excluded.updated_at,
			gate_criterion_id = excluded.gate_criterion_id, gate_mode = excluded.gate_mode, gate_min_samples = excluded.gate_min_samples,
			gate_rollback_threshold = excluded.gate_rollback_threshold, gate_window_hours = excluded.gate_window_hours,
			gate_sample_percent = excluded.gate_sample_percent, gate_max_cost = excluded.gate_max_cost,
			gate_epoch = excluded.gate_epoch, gate_stratum = excluded.gate_stratum, gate_key = excluded.gate_key`,
		after.Name, after.TargetModel, after.Description, after.CanaryModel, after.CanaryPercent, fallbacks,
		after.CreatedAt, after.UpdatedAt, g.GateCriterionID, g.GateMode, g.GateMinSamples, g.GateRollbackThreshold,
		g.GateWindowHours, g.GateSamplePercent, g.GateMaxCost,
		after.GateEpoch, after.GateStratum, after.GateKey); err != nil {
		return fmt.Errorf("put alias %s: %w", after.Name, err)
	}
	if before == nil {
		if err := quota.Check(ctx, tx.In(ws), quota.Aliases, 1); err != nil {
			return err
		}
	}
	if err := recordIncumbent(ctx, tx.In(ws), after); err != nil {
		return err
	}
	tx.Touch(changed, ws, after.Name)
	return audit.Record(ctx, tx, ws, by, "alias.put", after.Name, before, after)
}

// SetEpoch stores what the requests of an alias are drawn for.
func SetEpoch(ctx context.Context, tx *db.Tx, ws tenant.ID, a *Alias) error {
	tx.Touch(changed, ws, a.Name)
	if _, err := db.Exec(ctx, tx.In(ws), `
		UPDATE aliases SET gate_epoch = $3, gate_stratum = $4, gate_key = $5 WHERE workspace_id = $1 AND name = $2`,
		a.Name, a.GateEpoch, a.GateStratum, a.GateKey); err != nil {
		return fmt.Errorf("begin an epoch of alias %s: %w", a.Name, err)
	}
	return nil
}

// Delete ends an alias: its name is unknown from then on, and its history stays.
func (s *Store) Delete(ctx context.Context, ws tenant.ID, by tenant.Actor, name string) error {
	return s.feed.Change(ctx, func(tx *db.Tx) error {
		before, err := Find(ctx, tx.In(ws), name)
		if err != nil {
			return err
		}
		if before == nil {
			return fault.NotFound(object, name)
		}
		if s.gates != nil && before.GateEpoch != "" {
			if err := s.gates.End(ctx, tx, ws, before.GateEpoch); err != nil {
				return err
			}
		}
		if _, err := db.Exec(
			ctx, tx.In(ws), `DELETE FROM aliases WHERE workspace_id = $1 AND name = $2`, name,
		); err != nil {
			return fmt.Errorf("delete alias %s: %w", name, err)
		}
		tx.Touch(changed, ws, name)
		return audit.Record(ctx, tx, ws, by, "alias.delete", name, before, nil)
	})
}

// object is what an alias is called on the wire and in the audit trail.
const object = "alias"

const columns = `'alias' AS object, name, target_model, description, canary_model, canary_percent, fallback_models, created_at, updated_at,
	gate_criterion_id, gate_mode, gate_min_samples, gate_rollback_threshold, gate_window_hours, gate_sample_percent, gate_max_cost,
	gate_epoch, gate_stratum, gate_key FROM aliases`

// Find is the alias of that name without what its gate knows, or nil.
func Find(ctx context.Context, scope db.Scoped, name string) (*Alias, error) {
	a, err := db.Maybe[Alias](ctx, scope, `SELECT `+columns+` WHERE workspace_id = $1 AND name = $2`, name)
	if err != nil {
		return nil, fmt.Errorf("find alias: %w", err)
	}
	return a, nil
}

// Get is the alias of that name.
func (s *Store) Get(ctx context.Context, ws tenant.ID, name string) (Alias, error) {
	a, err := Find(ctx, s.db.In(ws), name)
	if err != nil {
		return Alias{}, err
	}
	if a == nil {
		return Alias{}, fault.NotFound(object, name)
	}
	return s.show(ctx, ws, *a)
}

// show returns an alias with what its gate knows.
func (s *Store) show(ctx context.Context, ws tenant.ID, a Alias) (Alias, error) {
	one := []Alias{a}
	if s.gates == nil || !a.Gated() {
		return a, nil
	}
	err := s.gates.Show(ctx, s.db.In(ws), one)
	return one[0], err
}

// List reads a workspace's aliases, the newest first, and those of one instant by name.
func (s *Store) List(ctx context.Context, ws tenant.ID, limit, offset int) ([]Alias, error) {
	all, err := db.Query[Alias](ctx, s.db.In(ws), `SELECT `+columns+`
		WHERE workspace_id = $1 ORDER BY created_at DESC, name LIMIT $2 OFFSET $3`, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list aliases: %w", err)
	}
	if s.gates != nil && slices.ContainsFunc(all, func(a Alias) bool { return a.Gated() }) {
		err = s.gates.Show(ctx, s.db.In(ws), all)
	}
	return all, err
}

// A Ref names an alias of a workspace.
type Ref struct {
	WorkspaceID tenant.ID
	Name        string
}

// ListGated returns the gated aliases of all workspaces.
func ListGated(ctx context.Context, d *db.DB) ([]Ref, error) {
	return db.Query[Ref](ctx, d.Across("gates of all workspaces judge"),
		`SELECT workspace_id, name FROM aliases WHERE gate_criterion_id <> '' ORDER BY workspace_id, name`)
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
