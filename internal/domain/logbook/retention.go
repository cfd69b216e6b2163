package logbook

import (
	"context"
	"fmt"
	"math"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/store/db"
)

// deleteBatch bounds a transaction that deletes, because the ingester waits for it. deletePause leaves the disk to
// others between two of them. There is no hurry: an expired row can no longer be read.
const (
	deleteBatch = 100
	deletePause = 10 * time.Millisecond
)

// How often the next expiry is queried although it is known. Where servers share the database, another may have
// ingested rows that expire earlier, and have ended since: nobody else would delete them in time.
const (
	lookAgain       = time.Minute
	lookAgainShared = 5 * time.Second
)

// deleteExpiredWhenDue calls DeleteExpired when some row has expired. It knows the next expiry without a query: only
// ingested rows make it earlier. It still queries from time to time, because other servers ingest rows too.
func (c *Ingester) deleteExpiredWhenDue(ctx context.Context) error {
	if err := c.acquire(ctx); err != nil {
		return err
	}
	now, over := clock.Now(), c.nextExpiry
	c.release()
	if now < over {
		return nil
	}
	over, err := firstExpiry(ctx, c.db)
	if err != nil {
		return err
	}
	if over <= now {
		if _, err := c.DeleteExpired(ctx, now); err != nil {
			return err
		}
	}
	if err := c.acquire(ctx); err != nil { // or a row that is ingested meanwhile would be missed
		return err
	}
	defer c.release()
	if over, err = firstExpiry(ctx, c.db); err != nil {
		return err
	}
	again := lookAgain
	if c.shared {
		again = lookAgainShared
	}
	c.nextExpiry = min(over, now.Add(again))
	return nil
}

// DeleteExpired deletes the expired rows, a few per transaction, and returns how many. They cannot be read before
// that either: every query checks expires_at. Prompts that no row uses any more, and expired draws, are deleted last.
func (c *Ingester) DeleteExpired(ctx context.Context, now clock.Time) (deleted int, err error) {
	for _, table := range []string{"log_rows", "log_variants", "log_families", "canary_draws"} {
		// Each batch starts after the previous one: the index may still hold entries of rows that were just deleted.
		from := clock.Time(math.MinInt64)
		for {
			var n int
			if n, from, err = c.deleteExpiredBatch(ctx, table, from, now); err != nil {
				return deleted, fmt.Errorf("delete expired rows from %s: %w", table, err)
			}
			if table == "log_rows" {
				deleted += n
			}
			if n < deleteBatch {
				break
			}
			select {
			case <-ctx.Done():
				return deleted, ctx.Err()
			case <-time.After(deletePause):
			}
		}
	}
	return deleted, nil
}

// deleteExpiredBatch deletes the oldest batch of what expired after from. It returns how many rows, and the expiry it
// came to.
func (c *Ingester) deleteExpiredBatch(
	ctx context.Context, table string, from, now clock.Time,
) (n int, until clock.Time, err error) {
	if err := c.acquire(ctx); err != nil {
		return 0, 0, err
	}
	defer c.release()
	defer c.signalWritten()
	_, err = c.db.Tx(ctx, func(tx *db.Tx) error {
		across := tx.Across("rows of all workspaces expire")
		last, err := db.Maybe[clock.Time](ctx, across, `
			SELECT expires_at FROM `+table+` WHERE expires_at > $1 AND expires_at <= $2 ORDER BY expires_at LIMIT 1 OFFSET $3`,
			from, now, deleteBatch-1)
		if err != nil {
			return err
		}
		if until = now; last != nil { // nil when fewer are left
			until = *last
		}
		if table == "log_rows" {
			n, err = deleteExpiredRows(ctx, across, from, until)
			return err
		}
		gone, err := db.Exec(
			ctx, across, `DELETE FROM `+table+` WHERE expires_at > $1 AND expires_at <= $2`, from, until,
		)
		n = int(gone)
		return err
	})
	if n > 0 && (table == "log_variants" || table == "log_families") {
		clear(c.families) // a prompt that recurs is stored again
	}
	return n, until, err
}
