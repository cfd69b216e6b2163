package wallet

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/funds"
	"sovereign/internal/store/db"
)

// A holdRow is what the ledger says of a named hold.
type holdRow struct {
	WorkspaceID   tenant.ID
	ID            string
	Amount, Spent money.Nano
	EndedAt       clock.Time
}

func (r *holdRow) named() funds.Named {
	return funds.Named{ID: r.ID, Amount: r.Amount, Spent: r.Spent, Ended: r.EndedAt != 0}
}

const holdColumns = `workspace_id, id, amount, spent, ended_at`

func insertHold(ctx context.Context, s db.Scoped, id, kind string, amount money.Nano) error {
	_, err := db.Exec(ctx, s, `
		INSERT INTO named_holds (workspace_id, id, kind, amount, spent, created_at, ended_at)
		VALUES ($1, $2, $3, $4, 0, $5, 0)`, id, kind, amount, clock.Now())
	if err != nil {
		return fmt.Errorf("open the hold %s: %w", id, err)
	}
	return nil
}

// endHold ends a hold, and reports whether it was open.
func endHold(ctx context.Context, s db.Scoped, id string) (bool, error) {
	n, err := db.Exec(ctx, s, `
		UPDATE named_holds SET ended_at = $3 WHERE workspace_id = $1 AND id = $2 AND ended_at = 0`, id, clock.Now())
	if err != nil {
		return false, fmt.Errorf("end the hold %s: %w", id, err)
	}
	return n > 0, nil
}

// findHold returns a hold, or nil when there is none.
func findHold(ctx context.Context, s db.Scoped, id string) (*holdRow, error) {
	row, err := db.Maybe[holdRow](ctx, s, `
		SELECT `+holdColumns+` FROM named_holds WHERE workspace_id = $1 AND id = $2`, id)
	if err != nil {
		return nil, fmt.Errorf("read the hold %s: %w", id, err)
	}
	return row, nil
}

func listHolds(ctx context.Context, s db.Scoped) ([]OpenHold, error) {
	all, err := db.Query[OpenHold](ctx, s, `
		SELECT id, kind, amount, spent FROM named_holds WHERE workspace_id = $1 AND ended_at = 0
		ORDER BY created_at, id`)
	if err != nil {
		return nil, fmt.Errorf("list holds: %w", err)
	}
	return all, nil
}

// readOpenHolds reads the open holds of all workspaces.
func readOpenHolds(ctx context.Context, d *db.DB) (map[tenant.ID][]funds.Named, error) {
	rows, err := db.Query[holdRow](ctx, d.Across("money is held for all workspaces"),
		`SELECT `+holdColumns+` FROM named_holds WHERE ended_at = 0`)
	if err != nil {
		return nil, fmt.Errorf("read the open holds: %w", err)
	}
	all := map[tenant.ID][]funds.Named{}
	for i := range rows {
		r := &rows[i]
		all[r.WorkspaceID] = append(all[r.WorkspaceID], r.named())
	}
	return all, nil
}

// readReserved reads what the open holds of some workspaces have left.
func readReserved(ctx context.Context, s db.Scoped, of []tenant.ID) (map[tenant.ID]money.Nano, error) {
	type row struct {
		WorkspaceID tenant.ID
		Reserved    money.Nano
	}
	all := map[tenant.ID]money.Nano{}
	for some := range slices.Chunk(of, balanceBatch) {
		args, marks := parameters(some, 1)
		rows, err := db.Query[row](ctx, s, `
			SELECT workspace_id, CAST(SUM(amount - spent) AS BIGINT) AS reserved FROM named_holds
			WHERE ended_at = 0 AND workspace_id IN (`+marks+`) GROUP BY workspace_id`, args...)
		if err != nil {
			return nil, fmt.Errorf("read the open holds: %w", err)
		}
		for _, r := range rows {
			all[r.WorkspaceID] = r.Reserved
		}
	}
	return all, nil
}

// readHolds reads some holds of a workspace, by their ids.
func readHolds(ctx context.Context, s db.Scoped, ids []string) (map[string]*holdRow, error) {
	var all map[string]*holdRow
	if len(ids) > 0 {
		all = make(map[string]*holdRow, len(ids))
	}
	for some := range slices.Chunk(ids, balanceBatch) {
		args, marks := parameters(some, 2)
		rows, err := db.Query[holdRow](ctx, s, `
			SELECT `+holdColumns+` FROM named_holds WHERE workspace_id = $1 AND id IN (`+marks+`)`, args...)
		if err != nil {
			return nil, fmt.Errorf("read holds: %w", err)
		}
		for i := range rows {
			all[rows[i].ID] = &rows[i]
		}
	}
	return all, nil
}

// parameters returns some values as arguments, and their places in a statement, which begin with first.
func parameters[T any](some []T, first int) (args []any, marks string) {
	args, all := make([]any, len(some)), make([]string, len(some))
	for i, one := range some {
		args[i], all[i] = one, fmt.Sprint("$", first+i)
	}
	return args, strings.Join(all, ", ")
}

// addSpent adds what was posted to what a hold has spent.
func addSpent(ctx context.Context, s db.Scoped, id string, posted money.Nano) error {
	_, err := db.Exec(ctx, s,
		`UPDATE named_holds SET spent = spent + $3 WHERE workspace_id = $1 AND id = $2`, id, posted)
	if err != nil {
		return fmt.Errorf("charge the hold %s: %w", id, err)
	}
	return nil
}
