package reward

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/judging"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
)

// A retention is how many days what was scored is kept after the end of its session. 0 keeps it.
type retention struct{ days atomic.Int64 }

// SetRetention sets how many days tasks and scored items are kept after the end of their session; 0 keeps them.
func (s *Store) SetRetention(days int64) { s.retention.days.Store(days) }

// kept refuses a session whose texts were deleted.
func (r *session) kept() error {
	if r.PurgedAt > 0 {
		return fault.Missing.New(
			"the tasks and scored items of the reward session %s were deleted on %s", r.ID, r.PurgedAt,
		)
	}
	return nil
}

// Purge deletes the tasks, the scored items, the checks and the tokens of a session that has ended, and what its judges
// answered. The session stays, with its state, its counts and what it spent.
func (s *Store) Purge(ctx context.Context, ws tenant.ID, by tenant.Actor, id string) error {
	if _, err := s.current(ctx, ws, id); err != nil {
		return err
	}
	_, err := s.DB.Tx(ctx, func(tx *db.Tx) error {
		r, err := s.find(ctx, tx.In(ws), id)
		switch {
		case err != nil:
			return err
		case r.Status == Active:
			return fault.Conflict("the reward session %s is active: stop it first", id)
		case r.PurgedAt > 0:
			return nil
		}
		if _, err := db.Exec(ctx, tx.In(ws), `
			UPDATE reward_sessions SET purged_at = $3, purging = TRUE WHERE workspace_id = $1 AND id = $2`,
			id, s.now()); err != nil {
			return fmt.Errorf("purge reward session %s: %w", id, err)
		}
		return audit.Record(ctx, tx, ws, by, object+".purge", id, deleted{r.TaskCount, r.Scored}, nil)
	})
	if err != nil {
		return err
	}
	return s.deleteTexts(ctx, ws, id)
}

// A deleted is what the audit trail has about a purge.
type deleted struct {
	Tasks  int64 `json:"task_count"`
	Scored int64 `json:"scored"`
}

// PurgeBefore purges the sessions of a workspace that ended before a time, and returns how many.
func (s *Store) PurgeBefore(
	ctx context.Context, ws tenant.ID, by tenant.Actor, before clock.Time,
) (n int64, err error) {
	due, err := db.Query[ref](ctx, s.DB.In(ws), `
		SELECT workspace_id, id FROM reward_sessions WHERE workspace_id = $1 AND purged_at = 0 AND ended_at > 0
			AND ended_at < $2 ORDER BY ended_at`, before)
	if err != nil {
		return 0, fmt.Errorf("find ended reward sessions: %w", err)
	}
	for _, r := range due {
		if err := s.Purge(ctx, ws, by, r.ID); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// settled is how long after the end of a session an answer of a judge may still arrive.
const settled = time.Hour

// deleteTexts deletes the texts of a session, a batch at a time. Until the last answers have arrived, it is done again
// by sweep.
func (s *Store) deleteTexts(ctx context.Context, ws tenant.ID, id string) error {
	r, err := s.find(ctx, s.DB.In(ws), id)
	if err != nil {
		return err
	}
	for _, j := range r.askedOf() {
		if err := judging.DeleteAnswersOf(ctx, s.DB, ws, j, id); err != nil {
			return err
		}
	}
	for _, t := range []struct{ table, key string }{
		{"reward_items", "step, item_id, content"},
		{"reward_texts", "digest"},
		{"reward_tasks", "position"},
		{"reward_checks", "number"},
		{"reward_tokens", "id"},
	} {
		if err := judging.DeleteRows(ctx, s.DB, ws, t.table, "session_id, "+t.key, "session_id = $2", id); err != nil {
			return fmt.Errorf("purge reward session %s: %w", id, err)
		}
	}
	if s.now() < r.EndedAt.Add(settled) {
		return nil
	}
	if _, err := db.Exec(ctx, s.DB.In(ws),
		`UPDATE reward_sessions SET purging = FALSE WHERE workspace_id = $1 AND id = $2`, id); err != nil {
		return fmt.Errorf("purge reward session %s: %w", id, err)
	}
	return nil
}

// askedOf returns the criteria whose judges were asked for a session.
func (r *session) askedOf() []string {
	var all []string
	for _, j := range r.Judges {
		all = append(all, j.CriterionID)
	}
	if r.AnchorCriterionID != "" {
		all = append(all, r.AnchorCriterionID)
	}
	return all
}

const sweepBatch = 100

// sweep purges the sessions whose retention is over, and goes on with purges that were interrupted.
func (s *Store) sweep(ctx context.Context) error {
	across := s.DB.Across("sessions of all workspaces are purged")
	begun, err := db.Query[ref](ctx, across, `SELECT workspace_id, id FROM reward_sessions WHERE purging LIMIT $1`,
		sweepBatch)
	if err != nil {
		return fmt.Errorf("find interrupted purges: %w", err)
	}
	var failed error
	for _, r := range begun {
		failed = errors.Join(failed, s.deleteTexts(ctx, r.WorkspaceID, r.ID))
	}
	days := s.retention.days.Load()
	if days == 0 {
		return failed
	}
	due, err := db.Query[ref](ctx, across, `
		SELECT workspace_id, id FROM reward_sessions WHERE purged_at = 0 AND ended_at > 0 AND ended_at <= $1
		ORDER BY ended_at LIMIT $2`, s.now().Add(-time.Duration(days)*24*time.Hour), sweepBatch)
	if err != nil {
		return errors.Join(failed, fmt.Errorf("find reward sessions to purge: %w", err))
	}
	for _, r := range due {
		failed = errors.Join(failed, s.Purge(ctx, r.WorkspaceID, tenant.Operator, r.ID))
	}
	return failed
}
