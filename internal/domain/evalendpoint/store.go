package evalendpoint

import (
	"context"
	"fmt"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/net/netguard"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/quota"
	"sovereign/internal/store/vault"
)

// A Store keeps endpoints. Every change is audited in its own transaction.
type Store struct {
	db    *db.DB
	vault *vault.Vault
	guard *netguard.Guard
}

// NewStore keeps endpoints in d, with keys that v seals. Their URLs are such as guard would dial.
func NewStore(d *db.DB, v *vault.Vault, guard *netguard.Guard) *Store {
	return &Store{db: d, vault: v, guard: guard}
}

// A row is an endpoint with its sealed key, which is nil if there is none.
type row struct {
	EvalEndpoint
	Sealed []byte
}

const columns = `id, 'endpoint' AS object, name, base_url, model, sealed IS NOT NULL AS has_api_key,
	created_at, updated_at`

// Put keeps an endpoint. One that has its name is changed and keeps its id, and its key unless another is given. A key
// is never sent to another URL than the one it was given for: a new URL needs the key again.
func (s *Store) Put(ctx context.Context, ws tenant.ID, by tenant.Actor, n New) (after EvalEndpoint, err error) {
	if err := n.check(s.guard); err != nil {
		return EvalEndpoint{}, err
	}
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(ws)
		before, err := db.Maybe[row](ctx, in, `SELECT `+columns+`, sealed FROM eval_endpoints
			WHERE workspace_id = $1 AND name = $2`, n.Name)
		if err != nil {
			return fmt.Errorf("find an endpoint by its name: %w", err)
		}
		next, err := s.next(ws, before, n)
		if err != nil {
			return err
		}
		after = next.EvalEndpoint
		after.created = before == nil
		if _, err := db.Exec(ctx, in, `
			INSERT INTO eval_endpoints (workspace_id, id, name, base_url, model, sealed, created_at, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
			ON CONFLICT (workspace_id, name) DO UPDATE SET
				base_url = excluded.base_url, model = excluded.model, sealed = excluded.sealed,
				updated_at = excluded.updated_at`,
			after.ID, n.Name, n.BaseURL, n.Model, next.Sealed, after.CreatedAt, after.UpdatedAt); err != nil {
			return fmt.Errorf("keep an endpoint: %w", err)
		}
		if before != nil {
			return audit.Record(ctx, tx, ws, by, "endpoint.put", after.ID, before.EvalEndpoint, after)
		}
		if err := quota.Check(ctx, in, quota.Endpoints, 1); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, "endpoint.put", after.ID, nil, after)
	})
	if err != nil {
		return EvalEndpoint{}, err
	}
	return after, nil
}

// next returns the row that n makes of the one before it, which may be nil.
func (s *Store) next(ws tenant.ID, before *row, n New) (row, error) {
	now := clock.Now()
	next := row{EvalEndpoint: EvalEndpoint{
		ID: id.New("ep"), Object: object, Name: n.Name, BaseURL: n.BaseURL, Model: n.Model,
		CreatedAt: now, UpdatedAt: now,
	}}
	if before != nil {
		next.ID, next.CreatedAt, next.Sealed = before.ID, before.CreatedAt, before.Sealed
	}
	switch {
	case n.APIKey != nil:
		sealed, err := s.vault.Seal([]byte(n.APIKey.Reveal()), sealedFor(ws, next.ID, n.BaseURL))
		if err != nil {
			return row{}, fmt.Errorf("seal an endpoint's key: %w", err)
		}
		next.Sealed = sealed
	case next.Sealed != nil && before.BaseURL != n.BaseURL:
		return row{}, fault.Invalid(
			"api_key", "is required, because base_url changes: the key was given for another URL",
		)
	}
	next.HasAPIKey = next.Sealed != nil
	return next, nil
}

// Delete forgets an endpoint and its key. Evals that it answered in keep their results.
func (s *Store) Delete(ctx context.Context, ws tenant.ID, by tenant.Actor, id string) error {
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		before, err := find(ctx, tx.In(ws), id)
		if err != nil {
			return err
		}
		const remove = `DELETE FROM eval_endpoints WHERE workspace_id = $1 AND id = $2`
		if _, err := db.Exec(ctx, tx.In(ws), remove, id); err != nil {
			return fmt.Errorf("delete an endpoint: %w", err)
		}
		return audit.Record(ctx, tx, ws, by, "endpoint.delete", id, before, nil)
	})
	return err
}

func find(ctx context.Context, in db.Scoped, id string) (EvalEndpoint, error) {
	e, err := db.Maybe[EvalEndpoint](ctx, in, `SELECT `+columns+` FROM eval_endpoints
		WHERE workspace_id = $1 AND id = $2`, id)
	switch {
	case err != nil:
		return EvalEndpoint{}, fmt.Errorf("find an endpoint: %w", err)
	case e == nil:
		return EvalEndpoint{}, fault.NotFound(object, id)
	}
	return *e, nil
}

// Check refuses the id of an endpoint that the workspace does not have.
func (s *Store) Check(ctx context.Context, in db.Scoped, id string) error {
	_, err := find(ctx, in, id)
	return err
}

// Get returns the endpoint of that id.
func (s *Store) Get(ctx context.Context, ws tenant.ID, id string) (EvalEndpoint, error) {
	return find(ctx, s.db.In(ws), id)
}

// List reads a workspace's endpoints, the newest first.
func (s *Store) List(ctx context.Context, ws tenant.ID, limit, offset int) ([]EvalEndpoint, error) {
	all, err := db.Query[EvalEndpoint](ctx, s.db.In(ws), `SELECT `+columns+` FROM eval_endpoints
		WHERE workspace_id = $1 ORDER BY created_at DESC, id DESC LIMIT $2 OFFSET $3`, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list endpoints: %w", err)
	}
	return all, nil
}

// A target is an endpoint that can be called.
type target struct {
	name, model string
	url         netguard.URL
	key         secret.Text // empty for none
}

// open returns the endpoint as it is now, with its key.
func (s *Store) open(ctx context.Context, ws tenant.ID, id string) (*target, error) {
	r, err := db.Maybe[row](ctx, s.db.In(ws), `SELECT `+columns+`, sealed FROM eval_endpoints
		WHERE workspace_id = $1 AND id = $2`, id)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read an endpoint: %w", err)
	case r == nil:
		return nil, fault.Missing.New("the endpoint %q was deleted", id)
	}
	to := &target{name: r.Name, model: r.Model}
	if to.url, err = s.guard.Parse(r.BaseURL); err != nil {
		return nil, fault.UnknownProvider.New("the endpoint %q cannot be called: its base_url %s", r.Name, err)
	}
	if r.Sealed != nil {
		plain, err := s.vault.Unseal(r.Sealed, sealedFor(ws, r.ID, r.BaseURL))
		if err != nil {
			const broken = "the key of the endpoint %q cannot be read: set it again"
			return nil, fault.UnknownProvider.Because(err, broken, r.Name)
		}
		to.key = secret.New(string(plain))
	}
	return to, nil
}
