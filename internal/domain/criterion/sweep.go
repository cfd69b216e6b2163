package criterion

import (
	"context"
	"fmt"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

// sweptAtOnce is how many rows one transaction takes away: whoever writes meanwhile waits for it.
const sweptAtOnce = 200

// Sweep takes away what judges said of exchanges whose time is over, and what is left of criteria that were deleted. Whoever holds the
// data calls it when it starts, and now and then.
func (s *Store) Sweep(ctx context.Context) error {
	across := s.db.Across("what is over is the server's to clear")
	for table, key := range map[string]string{"judged_logs": "workspace_id, run_id, log_id", "judge_answers": "workspace_id, question"} {
		err := repeat(func() (int64, error) {
			return db.Exec(ctx, across, `
				DELETE FROM `+table+` WHERE (`+key+`) IN (SELECT `+key+` FROM `+table+` WHERE expires_at > 0 AND expires_at <= $1 ORDER BY expires_at LIMIT $2)`,
				clock.Now(), sweptAtOnce)
		})
		if err != nil {
			return fmt.Errorf("sweep %s: %w", table, err)
		}
	}
	type gone struct {
		WorkspaceID tenant.ID
		ID          string
	}
	all, err := db.Query[gone](ctx, across, `SELECT workspace_id, id FROM criteria_deleted ORDER BY since`)
	if err != nil {
		return fmt.Errorf("find deleted criteria: %w", err)
	}
	for _, c := range all {
		if err := s.discard(ctx, c.WorkspaceID, c.ID); err != nil {
			return fmt.Errorf("sweep criterion %s: %w", c.ID, err)
		}
	}
	return nil
}

// leftovers are the rows of a criterion, in an order in which none is left that cannot be found.
var leftovers = []struct{ table, key, of string }{
	{"judge_answers", "question", "criterion_id = $2"},
	{"calibration_rows", "calibration_id, label_id", "calibration_id IN (SELECT t.id FROM calibrations t WHERE t.workspace_id = $1 AND t.criterion_id = $2)"},
	{"calibrations", "id", "criterion_id = $2"},
	{"judged_logs", "run_id, log_id", "run_id IN (SELECT $2 UNION SELECT t.id FROM inquiries t WHERE t.workspace_id = $1 AND t.criterion_id = $2)"},
	{"inquiries", "id", "criterion_id = $2"},
	{"criteria_deleted", "id", "id = $2"},
}

// discard takes away what is left of a criterion, a few rows in each transaction.
func (s *Store) discard(ctx context.Context, ws tenant.ID, criterionID string) error {
	for _, l := range leftovers {
		if err := repeat(func() (int64, error) {
			return db.Exec(ctx, s.db.In(ws), `
				DELETE FROM `+l.table+` WHERE workspace_id = $1 AND (`+l.key+`) IN (SELECT `+l.key+` FROM `+l.table+` WHERE workspace_id = $1 AND `+l.of+` LIMIT $3)`,
				criterionID, sweptAtOnce)
		}); err != nil {
			return fmt.Errorf("%s: %w", l.table, err)
		}
	}
	return nil
}

// repeat does something until it finds less than a whole batch to do.
func repeat(some func() (int64, error)) error {
	for {
		if n, err := some(); err != nil || n < sweptAtOnce {
			return err
		}
	}
}
