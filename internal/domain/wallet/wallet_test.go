package wallet_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"testing"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/wallet"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/journal"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
)

func addWorkspace(t *testing.T, d *db.DB, ws tenant.ID) {
	t.Helper()
	if _, err := db.Exec(t.Context(), d.In(ws), `INSERT INTO workspaces (workspace_id, name, created_at) VALUES ($1, $2, 1)`, string(ws)); err != nil {
		t.Fatal(err)
	}
}

func shown(t *testing.T, s *wallet.Store, ws tenant.ID) funds.Balance {
	t.Helper()
	b, err := s.Show(t.Context(), ws)
	if err != nil {
		t.Error(err)
	}
	return b
}

func left(t *testing.T, holds *wallet.Holds, id string) money.Nano {
	t.Helper()
	free, err := holds.Left(t.Context(), "ws_a", id, 0)
	if err != nil {
		t.Error(err)
	}
	return free
}

// newStore is a ledger with its feed and its money in memory.
func newStore(t *testing.T, d *db.DB) *wallet.Store {
	t.Helper()
	s, _, _ := newLedger(t, d)
	return s
}

func newLedger(t *testing.T, d *db.DB) (*wallet.Store, *wallet.Holds, *feed.Feed) {
	t.Helper()
	disk, err := journal.Folder(t.TempDir() + "/journal")
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	log, money := slog.New(slog.DiscardHandler), funds.New()
	poster := wallet.NewPoster(d, j, money, log)
	if _, err := poster.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	changes := feed.New(d, log, poster.Sources())
	if err := changes.Fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { changes.Run(ctx) })
	t.Cleanup(func() { stop(); group.Wait() })
	return wallet.NewStore(d, changes, money), poster.Holds, changes
}

// A domain opens and ends a hold in its own transactions, also in one that holds the answer to an Idempotency-Key.
func TestAHoldIsInForceWhenItsChangeReturns(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, holds, changes := newLedger(t, d)
		addWorkspace(t, d, "ws_a")
		if _, err := s.TopUp(t.Context(), "ws_a", tenant.Operator, 1000, ""); err != nil {
			t.Fatal(err)
		}
		outer := func(ctx context.Context, change func(context.Context) error) error {
			version, err := d.Tx(ctx, func(tx *db.Tx) error { return change(tx.Bind(ctx)) })
			return errors.Join(err, changes.Await(ctx, version))
		}
		plain := func(ctx context.Context, change func(context.Context) error) error { return change(ctx) }
		for id, run := range map[string]func(context.Context, func(context.Context) error) error{"rs_plain": plain, "rs_bound": outer} {
			open := func(ctx context.Context) error {
				return changes.Change(ctx, func(tx *db.Tx) error { return holds.Open(ctx, tx, "ws_a", id, "reward", 700) })
			}
			end := func(ctx context.Context) error {
				return changes.Change(ctx, func(tx *db.Tx) error { return holds.End(ctx, tx, "ws_a", id) })
			}
			if err := run(t.Context(), open); err != nil || left(t, holds, id) != 700 || shown(t, s, "ws_a").Held != 700 {
				t.Errorf("%s is open: %v, %+v", id, err, shown(t, s, "ws_a"))
			}
			for range 2 {
				if err := run(t.Context(), end); err != nil || left(t, holds, id) != 0 || shown(t, s, "ws_a").Held != 0 {
					t.Errorf("%s has ended: %v, %+v", id, err, shown(t, s, "ws_a"))
				}
			}
		}
	})
}

func TestTopUpsAddUpAndTheLedgerProves(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newStore(t, d)
		addWorkspace(t, d, "ws_a")
		addWorkspace(t, d, "ws_b")
		const workers, each = 6, 8
		var group sync.WaitGroup
		for range workers {
			group.Go(func() {
				for range each {
					if _, err := s.TopUp(context.Background(), "ws_a", tenant.Operator, 3, "test"); err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		b := shown(t, s, "ws_a")
		if b.Balance != 3*workers*each {
			t.Errorf("balance %s", b.Balance)
		}
		if b := shown(t, s, "ws_b"); b.Balance != 0 {
			t.Errorf("the other workspace has %s", b.Balance)
		}
		proof, err := s.Verify(t.Context())
		if err != nil || !proof.OK || proof.Sum != 0 || proof.Entries != 2*workers*each {
			t.Errorf("%+v %v", proof, err)
		}
		entries, err := audit.List(t.Context(), d, "ws_a", "wallet.topup", 1000, 0)
		if err != nil || len(entries) != workers*each {
			t.Errorf("audited %d %v", len(entries), err)
		}
	})
}

func TestTopUpRefusesWhatIsNoAmount(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newStore(t, d)
		addWorkspace(t, d, "ws_a")
		for _, amount := range []money.Nano{0, -1, math.MinInt64, 1_000_000*money.Dollar + 1, math.MaxInt64} {
			_, err := s.TopUp(t.Context(), "ws_a", tenant.Operator, amount, "")
			var f *fault.Fault
			if !errors.As(err, &f) || f.Field != "amount_usd" {
				t.Errorf("%s: %v", amount, err)
			}
		}
		if b := shown(t, s, "ws_a"); b.Balance != 0 {
			t.Errorf("balance %s", b.Balance)
		}
	})
}

// Each breach is written past the store, straight into the tables, and must be found.
func TestVerifyFindsEveryBreach(t *testing.T) {
	breaches := map[string]string{
		"a line is missing":          `DELETE FROM ledger_entries WHERE line = 1`,
		"an amount was changed":      `UPDATE ledger_entries SET amount = amount + 1 WHERE line = 0`,
		"two amounts were changed":   `UPDATE ledger_entries SET amount = amount * 2`,
		"a balance was changed":      `UPDATE ledger_balances SET amount = amount + 1 WHERE account = 'wallet'`,
		"a balance is missing":       `DELETE FROM ledger_balances WHERE account = 'funding'`,
		"a transfer left its tenant": `UPDATE ledger_entries SET workspace_id = 'ws_b' WHERE line = 1`,
	}
	for name, breach := range breaches {
		t.Run(name, func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				s := newStore(t, d)
				addWorkspace(t, d, "ws_a")
				addWorkspace(t, d, "ws_b")
				if _, err := s.TopUp(t.Context(), "ws_a", tenant.Operator, money.Dollar, ""); err != nil {
					t.Fatal(err)
				}
				if _, err := db.Exec(t.Context(), d.Across("test"), breach); err != nil {
					t.Fatal(err)
				}
				proof, err := s.Verify(t.Context())
				if err != nil || proof.OK || len(proof.Problems) == 0 {
					t.Errorf("%+v %v", proof, err)
				}
			})
		})
	}
}

func TestWalletCannotGoBelowZeroInTheTableItself(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		addWorkspace(t, d, "ws_a")
		if _, err := db.Exec(t.Context(), d.In("ws_a"), `INSERT INTO ledger_balances (workspace_id, account, amount) VALUES ($1, 'wallet', -1)`); err == nil {
			t.Error("a negative balance was stored")
		}
	})
}
