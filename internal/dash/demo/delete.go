package demo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
)

// Delete ends a demo at once: its members leave, its keys are refused, and no list shows it when Delete returns. A job
// deletes what it stores.
func (s *Store) Delete(ctx context.Context, ws tenant.ID, by tenant.Actor) error {
	return s.Feed.Change(ctx, func(tx *db.Tx) error {
		before, err := find(ctx, tx.In(ws))
		if err != nil {
			return err
		}
		if err := cancelAll(ctx, tx, ws, by); err != nil {
			return err
		}
		if err := s.Workspaces.Close(tx.Bind(ctx), ws, by); err != nil {
			return err
		}
		if _, err := db.Exec(ctx, tx.In(ws), `DELETE FROM invitations WHERE workspace_id = $1`); err != nil {
			return fmt.Errorf("withdraw invitations: %w", err)
		}
		deletion := id.New("demo")
		if _, err := db.Exec(ctx, tx.In(ws),
			`UPDATE demos SET state = '', deletion = $2, deleted_at = $3 WHERE workspace_id = $1 AND id = $4`,
			deletion, clock.Now(), before.ID); err != nil {
			return fmt.Errorf("delete demo: %w", err)
		}
		return job.Queue(ctx, tx, ws, job.New{ID: deletion, Kind: deleting, Total: int64(len(s.Clear)) + 1})
	})
}

// cancelAll cancels what runs in a workspace.
func cancelAll(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor) error {
	running, err := db.Query[string](ctx, tx.In(ws),
		`SELECT id FROM jobs WHERE workspace_id = $1 AND status IN ('QUEUED', 'RUNNING')`)
	if err != nil {
		return fmt.Errorf("read jobs: %w", err)
	}
	for _, one := range running {
		if _, err := job.Cancel(ctx, tx, ws, by, one); err != nil {
			return err
		}
	}
	return nil
}

// erase deletes what a demo stores. Each part may be repeated, so a run after a crash begins anew. A part that is done
// for the first time is progress: a server that ends again and again does not fail the job.
func (s *Store) erase(ctx context.Context, run *job.Run) error {
	if err := s.awaitJobs(ctx, run); err != nil {
		return err
	}
	for i, clear := range s.Clear {
		if err := clear(ctx, run.Workspace); err != nil {
			return err
		}
		if err := run.Tx(ctx, func(_ *db.Tx, t *job.Tally) error {
			t.Done = max(t.Done, int64(i)+1)
			return nil
		}); err != nil {
			return err
		}
	}
	return run.Finish(ctx, func(tx *db.Tx, t *job.Tally) error {
		t.Done = t.Total
		return deleteRows(ctx, tx, run.Workspace, run.ID)
	})
}

// awaitJobs returns when the other jobs of the workspace have ended. They were cancelled.
func (s *Store) awaitJobs(ctx context.Context, run *job.Run) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		n, err := db.One[int](ctx, s.DB.In(run.Workspace), `
			SELECT COUNT(*) FROM jobs WHERE workspace_id = $1 AND id <> $2 AND status IN ('QUEUED', 'RUNNING')`, run.ID)
		if err != nil {
			return fmt.Errorf("count jobs: %w", err)
		}
		if n == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// kept are the tables whose rows stay: the trails that nothing is ever removed from, with what proves them and what was
// paid, and the marks that say what the workspace was.
var kept = []string{
	"workspaces", "demos", "audit_entries", "feed_changes",
	"ledger_entries", "ledger_balances", "ledger_days", "usage_rows", "usage_days", "usage_sums", "usage_closed",
	"named_holds", "topups", "payment_reversals", "wallet_debts", "wallet_slices", "wallet_recalls", "wallet_losses",
}

// deleteRows deletes every row of a workspace in every table that is not kept, those that later migrations add
// included, but for one job.
func deleteRows(ctx context.Context, tx *db.Tx, ws tenant.ID, but string) error {
	tables, err := db.Tables(ctx, tx.Across("the schema is the server's"))
	if err != nil {
		return err
	}
	for _, t := range slices.Backward(tables) { // what refers to another goes before it
		ofWorkspace := slices.ContainsFunc(t.Columns, func(c db.Column) bool { return c.Name == "workspace_id" })
		if !ofWorkspace || slices.Contains(kept, t.Name) {
			continue
		}
		statement, args := `DELETE FROM `+t.Name+` WHERE workspace_id = $1`, []any(nil)
		if t.Name == "jobs" {
			statement, args = statement+` AND id <> $2`, []any{but}
		}
		if _, err := db.Exec(ctx, tx.In(ws), statement, args...); err != nil {
			return fmt.Errorf("delete from %s: %w", t.Name, err)
		}
	}
	return nil
}

// lateFor is how long after its deletion a demo is swept again: an answer of a judge may have been under way.
const lateFor = 2 * time.Hour

// Sweep deletes what was written after a demo was deleted, by what ran then, and what a deletion that failed has left.
func (s *Store) Sweep(ctx context.Context) error {
	type row struct {
		WorkspaceID tenant.ID
		Deletion    string
	}
	late, err := db.Query[row](ctx, s.DB.Across("demos of all people are deleted"), `
		SELECT demos.workspace_id, demos.deletion FROM demos
		JOIN jobs ON jobs.workspace_id = demos.workspace_id AND jobs.id = demos.deletion
		WHERE jobs.status = 'FAILED' OR jobs.status = 'DONE' AND demos.deleted_at > $1`, clock.Now().Add(-lateFor))
	if err != nil {
		return fmt.Errorf("find deleted demos: %w", err)
	}
	for _, d := range late {
		for _, clear := range s.Clear {
			if err := clear(ctx, d.WorkspaceID); err != nil {
				return err
			}
		}
		if _, err := s.DB.Tx(ctx, func(tx *db.Tx) error {
			return deleteRows(ctx, tx, d.WorkspaceID, d.Deletion)
		}); err != nil {
			return err
		}
	}
	return nil
}
