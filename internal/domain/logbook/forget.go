package logbook

import (
	"context"
	"fmt"
	"time"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

// Forget deletes everything that is logged of a workspace, a few rows per transaction. Its logging must be off, and in
// force: what the spool still has of it is ingested first, so that nothing comes later. Repeating it is harmless.
func (c *Ingester) Forget(ctx context.Context, ws tenant.ID) error {
	if err := c.Ingest(ctx); err != nil {
		return fmt.Errorf("ingest before forgetting: %w", err)
	}
	for {
		n, err := c.forgetBatch(ctx, ws)
		if err != nil {
			return fmt.Errorf("forget the logs of a workspace: %w", err)
		}
		if n < deleteBatch {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(deletePause):
		}
	}
}

// forgetBatch deletes a batch of rows and, with the last one, what was counted and known of them.
func (c *Ingester) forgetBatch(ctx context.Context, ws tenant.ID) (n int64, err error) {
	if err := c.acquire(ctx); err != nil {
		return 0, err
	}
	defer c.release()
	defer c.signalWritten()
	clear(c.families)
	_, err = c.db.Tx(ctx, func(tx *db.Tx) (err error) {
		in := tx.In(ws)
		if n, err = db.Exec(ctx, in, `
			DELETE FROM log_rows WHERE workspace_id = $1 AND id IN (
				SELECT id FROM log_rows WHERE workspace_id = $1 ORDER BY at LIMIT $2)`, deleteBatch); err != nil || n == deleteBatch {
			return err
		}
		for _, table := range []string{"log_counts", "log_variants", "log_families", "log_traces", "canary_draws"} {
			if _, err := db.Exec(ctx, in, `DELETE FROM `+table+` WHERE workspace_id = $1`); err != nil {
				return err
			}
		}
		return nil
	})
	return n, err
}
