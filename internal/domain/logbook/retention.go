package logbook

import (
	"context"
	"fmt"
	"math"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/store/db"
)

// retireBatch bounds a transaction that deletes: whoever writes meanwhile waits for it. Between two the disk is left to others: there is
// no hurry, since nobody can read a row whose time is over.
const (
	deleteBatch = 100
	deletePause = 10 * time.Millisecond
)

// retireOnTime is Retire when some row's time is over, which is known without asking the database each time: only what is entered
// makes it earlier. It is asked once a minute all the same, because another server may have entered something while it had the database.
func (c *Ingester) deleteExpiredWhenDue(ctx context.Context) error {
	if err := c.acquire(ctx); err != nil {
		return err
	}
	now, over := clock.Now(), c.nextExpiry
	c.release()
	if now < over {
		return nil
	}
	if _, err := c.DeleteExpired(ctx, now); err != nil {
		return err
	}
	if err := c.acquire(ctx); err != nil { // what is entered meanwhile would not be seen
		return err
	}
	defer c.release()
	over, err := c.firstExpiry(ctx)
	if err == nil {
		c.nextExpiry = min(over, now.Add(time.Minute))
	}
	return err
}

// firstOver is when the first time of all is over.
func (c *Ingester) firstExpiry(ctx context.Context) (clock.Time, error) {
	over, err := db.One[clock.Time](ctx, c.db.Across("time goes by for all workspaces"), `
		SELECT MIN(over) FROM (
			SELECT MIN(expires_at) AS over FROM log_rows
			UNION ALL SELECT MIN(expires_at) FROM log_variants
			UNION ALL SELECT MIN(expires_at) FROM log_families
			UNION ALL SELECT CAST($1 AS BIGINT)) AS all_of_them`, int64(math.MaxInt64))
	if err != nil {
		return 0, fmt.Errorf("ask when the first logged row's time is over: %w", err)
	}
	return over, nil
}

// Retire deletes the rows whose time is over, a few in each transaction, and says how many. Nobody can read them before it is done: every
// reading asks for the time itself. The prompts that no row has any more go last.
func (c *Ingester) DeleteExpired(ctx context.Context, now clock.Time) (deleted int, err error) {
	for _, table := range []string{"log_rows", "log_variants", "log_families"} {
		from := clock.Time(math.MinInt64) // an index may still show what was deleted a moment ago: it is not looked at again
		for {
			var n int
			if n, from, err = c.deleteExpiredBatch(ctx, table, from, now); err != nil {
				return deleted, fmt.Errorf("delete from %s what is over: %w", table, err)
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

// retire deletes what was over after from, the first of it first, and says how much and up to when.
func (c *Ingester) deleteExpiredBatch(ctx context.Context, table string, from, now clock.Time) (n int, until clock.Time, err error) {
	if err := c.acquire(ctx); err != nil {
		return 0, 0, err
	}
	defer c.release()
	defer c.signalWritten()
	_, err = c.db.Tx(ctx, func(tx *db.Tx) error {
		across := tx.Across("time goes by for all workspaces")
		last, err := db.Maybe[clock.Time](ctx, across, `
			SELECT expires_at FROM `+table+` WHERE expires_at > $1 AND expires_at <= $2 ORDER BY expires_at LIMIT 1 OFFSET $3`, from, now, deleteBatch-1)
		if err != nil {
			return err
		}
		if until = now; last != nil { // or there are fewer
			until = *last
		}
		if table == "log_rows" {
			n, err = deleteExpiredRows(ctx, across, from, until)
			return err
		}
		gone, err := db.Exec(ctx, across, `DELETE FROM `+table+` WHERE expires_at > $1 AND expires_at <= $2`, from, until)
		n = int(gone)
		return err
	})
	if n > 0 && table != "log_rows" {
		clear(c.families) // a prompt that comes again is entered again
	}
	return n, until, err
}

// retireRows deletes rows and takes them off what was counted.
func deleteExpiredRows(ctx context.Context, across db.Scoped, from, until clock.Time) (int, error) {
	gone, err := db.Query[facts](ctx, across, `
		DELETE FROM log_rows WHERE expires_at > $1 AND expires_at <= $2
		RETURNING workspace_id AS workspace, at, model, tag, segment, finish_reason, cached, trace_id, prompt_tokens, completion_tokens, cost`, from, until)
	if err != nil || len(gone) == 0 {
		return 0, err
	}
	var changed countDelta
	for i := range gone {
		changed.add(&gone[i], -1)
	}
	if err := changed.write(ctx, across); err != nil {
		return 0, err
	}
	for _, none := range []string{`DELETE FROM log_counts WHERE n = 0`, `DELETE FROM log_traces WHERE steps = 0`} {
		if _, err := db.Exec(ctx, across, none); err != nil {
			return 0, err
		}
	}
	return len(gone), nil
}
