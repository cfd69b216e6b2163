package wallet

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/usage"
	"sovereign/internal/live"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/journal"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
)

// A statement is the ledger: whatever was credited, charged and taken back in whatever months, opening, movements,
// usage and closing fit to the nano, each month begins where the one before ended, and the lines of usage sum to the
// usage.
func TestStatementsReconcileWithTheLedgerToTheNano(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		count := 0
		rapid.Check(t, func(r *rapid.T) {
			count++
			ws := tenant.ID(fmt.Sprintf("ws_%d", count))
			if _, err := db.Exec(t.Context(), d.In(ws), `INSERT INTO workspaces (workspace_id, name, created_at) VALUES ($1, $2, 1)`, string(ws)); err != nil {
				r.Fatal(err)
			}
			start := time.Date(2024, 11, 20, 0, 0, 0, 0, time.UTC)
			at, now := clock.Of(start), clock.Of(start)
			for i := range rapid.IntRange(1, 12).Draw(r, "transfers") {
				at = at.Add(time.Duration(rapid.Int64Range(0, 20*24*3600).Draw(r, "pause")) * time.Second)
				act(t, d, ws, fmt.Sprintf("%s_%d", ws, i), at, rapid.IntRange(0, 2).Draw(r, "kind"), money.Nano(rapid.Int64Range(1, 1_000_000_007).Draw(r, "amount")), r)
				now = at
			}
			if _, err := db.Exec(t.Context(), d.In(ws), `DELETE FROM ledger_days WHERE workspace_id = $1`); err != nil {
				r.Fatal(err)
			}
			if _, err := db.Exec(t.Context(), d.Across("test"), `INSERT INTO ledger_days (workspace_id, day, kind, account, amount)
				SELECT workspace_id, at / 86400000000, kind, account, CAST(SUM(amount) AS BIGINT) FROM ledger_entries
				WHERE workspace_id = $1 GROUP BY workspace_id, at / 86400000000, kind, account`, string(ws)); err != nil {
				r.Fatal(err)
			}
			s := NewStore(d, nil, funds.New())
			all, err := s.Statements(t.Context(), ws, now)
			if err != nil {
				r.Fatal(err)
			}
			if len(all) == 0 { // nothing could be taken back
				return
			}
			balance, err := balance(t.Context(), d.In(ws), accountWallet)
			if err != nil || all[0].Closing != balance || all[len(all)-1].Opening != 0 {
				r.Fatalf("the last month closes with %s, the wallet has %s, the first opens with %s; %v", all[0].Closing, balance, all[len(all)-1].Opening, err)
			}
			for i, m := range all {
				if m.Opening+m.TopUps-m.Usage-m.Refunds != m.Closing || i > 0 && all[i-1].Opening != m.Closing || m.Final != (m.To <= now) {
					r.Fatalf("%+v does not fit", m)
				}
				one, err := s.Statement(t.Context(), ws, m.Month, now)
				if err != nil || one.MonthTotal != m {
					r.Fatalf("listed %+v, shown %+v, %v", m, one.MonthTotal, err)
				}
				moved, used := money.Nano(0), money.Nano(0)
				for _, line := range one.Transfers {
					moved += line.Amount
				}
				for _, line := range one.Lines {
					used += line.Charged
				}
				if moved != m.TopUps-m.Refunds || used != m.Usage {
					r.Fatalf("%s: %s moved and %s used do not sum to %+v", m.Month, moved, used, m)
				}
				brief := one.Brief(1)
				if len(one.Lines) > 0 && (len(brief.Lines) != 1 || brief.Lines[0].Charged != m.Usage) {
					r.Fatalf("in brief: %+v", brief.Lines)
				}
			}
		})
		proof, err := NewStore(d, nil, funds.New()).Verify(t.Context())
		if err != nil || !proof.OK {
			t.Errorf("%v %v", proof.Problems, err)
		}
	})
}

// act makes one transfer, at a time.
func act(t *testing.T, d *db.DB, ws tenant.ID, name string, at clock.Time, kind int, amount money.Nano, r *rapid.T) {
	t.Helper()
	_, err := d.Tx(t.Context(), func(tx *db.Tx) error {
		switch kind {
		case 0:
			_, _, err := fund(t.Context(), tx, ws, "txn_"+name, "", amount)
			return err
		case 1:
			price := live.Rates{Input: 1_000_000}
			late := time.Duration(rapid.Int64Range(0, 40*24*3600).Draw(r, "late")) * time.Second
			charges := []*journal.Charge{
				{Request: "req_a" + name, Workspace: ws, Key: "key_1", Model: "m1", At: at.Add(-late), Usage: live.Usage{Input: 3}, Price: price, Cost: 3, Charged: 3},
				{Request: "req_b" + name, Workspace: ws, Key: "key_2", Model: "m2", At: at, Usage: live.Usage{Input: int64(amount)}, Price: price, Cost: amount, Charged: amount},
			}
			_, err := postUsage(t.Context(), tx, usage.NewDays(), map[tenant.ID][]*journal.Charge{ws: charges}, nil)
			return err
		}
		held, err := balances(t.Context(), tx.Across("test"), []tenant.ID{ws})
		if err != nil {
			return err
		}
		return post(t.Context(), tx, refund(ws, "", min(amount, held[accountKey{ws, accountWallet}])), held)
	})
	if err != nil {
		r.Fatal(err)
	}
	// Entries are dated by the clock: those of now are moved to their time.
	if _, err := db.Exec(t.Context(), d.In(ws), `UPDATE ledger_entries SET at = $2 WHERE workspace_id = $1 AND at > $3`, at, clock.Now().Add(-time.Hour)); err != nil {
		r.Fatal(err)
	}
}

func TestAStatementNeedsAMonthThatTheWalletHas(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := NewStore(d, feed.New(d, slog.New(slog.DiscardHandler), nil), funds.New())
		for _, month := range []string{"", "2026", "2026-1", "2026-13", "2026-00", "26-01", "2026-01-01", "x"} {
			if _, err := s.Statement(t.Context(), "ws_1", month, clock.Now()); err == nil {
				t.Errorf("%q is a month", month)
			}
		}
	})
}
