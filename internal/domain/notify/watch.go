package notify

import (
	"context"
	"fmt"
	"sync/atomic"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/meter"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/notice"
)

// lowMark marks a workspace whose wallet is low, until it is not.
const lowMark = string(notice.WalletLow)

// A watch notices what nobody writes: the data plane spends and refuses without a database.
type watch struct {
	store   *Store
	budgets func() []meter.Reached // budgets that could not cover a request, since it was last called
	seen    atomic.Uint64          // the database's change counter at the last look at wallets
	owed    []meter.Reached        // that could not be stored yet; belongs to the loop
}

// reached adds a notice for each budget that could not cover a request of this node.
func (w *watch) reached(ctx context.Context) error {
	if w.budgets != nil {
		w.owed = append(w.owed, w.budgets()...)
	}
	for len(w.owed) > 0 {
		if err := w.store.budgetReached(ctx, w.owed[0]); err != nil {
			return err
		}
		w.owed = w.owed[1:]
	}
	return nil
}

// look adds a notice for each wallet that has become low.
func (w *watch) look(ctx context.Context) error {
	changes := w.store.db.Changes(ctx)
	if changes == w.seen.Load() {
		return nil
	}
	if err := w.store.wallets(ctx); err != nil {
		return err
	}
	w.seen.Store(changes)
	return nil
}

// A lowWallet is a wallet whose state differs from its mark.
type lowWallet struct {
	WorkspaceID tenant.ID
	Amount, Low money.Nano
}

const selectLow = `
	SELECT b.workspace_id, b.amount, COALESCE(s.wallet_low, $1) AS low FROM ledger_balances b
	LEFT JOIN notice_settings s ON s.workspace_id = b.workspace_id
	LEFT JOIN notice_marks m ON m.workspace_id = b.workspace_id AND m.mark = $2
	WHERE b.account = 'wallet' AND (b.amount < COALESCE(s.wallet_low, $1)) = (m.mark IS NULL)`

// wallets tells of the wallets that have fallen below their mark, each once until it was above it again.
func (s *Store) wallets(ctx context.Context) error {
	all, err := db.Query[lowWallet](ctx, s.db.Across("wallets of all workspaces are watched"), selectLow,
		DefaultWalletLow, lowMark)
	if err != nil {
		return fmt.Errorf("look for low wallets: %w", err)
	}
	for _, of := range all {
		if _, err := s.db.Tx(ctx, func(tx *db.Tx) error { return s.mark(ctx, tx, of.WorkspaceID) }); err != nil {
			return fmt.Errorf("tell of a low wallet: %w", err)
		}
	}
	return nil
}

// mark compares a wallet with its mark again, in the transaction that tells of it.
func (s *Store) mark(ctx context.Context, tx *db.Tx, ws tenant.ID) error {
	of, err := db.Maybe[lowWallet](ctx, tx.Across("the statement names the workspace"),
		selectLow+` AND b.workspace_id = $3`, DefaultWalletLow, lowMark, ws)
	switch {
	case err != nil || of == nil:
		return err
	case of.Amount >= of.Low:
		return notice.Clear(ctx, tx, ws, lowMark)
	}
	return notice.Once(ctx, tx, ws, lowMark, notice.Notice{
		Kind: notice.WalletLow, Subject: string(ws), Link: "wallet",
		Title: fmt.Sprintf("The wallet is low: $%s are left", of.Amount),
		Text: fmt.Sprintf("The balance is $%s, below the mark of $%s. Requests that it cannot cover are refused with 402.",
			of.Amount, of.Low),
	})
}

// budgetReached tells of a budget that could not cover a request, once in its period.
func (s *Store) budgetReached(ctx context.Context, r meter.Reached) error {
	ws, whose := tenant.ID(r.ID), "the workspace"
	if r.Key {
		type named struct {
			WorkspaceID tenant.ID
			Name        string
		}
		key, err := db.Maybe[named](ctx, s.db.Across("the meter knows a key by its id alone"),
			`SELECT workspace_id, name FROM api_keys WHERE id = $1`, r.ID)
		if err != nil {
			return fmt.Errorf("find the key of a budget: %w", err)
		}
		if key == nil {
			return nil
		}
		ws, whose = key.WorkspaceID, fmt.Sprintf("the key %q", key.Name)
	}
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		mark := fmt.Sprintf("%s/%s/%s/%s", notice.BudgetReached, r.ID, r.Period, clock.Of(r.Renews))
		return notice.Once(ctx, tx, ws, mark, notice.Notice{
			Kind: notice.BudgetReached, Subject: r.ID, Link: "settings?tab=limits",
			Title: fmt.Sprintf("A budget of $%s per %s is reached", r.Budget, r.Period),
			Text: fmt.Sprintf("The budget of %s is $%s per %s. It could not cover a request, which was refused. "+
				"It begins anew at %s.", whose, r.Budget, r.Period, clock.Of(r.Renews)),
		})
	})
	if err != nil {
		return fmt.Errorf("tell of a budget: %w", err)
	}
	return nil
}

// maxWalletLow bounds the mark of a wallet: more is a typing error.
const maxWalletLow = 1_000_000 * money.Dollar

// walletLow returns the mark below which a wallet is low.
func walletLow(ctx context.Context, in db.Scoped) (money.Nano, error) {
	low, err := db.Maybe[money.Nano](ctx, in, `SELECT wallet_low FROM notice_settings WHERE workspace_id = $1`)
	if err != nil {
		return 0, fmt.Errorf("read the mark of a wallet: %w", err)
	}
	if low == nil {
		return DefaultWalletLow, nil
	}
	return *low, nil
}

// WalletLow returns the mark below which the wallet of a workspace is low; 0 for never.
func (s *Store) WalletLow(ctx context.Context, ws tenant.ID) (money.Nano, error) {
	return walletLow(ctx, s.db.In(ws))
}

// A lowSetting is the mark of a wallet in the audit log.
type lowSetting struct {
	WalletLow money.Nano `json:"wallet_low_usd"`
}

// SetWalletLow sets the mark below which a wallet is low; 0 for never.
func (s *Store) SetWalletLow(ctx context.Context, ws tenant.ID, by tenant.Actor, low money.Nano) error {
	if low < 0 || low > maxWalletLow {
		return fault.Invalid("wallet_low_usd", fmt.Sprintf("must be from 0 to %s", maxWalletLow))
	}
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		before, err := walletLow(ctx, tx.In(ws))
		if err != nil {
			return err
		}
		if _, err := db.Exec(ctx, tx.In(ws), `
			INSERT INTO notice_settings (workspace_id, wallet_low, updated_at) VALUES ($1, $2, $3)
			ON CONFLICT (workspace_id) DO UPDATE SET wallet_low = excluded.wallet_low, updated_at = excluded.updated_at`,
			low, s.now()); err != nil {
			return fmt.Errorf("set the mark of a wallet: %w", err)
		}
		return audit.Record(ctx, tx, ws, by, "notifications.update", string(ws), lowSetting{before}, lowSetting{low})
	})
	return err
}
