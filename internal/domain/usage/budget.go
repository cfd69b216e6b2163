package usage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sovereign/internal/base/money"
	"sovereign/internal/base/outcome"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/journal"
	"sovereign/internal/store/db"
)

// DatabaseClock is PostgreSQL's time in microseconds, at the moment when it is read. Rows that servers read of each
// other have it: their own clocks may differ.
const DatabaseClock = `CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)`

// A spender is a key on a day.
type spender struct {
	ws  tenant.ID
	key tenant.KeyID
	day Day
}

// spentOf is what a charge counts for in budgets: what was charged, and the cost of an abandoned request that was
// excused.
func spentOf(c *journal.Charge, charged money.Nano) money.Nano {
	if c.Outcome == string(outcome.Abandoned) && charged == 0 {
		return c.Cost
	}
	return charged
}

// writeBudgets adds what a batch spent to the rows of this server's journal.
func (d *Days) writeBudgets(ctx context.Context, tx *db.Tx, spent map[spender]money.Nano) error {
	const most = 500 // rows of a statement
	all := slices.SortedFunc(maps.Keys(spent), func(a, b spender) int {
		return cmp.Or(
			strings.Compare(string(a.ws), string(b.ws)), cmp.Compare(a.day, b.day),
			strings.Compare(string(a.key), string(b.key)),
		)
	})
	for some := range slices.Chunk(all, most) {
		var rows []string
		args := []any{d.node}
		for _, of := range some {
			n := len(args)
			rows = append(rows, fmt.Sprintf("($%d, $%d, $%d, $1, $%d, "+DatabaseClock+")", n+1, n+2, n+3, n+4))
			args = append(args, string(of.ws), string(of.key), int64(of.day), int64(spent[of]))
		}
		if _, err := db.Exec(ctx, tx.Across("the rows name their workspaces"), `
			INSERT INTO budget_days (workspace_id, key_id, day, node, spent, posted_at) VALUES `+strings.Join(rows, ", ")+`
			ON CONFLICT (workspace_id, day, key_id, node) DO UPDATE SET
				spent = budget_days.spent + excluded.spent, posted_at = excluded.posted_at`, args...); err != nil {
			return fmt.Errorf("add to what keys have spent: %w", err)
		}
	}
	return nil
}

// deleteOldBudgets deletes the rows of months that are over.
func (s *Store) deleteOldBudgets(ctx context.Context) error {
	const kept = 62
	_, err := db.Exec(ctx, s.db.Across("old days of all workspaces"),
		`DELETE FROM budget_days WHERE day < $1`, int64(DayOf(s.now())-kept))
	return err
}
