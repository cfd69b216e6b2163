package wallet

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/funds"
	"sovereign/internal/store/db"
)

// A pot is what slices are taken from, as the ledger has it: a wallet without what its open holds have left, or what an
// open hold has left. The slices of a hold that has ended are of the wallet.
type pot struct {
	Open      bool       // false for a hold that has ended, or was never opened
	Total     money.Nano // with all slices
	Sliced    money.Nano // the slices of all servers
	Elsewhere money.Nano // those of other servers, and of this server's holds that have ended
	Live      money.Nano // those of other servers whose membership is not over
	Held      money.Nano // what requests of other servers held when their slices last changed
	Taken     int64      // how often another server has taken of it
}

// available is what nobody has taken. It is never below zero.
func (p *pot) available() money.Nano { return p.Total - p.Sliced }

// notOpen is a condition of SQL: the hold of a slice s is not open, so that the slice is of the wallet.
const notOpen = `NOT EXISTS (SELECT 1 FROM named_holds o
	WHERE o.workspace_id = s.workspace_id AND o.id = s.hold_id AND o.ended_at = 0)`

// slicesOf returns the condition of SQL for the slices s of a payer's pot.
func slicesOf(p payer) string {
	if p.hold != "" {
		return `s.workspace_id = $1 AND s.hold_id = $2`
	}
	return `s.workspace_id = $1 AND (s.hold_id = $2 OR ` + notOpen + `)`
}

// ended is a condition of SQL: the membership of the server of a slice s is over.
const ended = `EXISTS (SELECT 1 FROM nodes n WHERE n.id = s.node AND n.ended)`

// readPot reads the pot of a payer, as the server with the journal node sees it.
func readPot(ctx context.Context, in db.Scoped, p payer, node string) (pot, error) {
	total := `SELECT TRUE AS open, COALESCE((SELECT amount FROM ledger_balances WHERE workspace_id = $1 AND account = 'wallet'), 0)
		- COALESCE((SELECT SUM(amount - spent) FROM named_holds WHERE workspace_id = $1 AND ended_at = 0), 0) AS total`
	if p.hold != "" {
		total = `SELECT COUNT(*) > 0 AS open, COALESCE(SUM(amount - spent), 0) AS total FROM named_holds
			WHERE workspace_id = $1 AND id = $2 AND ended_at = 0`
	}
	all, err := db.One[pot](ctx, in, `
		SELECT t.open, CAST(t.total AS BIGINT) AS total, c.sliced, c.elsewhere, c.live, c.held, c.taken
		FROM (`+total+`) AS t, (
			SELECT CAST(COALESCE(SUM(s.amount), 0) AS BIGINT) AS sliced,
				CAST(COALESCE(SUM(CASE WHEN s.node <> $3 OR s.hold_id <> $2 THEN s.amount ELSE 0 END), 0) AS BIGINT) AS elsewhere,
				CAST(COALESCE(SUM(CASE WHEN s.node <> $3 AND NOT `+ended+` THEN s.amount ELSE 0 END), 0) AS BIGINT) AS live,
				CAST(COALESCE(SUM(CASE WHEN s.node <> $3 THEN s.held ELSE 0 END), 0) AS BIGINT) AS held,
				CAST(COALESCE(SUM(CASE WHEN s.node <> $3 THEN s.taken ELSE 0 END), 0) AS BIGINT) AS taken
			FROM wallet_slices s WHERE `+slicesOf(p)+`
		) AS c`, p.hold, node)
	if err != nil {
		return pot{}, fmt.Errorf("read what is free: %w", err)
	}
	return all, nil
}

// readSliced reads the slices of wallets, those of holds that have ended included: money that nothing else may use.
func readSliced(ctx context.Context, s db.Scoped, of []tenant.ID) (map[tenant.ID]money.Nano, error) {
	type row struct {
		WorkspaceID tenant.ID
		Amount      money.Nano
	}
	all := map[tenant.ID]money.Nano{}
	for some := range slices.Chunk(of, balanceBatch) {
		args, marks := parameters(some, 1)
		rows, err := db.Query[row](ctx, s, `
			SELECT s.workspace_id, CAST(SUM(s.amount) AS BIGINT) AS amount FROM wallet_slices s
			WHERE s.workspace_id IN (`+marks+`) AND (s.hold_id = '' OR `+notOpen+`) GROUP BY s.workspace_id`, args...)
		if err != nil {
			return nil, fmt.Errorf("read the slices: %w", err)
		}
		for _, r := range rows {
			all[r.WorkspaceID] = r.Amount
		}
	}
	return all, nil
}

// acrossSlices is why a server's slices are read across workspaces.
const acrossSlices = "a server has slices of all workspaces"

// A sliceRow is the row of a slice.
type sliceRow struct {
	WorkspaceID  tenant.ID
	HoldID       string
	Amount, Held money.Nano
	Turn         int64
}

func (r *sliceRow) payer() payer { return payer{r.WorkspaceID, r.HoldID} }

// lockSlice adds the row of a slice when it is missing, and locks it. It waits for a transaction that is changing it. A
// new row owes no answer to earlier recalls: nothing was in it. A recall that goes on meanwhile sees that something was
// taken.
func lockSlice(ctx context.Context, tx *db.Tx, p payer, node string) (sliceRow, error) {
	in := tx.In(p.ws)
	_, err := db.Exec(ctx, in, `
		INSERT INTO wallet_slices (workspace_id, hold_id, node, amount, turn, answered, held, taken)
		SELECT $1, $2, $3, 0, 0, COALESCE(MAX(asked), 0), 0, 0 FROM wallet_recalls WHERE workspace_id = $1 AND hold_id = $2
		ON CONFLICT (workspace_id, hold_id, node) DO NOTHING`, p.hold, node)
	if err != nil {
		return sliceRow{}, fmt.Errorf("add a slice: %w", err)
	}
	row, err := db.One[sliceRow](ctx, in, `
		SELECT workspace_id, hold_id, amount, held, turn FROM wallet_slices
		WHERE workspace_id = $1 AND hold_id = $2 AND node = $3 FOR UPDATE`, p.hold, node)
	if err != nil {
		return row, fmt.Errorf("lock a slice: %w", err)
	}
	return row, nil
}

// moveSlice adds an amount to a slice, or takes it out, if its turn is what this server left. held is what its requests
// hold. answer says that all recalls so far are answered by that.
func moveSlice(
	ctx context.Context, tx *db.Tx, p payer, node string, turn int64, by, held money.Nano, answer bool,
) error {
	set := ""
	if answer {
		set = `, answered = COALESCE((SELECT MAX(asked) FROM wallet_recalls r
			WHERE r.workspace_id = wallet_slices.workspace_id AND r.hold_id = wallet_slices.hold_id), 0)`
	}
	if by > 0 {
		set = `, taken = taken + 1`
	}
	n, err := db.Exec(ctx, tx.In(p.ws), `
		UPDATE wallet_slices SET amount = amount + $5, turn = turn + 1, held = $6`+set+`
		WHERE workspace_id = $1 AND hold_id = $2 AND node = $3 AND turn = $4`, p.hold, node, turn, by, held)
	if err == nil && n != 1 {
		err = errSliceMoved
	}
	if err != nil {
		return fmt.Errorf("change a slice by $%s: %w", by, err)
	}
	return nil
}

// askBack counts up the recalls of everything that is in slices of a payer's pot.
func askBack(ctx context.Context, tx *db.Tx, p payer) error {
	_, err := db.Exec(ctx, tx.In(p.ws), `
		INSERT INTO wallet_recalls (workspace_id, hold_id, asked)
		SELECT DISTINCT s.workspace_id, s.hold_id, 1 FROM wallet_slices s WHERE `+slicesOf(p)+` AND s.amount > 0
		ON CONFLICT (workspace_id, hold_id) DO UPDATE SET asked = wallet_recalls.asked + 1`, p.hold)
	if err != nil {
		return fmt.Errorf("recall slices: %w", err)
	}
	tx.Signal(topicRecall)
	return nil
}

// unanswered counts the servers whose answer to a recall is missing, and will come.
func unanswered(ctx context.Context, in db.Scoped, p payer, node string) (int64, error) {
	n, err := db.One[int64](ctx, in, `
		SELECT COUNT(*) FROM wallet_slices s JOIN wallet_recalls r ON r.workspace_id = s.workspace_id AND r.hold_id = s.hold_id
		WHERE `+slicesOf(p)+` AND s.node <> $3 AND s.amount > 0 AND s.answered < r.asked AND NOT `+ended, p.hold, node)
	if err != nil {
		return 0, fmt.Errorf("await the answers to a recall: %w", err)
	}
	return n, nil
}

// recalled returns the payers whose recall a server has not answered.
func recalled(ctx context.Context, d *db.DB, node string) ([]payer, error) {
	rows, err := db.Query[sliceRow](ctx, d.Across(acrossSlices), `
		SELECT s.workspace_id, s.hold_id, s.amount, s.held, s.turn FROM wallet_slices s
		JOIN wallet_recalls r ON r.workspace_id = s.workspace_id AND r.hold_id = s.hold_id
		WHERE s.node = $1 AND s.amount > 0 AND s.answered < r.asked ORDER BY s.workspace_id, s.hold_id`, node)
	if err != nil {
		return nil, fmt.Errorf("read the recalls: %w", err)
	}
	all := make([]payer, len(rows))
	for i := range rows {
		all[i] = rows[i].payer()
	}
	return all, nil
}

// lockSlices reads a server's slices of some workspaces, and locks them in one order. A posting waits here for a
// request that changes one of them, instead of starting anew after it has written everything.
func lockSlices(ctx context.Context, tx *db.Tx, node string, of []tenant.ID) (map[payer]money.Nano, error) {
	return readSlices(ctx, tx.Across(acrossSlices), node, of, "FOR UPDATE")
}

// readSlices reads a server's slices of some workspaces. lock ends the statement; it may be empty.
func readSlices(
	ctx context.Context, s db.Scoped, node string, of []tenant.ID, lock string,
) (map[payer]money.Nano, error) {
	all := map[payer]money.Nano{}
	for some := range slices.Chunk(slices.Sorted(slices.Values(of)), balanceBatch) {
		args, marks := parameters(some, 2)
		rows, err := db.Query[sliceRow](ctx, s, `
			SELECT workspace_id, hold_id, amount, held, turn FROM wallet_slices
			WHERE node = $1 AND workspace_id IN (`+marks+`) ORDER BY workspace_id, hold_id `+lock, append([]any{node}, args...)...)
		if err != nil {
			return nil, fmt.Errorf("read the slices of a server: %w", err)
		}
		for i := range rows {
			all[rows[i].payer()] = rows[i].Amount
		}
	}
	return all, nil
}

// charge takes what was posted out of this server's slices.
func (e *Escrow) charge(ctx context.Context, tx *db.Tx, used *limits) error {
	var all []payer
	for p, amount := range used.from {
		if amount != 0 {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b payer) int { // in one order, so that two servers do not wait for each other
		if a.ws != b.ws {
			return strings.Compare(string(a.ws), string(b.ws))
		}
		return strings.Compare(a.hold, b.hold)
	})
	for some := range slices.Chunk(all, balanceBatch) {
		args, rows := []any{e.node}, make([]string, len(some))
		for i, p := range some {
			n := len(args)
			args = append(args, string(p.ws), p.hold, int64(used.from[p]), int64(e.funds.HeldOf(p.funds())))
			rows[i] = `(CAST($` + strconv.Itoa(n+1) + ` AS TEXT), CAST($` + strconv.Itoa(n+2) + ` AS TEXT), CAST($` +
				strconv.Itoa(n+3) + ` AS BIGINT), CAST($` + strconv.Itoa(n+4) + ` AS BIGINT))`
		}
		_, err := db.Exec(ctx, tx.Across(acrossSlices), `
			UPDATE wallet_slices SET amount = wallet_slices.amount - v.taken, held = v.held
			FROM (VALUES `+strings.Join(rows, ", ")+`) AS v (workspace_id, hold_id, taken, held)
			WHERE wallet_slices.node = $1 AND wallet_slices.workspace_id = v.workspace_id
				AND wallet_slices.hold_id = v.hold_id`, args...)
		if err != nil {
			return fmt.Errorf("charge the slices: %w", err)
		}
	}
	return nil
}

// deleteSlices gives back a server's slices of some payers.
func deleteSlices(ctx context.Context, tx *db.Tx, node string, of []payer) error {
	for some := range slices.Chunk(of, balanceBatch) {
		args, rows := []any{node}, make([]string, len(some))
		for i, p := range some {
			rows[i] = fmt.Sprintf("(CAST($%d AS TEXT), CAST($%d AS TEXT))", len(args)+1, len(args)+2)
			args = append(args, string(p.ws), p.hold)
		}
		_, err := db.Exec(ctx, tx.Across(acrossSlices), `DELETE FROM wallet_slices
			WHERE node = $1 AND (workspace_id, hold_id) IN (VALUES `+strings.Join(rows, ", ")+`)`, args...)
		if err != nil {
			return fmt.Errorf("give back slices: %w", err)
		}
	}
	return nil
}

// dropSlices gives back all slices of a server whose journal is posted, and that holds nothing.
func dropSlices(ctx context.Context, tx *db.Tx, node string) error {
	if _, err := db.Exec(ctx, tx.Across(acrossSlices), `DELETE FROM wallet_slices WHERE node = $1`, node); err != nil {
		return fmt.Errorf("give back all slices of a server: %w", err)
	}
	return nil
}

// loseSlices notes what the slices of a lost server were, and returns them.
func loseSlices(ctx context.Context, tx *db.Tx, node string) ([]sliceRow, error) {
	across := tx.Across(acrossSlices)
	rows, err := db.Query[sliceRow](ctx, across, `
		SELECT workspace_id, hold_id, amount, held, turn FROM wallet_slices WHERE node = $1
		ORDER BY workspace_id, hold_id FOR UPDATE`, node)
	if err != nil {
		return nil, fmt.Errorf("read the slices of a lost server: %w", err)
	}
	lost := make([][]any, 0, len(rows))
	for _, r := range rows {
		if r.Amount > 0 {
			lost = append(lost, []any{string(r.WorkspaceID), r.HoldID, node, int64(r.Amount), int64(clock.Now())})
		}
	}
	columns := []string{"workspace_id", "hold_id", "node", "amount", "at"}
	if err := db.Merge(
		ctx, across, "wallet_losses", columns, 3, "amount = wallet_losses.amount + excluded.amount", lost,
	); err != nil {
		return nil, fmt.Errorf("note what a server has lost: %w", err)
	}
	return rows, nil
}

func (p payer) funds() funds.Payer { return funds.Payer{Workspace: p.ws, Hold: p.hold} }
