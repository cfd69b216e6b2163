package wallet

import (
	"context"
	"fmt"

	"sovereign/internal/audit"
	"sovereign/internal/clock"
	"sovereign/internal/db"
	"sovereign/internal/fault"
	"sovereign/internal/id"
	"sovereign/internal/money"
	"sovereign/internal/tenant"
)

// A Store keeps the ledger.
type Store struct{ db *db.DB }

// NewStore keeps the ledger in d.
func NewStore(d *db.DB) *Store { return &Store{db: d} }

// TopUp adds money to a workspace's wallet, and audits the balance before and after.
func (s *Store) TopUp(ctx context.Context, ws tenant.ID, by tenant.Actor, amount money.Nano, memo string) (Balance, error) {
	if err := checkTopUp(amount); err != nil {
		return Balance{}, err
	}
	var after Balance
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		before, err := show(ctx, tx.In(ws))
		if err != nil {
			return err
		}
		if err := post(ctx, tx, ws, "topup", memo, []line{{accountWallet, amount}, {accountFunding, -amount}}); err != nil {
			return err
		}
		if after, err = show(ctx, tx.In(ws)); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, "wallet.topup", string(ws), before, after)
	})
	return after, err
}

// post writes a transfer whose lines sum to zero, and moves the balances with it.
func post(ctx context.Context, tx *db.Tx, ws tenant.ID, kind, memo string, lines []line) error {
	var sum money.Nano
	transfer, now := id.New("txn"), clock.Now()
	for i, l := range lines {
		sum += l.amount
		if _, err := db.Exec(ctx, tx.In(ws), `
			INSERT INTO ledger_entries (workspace_id, transfer_id, line, account, amount, kind, memo, at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`, transfer, i, l.account, l.amount, kind, memo, now); err != nil {
			return fmt.Errorf("post %s: %w", kind, err)
		}
		total, err := balance(ctx, tx.In(ws), l.account)
		if err != nil {
			return err
		}
		next, fits := total.Add(l.amount)
		if !fits {
			return fault.Conflict("the balance would be more than can be counted")
		}
		if _, err := db.Exec(ctx, tx.In(ws), `
			INSERT INTO ledger_balances (workspace_id, account, amount) VALUES ($1, $2, $3)
			ON CONFLICT (workspace_id, account) DO UPDATE SET amount = excluded.amount`, l.account, next); err != nil {
			return fmt.Errorf("post %s: %w", kind, err)
		}
	}
	if sum != 0 {
		return fmt.Errorf("transfer %s sums to %s", kind, sum)
	}
	return nil
}

func balance(ctx context.Context, s db.Scoped, account string) (money.Nano, error) {
	amount, err := db.Maybe[money.Nano](ctx, s, `SELECT amount FROM ledger_balances WHERE workspace_id = $1 AND account = $2`, account)
	if err != nil {
		return 0, fmt.Errorf("read balance: %w", err)
	}
	if amount == nil {
		return 0, nil
	}
	return *amount, nil
}

// Show reads a workspace's balance. Nothing can hold or spend money in this release, so both are zero.
func (s *Store) Show(ctx context.Context, ws tenant.ID) (Balance, error) {
	return show(ctx, s.db.In(ws))
}

func show(ctx context.Context, s db.Scoped) (Balance, error) {
	amount, err := balance(ctx, s, accountWallet)
	return Balance{Balance: amount}, err
}

// Funded reports whether the wallet holds anything.
func (s *Store) Funded(ctx context.Context, ws tenant.ID) (bool, error) {
	b, err := s.Show(ctx, ws)
	return b.Balance > 0, err
}

// Verify proves the ledger from its rows alone: all entries sum to zero, each transfer does, each balance is the sum
// of its entries, and no wallet is below zero.
func (s *Store) Verify(ctx context.Context) (Proof, error) {
	proof := Proof{Problems: []string{}}
	err := s.db.Snapshot(ctx, "the ledger is proven whole", func(all db.Scoped) error {
		type total struct {
			Entries int64
			Sum     money.Nano
		}
		t, err := db.One[total](ctx, all, `SELECT COUNT(*) AS entries, CAST(COALESCE(SUM(amount), 0) AS BIGINT) AS sum FROM ledger_entries`)
		if err != nil {
			return err
		}
		proof.Entries, proof.Sum = t.Entries, t.Sum
		if t.Sum != 0 {
			proof.Problems = append(proof.Problems, fmt.Sprintf("all entries sum to %s", t.Sum))
		}
		for _, check := range invariants {
			broken, err := db.Query[string](ctx, all, check.finds)
			if err != nil {
				return fmt.Errorf("check that %s: %w", check.rule, err)
			}
			for _, subject := range broken {
				proof.Problems = append(proof.Problems, fmt.Sprintf("%s: not so for %s", check.rule, subject))
			}
		}
		return nil
	})
	proof.OK = len(proof.Problems) == 0
	return proof, err
}

// invariants are the rules of the ledger, each with the query that finds who breaks it.
var invariants = []struct{ rule, finds string }{
	{
		"every transfer sums to zero over at least two lines",
		`SELECT transfer_id FROM ledger_entries GROUP BY transfer_id HAVING SUM(amount) <> 0 OR COUNT(*) < 2`,
	},
	{
		"every transfer stays within one workspace",
		`SELECT transfer_id FROM ledger_entries GROUP BY transfer_id HAVING COUNT(DISTINCT workspace_id) <> 1`,
	},
	{
		"every balance is the sum of its entries",
		`SELECT b.workspace_id || '/' || b.account FROM ledger_balances b WHERE b.amount <>
			(SELECT COALESCE(SUM(e.amount), 0) FROM ledger_entries e WHERE e.workspace_id = b.workspace_id AND e.account = b.account)`,
	},
	{
		"every account with entries has a balance",
		`SELECT DISTINCT e.workspace_id || '/' || e.account FROM ledger_entries e WHERE NOT EXISTS
			(SELECT 1 FROM ledger_balances b WHERE b.workspace_id = e.workspace_id AND b.account = e.account)`,
	},
	{
		"no wallet is below zero",
		`SELECT workspace_id FROM ledger_balances WHERE account = 'wallet' AND amount < 0`,
	},
}
