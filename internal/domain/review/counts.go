package review

import (
	"context"
	"fmt"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/store/db"
)

// counts counts the items of a queue. Conflicts of items that are not done are counted for those who see everything.
func (s *Store) counts(ctx context.Context, in db.Scoped, queueID string, all bool) (c QueueCounts, err error) {
	type row struct {
		State    string
		Conflict bool
		N        int64
	}
	rows, err := db.Query[row](ctx, in, `
		SELECT state, conflict, COUNT(*) AS n FROM review_items WHERE workspace_id = $1 AND queue_id = $2
		GROUP BY state, conflict`, queueID)
	if err != nil {
		return c, fmt.Errorf("count the items of %s: %w", queueID, err)
	}
	for _, r := range rows {
		c.Items += r.N
		switch r.State {
		case itemOpen:
			c.Open += r.N
		case itemDone:
			c.Done += r.N
		default:
			c.Expired += r.N
		}
		if r.Conflict && (all || r.State == itemDone) {
			c.Conflicts += r.N
		}
	}
	if c.Claimed, err = db.One[int64](ctx, in, `
		SELECT COUNT(*) FROM review_grades
		WHERE workspace_id = $1 AND queue_id = $2 AND state = 'claimed' AND lease_until > $3`, queueID, s.Now()); err != nil {
		return c, fmt.Errorf("count the claims of %s: %w", queueID, err)
	}
	return c, nil
}

// mine counts the items of a queue for one person.
func (s *Store) mine(ctx context.Context, in db.Scoped, user tenant.UserID, queueID string) (m MyCounts, err error) {
	type row struct {
		State State
		N     int64
	}
	rows, err := db.Query[row](ctx, in, `
		SELECT state, COUNT(*) AS n FROM review_grades WHERE workspace_id = $1 AND queue_id = $2 AND user_id = $3
			AND (state <> 'claimed' OR lease_until > $4) GROUP BY state`, queueID, user, s.Now())
	if err != nil {
		return m, fmt.Errorf("count the items of a person: %w", err)
	}
	for _, r := range rows {
		switch r.State {
		case Claimed:
			m.Claimed = r.N
		case Graded:
			m.Graded = r.N
		case Skipped:
			m.Skipped = r.N
		case Open:
		}
	}
	if m.Waiting, err = db.One[int64](ctx, in, `SELECT COUNT(*)`+offered, queueID, user); err != nil {
		return m, fmt.Errorf("count what waits for a person: %w", err)
	}
	return m, nil
}

// lastFill returns how items were added last, or nil.
func lastFill(ctx context.Context, in db.Scoped, queueID string) (*QueueFill, error) {
	f, err := db.Maybe[QueueFill](ctx, in, `
		SELECT f.id, jobs.status, f.added, f.missing, NULLIF(jobs.failure, '') AS failure
		FROM review_fills f JOIN jobs ON jobs.workspace_id = f.workspace_id AND jobs.id = f.id
		WHERE f.workspace_id = $1 AND f.queue_id = $2 ORDER BY f.id DESC LIMIT 1`, queueID)
	if err != nil {
		return nil, fmt.Errorf("read what filled %s: %w", queueID, err)
	}
	return f, nil
}

// read returns a queue as the caller sees it, with its rubric.
func (s *Store) read(ctx context.Context, in db.Scoped, caller tenant.Caller, queueID string) (Queue, error) {
	q, a, err := enter(ctx, in, caller, queueID)
	if err != nil {
		return Queue{}, err
	}
	v, err := s.counted(ctx, in, caller, q, a)
	if err != nil || q.CriterionID == "" {
		return v, err
	}
	exists, err := db.One[int64](ctx, in,
		`SELECT COUNT(*) FROM criteria WHERE workspace_id = $1 AND id = $2`, q.CriterionID)
	if err != nil || exists == 0 { // a criterion may be deleted; its queues are closed then
		return v, err
	}
	c, err := criterion.Find(ctx, in, q.CriterionID)
	if err != nil {
		return v, err
	}
	v.Criterion = &QueueRubric{Name: c.Name, Rubric: c.Rubric, Scale: c.Scale, PassThreshold: c.PassThreshold}
	return v, nil
}

// counted returns a queue with its counts.
func (s *Store) counted(ctx context.Context, in db.Scoped, caller tenant.Caller, q *queueRecord, a access,
) (v Queue, err error) {
	if v, err = q.queue(a); err != nil {
		return v, err
	}
	if v.Counts, err = s.counts(ctx, in, q.ID, a.manages); err != nil {
		return v, err
	}
	if v.Mine, err = s.mine(ctx, in, caller.User, q.ID); err != nil {
		return v, err
	}
	if !a.grades {
		v.Mine.Waiting = 0
	}
	v.Fill, err = lastFill(ctx, in, q.ID)
	return v, err
}

// Get reads a queue.
func (s *Store) Get(ctx context.Context, caller tenant.Caller, queueID string) (q Queue, err error) {
	err = s.DB.SnapshotIn(ctx, caller.Workspace, func(in db.Scoped) error {
		q, err = s.read(ctx, in, caller, queueID)
		return err
	})
	return q, err
}

// List reads the queues of a workspace, the newest first: the open ones, unless the closed ones are asked for.
func (s *Store) List(ctx context.Context, caller tenant.Caller, closed bool, limit, offset int) ([]Queue, error) {
	return s.list(ctx, caller, `($2 AND closed_at > 0 OR NOT $2 AND closed_at = 0)
		ORDER BY created_at DESC, id DESC LIMIT $3 OFFSET $4`, closed, limit, offset)
}

// Mine reads the open queues that the caller may grade in, the newest first. For a person who has neither a role in the
// workspace nor a queue, the workspace does not exist.
func (s *Store) Mine(ctx context.Context, caller tenant.Caller, limit, offset int) ([]Queue, error) {
	all, err := s.list(ctx, caller, `closed_at = 0 AND ($2 OR EXISTS (
			SELECT 1 FROM review_grants t WHERE t.workspace_id = $1 AND t.queue_id = review_queues.id AND t.user_id = $3
				AND ($4 OR t.accepted_at > 0)))
		ORDER BY created_at DESC, id DESC LIMIT $5 OFFSET $6`,
		caller.Role.Manages(), caller.User, caller.Role.Valid(), limit, offset)
	if err == nil && len(all) == 0 && !caller.Role.Valid() {
		err = fault.Missing.New("no workspace %q", caller.Workspace) // as the router says it
	}
	return all, err
}

// views returns queues as the caller sees them in a list.
func (s *Store) views(ctx context.Context, in db.Scoped, caller tenant.Caller, rows []queueRecord) ([]Queue, error) {
	all := make([]Queue, len(rows))
	for i := range rows {
		q, a, err := enter(ctx, in, caller, rows[i].ID)
		if err != nil {
			return nil, err
		}
		if all[i], err = s.counted(ctx, in, caller, q, a); err != nil {
			return nil, err
		}
		if all[i].Source != nil {
			all[i].Source.RequestIDs, all[i].Source.TraceIDs = nil, nil
		}
	}
	return all, nil
}

// list reads queues as the caller sees them in a list. which is a condition with an order; its arguments begin with $2.
func (s *Store) list(ctx context.Context, caller tenant.Caller, which string, args ...any) (all []Queue, err error) {
	err = s.DB.SnapshotIn(ctx, caller.Workspace, func(in db.Scoped) error {
		rows, err := db.Query[queueRecord](ctx, in,
			`SELECT `+queueColumns+` WHERE workspace_id = $1 AND `+which, args...)
		if err != nil {
			return fmt.Errorf("list queues: %w", err)
		}
		all, err = s.views(ctx, in, caller, rows)
		return err
	})
	return all, err
}
