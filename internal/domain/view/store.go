package view

import (
	"context"
	"fmt"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/quota"
)

// A Store keeps views. Every change is audited in its own transaction.
type Store struct{ db *db.DB }

// NewStore keeps views in d.
func NewStore(d *db.DB) *Store { return &Store{db: d} }

const columns = `id, 'view' AS object, page, name, query, shared, owner_id, created_at, updated_at`

// List returns the views that a caller sees, of a page or of all, by name.
func (s *Store) List(ctx context.Context, by tenant.Caller, page string, limit, offset int) ([]View, error) {
	all, err := db.Query[View](ctx, s.db.In(by.Workspace), `
		SELECT `+columns+` FROM saved_views
		WHERE workspace_id = $1 AND ($2 = '' OR page = $2) AND (shared OR owner_id = $3)
		ORDER BY name, id LIMIT $4 OFFSET $5`, page, string(by.User), limit, offset)
	if err != nil {
		return nil, fmt.Errorf("read the views: %w", err)
	}
	return all, nil
}

// Get returns a view that a caller sees.
func (s *Store) Get(ctx context.Context, by tenant.Caller, viewID string) (View, error) {
	return find(ctx, s.db.In(by.Workspace), by, viewID)
}

// find reads a view. One that the caller may not see is not found.
func find(ctx context.Context, in db.Scoped, by tenant.Caller, viewID string) (View, error) {
	v, err := db.Maybe[View](ctx, in, `SELECT `+columns+` FROM saved_views WHERE workspace_id = $1 AND id = $2`, viewID)
	switch {
	case err != nil:
		return View{}, fmt.Errorf("read view %s: %w", viewID, err)
	case v == nil || !v.visible(by):
		return View{}, fault.NotFound(object, viewID)
	}
	return *v, nil
}

// Create saves a view.
func (s *Store) Create(ctx context.Context, by tenant.Caller, n NewView) (View, error) {
	now := clock.Now()
	v := View{
		ID: id.New("view"), Object: object, Page: n.Page, Name: n.Name, Query: n.Query, Shared: n.Shared,
		Owner: by.User, CreatedAt: now, UpdatedAt: now,
	}
	v.clean()
	if err := v.check(); err != nil {
		return View{}, err
	}
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(by.Workspace)
		if _, err := db.Exec(ctx, in, `
			INSERT INTO saved_views (workspace_id, id, owner_id, page, name, query, shared, created_at, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
			v.ID, string(v.Owner), v.Page, v.Name, v.Query, v.Shared, now, now); err != nil {
			return fmt.Errorf("save a view: %w", err)
		}
		if err := quota.Check(ctx, in, quota.Views, 1); err != nil {
			return err
		}
		return audit.Record(ctx, tx, by.Workspace, by.Actor(), "view.create", v.ID, nil, v)
	})
	return v, err
}

// Update changes a view.
func (s *Store) Update(ctx context.Context, by tenant.Caller, viewID string, c Change) (v View, err error) {
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		before, err := changeable(ctx, tx, by, viewID)
		if err != nil {
			return err
		}
		v = before
		v.apply(&c)
		v.clean()
		if err := v.check(); err != nil || v == before {
			return err
		}
		v.UpdatedAt = clock.Now()
		if _, err := db.Exec(ctx, tx.In(by.Workspace), `
			UPDATE saved_views SET name = $3, query = $4, shared = $5, updated_at = $6
			WHERE workspace_id = $1 AND id = $2`, viewID, v.Name, v.Query, v.Shared, v.UpdatedAt); err != nil {
			return fmt.Errorf("change view %s: %w", viewID, err)
		}
		return audit.Record(ctx, tx, by.Workspace, by.Actor(), "view.update", viewID, before, v)
	})
	return v, err
}

// Delete deletes a view.
func (s *Store) Delete(ctx context.Context, by tenant.Caller, viewID string) error {
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		before, err := changeable(ctx, tx, by, viewID)
		if err != nil {
			return err
		}
		if _, err := db.Exec(ctx, tx.In(by.Workspace), `DELETE FROM saved_views WHERE workspace_id = $1 AND id = $2`,
			viewID); err != nil {
			return fmt.Errorf("delete view %s: %w", viewID, err)
		}
		return audit.Record(ctx, tx, by.Workspace, by.Actor(), "view.delete", viewID, before, nil)
	})
	return err
}

// changeable finds a view that a caller may change.
func changeable(ctx context.Context, tx *db.Tx, by tenant.Caller, viewID string) (View, error) {
	v, err := find(ctx, tx.In(by.Workspace), by, viewID)
	if err == nil && !v.mayChange(by) {
		err = fault.Forbidden.New("a shared view is changed by the person who saved it, or by an owner or admin")
	}
	return v, err
}
