package reward

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

// Stop stops a session at once. A session that has ended is returned as it is.
func (s *Store) Stop(ctx context.Context, ws tenant.ID, by tenant.Actor, id string) (Session, error) {
	r, err := s.current(ctx, ws, id)
	if err != nil {
		return Session{}, err
	}
	if r, _, err = s.move(ctx, ws, by, r.ID, Stopped, ""); err != nil {
		return Session{}, err
	}
	return s.view(ctx, ws, r)
}

// Complete ends a session whose run is done. Completing it again is a no-op; one that has ended otherwise is refused.
func (s *Store) Complete(ctx context.Context, ws tenant.ID, by tenant.Actor, id string) (Session, error) {
	r, err := s.current(ctx, ws, id)
	if err != nil {
		return Session{}, err
	}
	if r, _, err = s.move(ctx, ws, by, r.ID, Completed, ""); err != nil {
		return Session{}, err
	}
	if r.Status != Completed {
		return Session{}, r.ended()
	}
	return s.view(ctx, ws, r)
}

// current reads a session, and ends it first if its time is over.
func (s *Store) current(ctx context.Context, ws tenant.ID, id string) (*session, error) {
	r, err := s.find(ctx, s.DB.In(ws), id)
	if err != nil {
		return nil, err
	}
	return s.expireIfDue(ctx, ws, r)
}

// expireIfDue ends an active session whose time is over. Its callers do not depend on the loop that ends such sessions.
func (s *Store) expireIfDue(ctx context.Context, ws tenant.ID, r *session) (*session, error) {
	if r.Status != Active || s.now() < r.ExpiresAt {
		return r, nil
	}
	after, _, err := s.move(ctx, ws, tenant.Operator, r.ID, Stopped, expired)
	return after, err
}

const (
	expiryEvery = 2 * time.Second
	expiryBatch = 100
)

// expireDue ends the sessions of all workspaces whose time is over. One that cannot be ended now does not keep others
// from their end.
func (s *Store) expireDue(ctx context.Context) error {
	for {
		due, err := db.Query[ref](ctx, s.DB.Across("sessions of all workspaces expire"), `
			SELECT workspace_id, id FROM reward_sessions WHERE ended_at = 0 AND expires_at <= $1 ORDER BY expires_at
			LIMIT $2`, s.now(), expiryBatch)
		if err != nil {
			return fmt.Errorf("find expired reward sessions: %w", err)
		}
		var failed error
		for _, r := range due {
			_, _, err := s.move(ctx, r.WorkspaceID, tenant.Operator, r.ID, Stopped, expired)
			failed = errors.Join(failed, err)
		}
		if failed != nil || len(due) < expiryBatch {
			return failed
		}
	}
}

// Fill implements feed.Source: sessions that have ended are not scored any more.
func (s *Store) Fill(ctx context.Context) error {
	for _, r := range s.running.sessions() {
		if err := s.cancelEnded(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// Apply implements feed.Source.
func (s *Store) Apply(ctx context.Context, change db.Change) error {
	return s.cancelEnded(ctx, ref{change.Workspace, change.Subject})
}

// cancelEnded cancels what is scored in this process of a session that has ended.
func (s *Store) cancelEnded(ctx context.Context, at ref) error {
	r, err := s.find(ctx, s.DB.In(at.WorkspaceID), at.ID)
	switch {
	case err == nil && r.Status == Active:
		return nil
	case err != nil && fault.From(err).Kind != fault.Missing: // a database that lost its last commits has no row
		return err
	}
	s.running.end(at.WorkspaceID, at.ID)
	return nil
}
