package wallet

import (
	"context"
	"fmt"
	"slices"

	"sovereign/internal/base/money"
	"sovereign/internal/live"
	"sovereign/internal/store/chain"
	"sovereign/internal/store/db"
)

// Verify proves the ledger from its rows alone. All entries sum to zero, and so does each transfer. Each balance is
// the sum of its entries. No wallet is below zero. Every usage row costs what its stored price says, and the rows of
// a batch sum to its transfer. Every named hold has spent what its usage rows were charged, within its amount, and the
// wallet covers what the open ones have left. The usage of every day is the sum of its usage rows.
func (s *Store) Verify(ctx context.Context) (proof Proof, err error) {
	err = s.db.Snapshot(ctx, proofScope, func(all db.Scoped) error {
		proof, err = prove(ctx, all)
		return err
	})
	return proof, err
}

// proofScope is why the ledger is proven across workspaces.
const proofScope = "the ledger is proven whole"

// VerifyChain is Verify, and compares the rows with the ledger's chain, whose head keys has signed. kept is the hash
// of an earlier head, or empty. all must not change meanwhile.
func VerifyChain(ctx context.Context, all db.Scoped, keys chain.Keys, kept string) (Proof, error) {
	proof, err := prove(ctx, all)
	if err != nil {
		return proof, err
	}
	chained, err := chain.Verify(ctx, all, keys, chain.Ledger, kept)
	proof.Head, proof.Problems = chained.Head, append(proof.Problems, chained.Problems...)
	proof.OK = len(proof.Problems) == 0
	return proof, err
}

func prove(ctx context.Context, all db.Scoped) (Proof, error) {
	proof := Proof{Problems: []string{}}
	type total struct {
		Entries int64
		Sum     money.Nano
	}
	t, err := db.One[total](ctx, all,
		`SELECT COUNT(*) AS entries, CAST(COALESCE(SUM(amount), 0) AS BIGINT) AS sum FROM ledger_entries`)
	if err != nil {
		return proof, err
	}
	proof.Entries, proof.Sum = t.Entries, t.Sum
	if t.Sum != 0 {
		proof.Problems = append(proof.Problems, fmt.Sprintf("all entries sum to %s", t.Sum))
	}
	tables, err := db.Tables(ctx, all)
	if err != nil {
		return proof, err
	}
	holds, checks := has(tables, "named_holds"), invariants
	if holds {
		checks = slices.Concat(checks, holdInvariants)
	}
	if has(tables, "wallet_slices") {
		checks = slices.Concat(checks, sliceInvariants)
	}
	if has(tables, "ledger_days") {
		checks = slices.Concat(checks, billingInvariants)
	}
	if has(tables, "usage_days") {
		checks = slices.Concat(checks, dayInvariants)
	}
	for _, check := range checks {
		broken, err := db.Query[string](ctx, all, check.violations)
		if err != nil {
			return proof, fmt.Errorf("check that %s: %w", check.rule, err)
		}
		for _, subject := range broken {
			proof.Problems = append(proof.Problems, fmt.Sprintf("%s: not so for %s", check.rule, subject))
		}
	}
	wrong, err := mispriced(ctx, all, holds)
	proof.Problems = append(proof.Problems, wrong...)
	proof.OK = len(proof.Problems) == 0
	return proof, err
}

// has reports whether the schema has a table. That of a backup of an earlier release, which is proven before it is
// migrated, may lack it: one without named_holds has no seconds of a GPU either, and one without ledger_days no debts.
func has(tables []db.Table, name string) bool {
	return slices.ContainsFunc(tables, func(t db.Table) bool { return t.Name == name })
}

// An invariant is a rule of the ledger, with the query that finds its violations.
type invariant struct{ rule, violations string }

// invariants are the rules of the ledger.
var invariants = []invariant{
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
	{
		"every usage row belongs to a transfer of its workspace",
		`SELECT u.request_id FROM usage_rows u LEFT JOIN ledger_entries e ON e.transfer_id = u.transfer_id AND e.line = 0
			WHERE e.transfer_id IS NULL OR e.workspace_id <> u.workspace_id OR e.kind <> 'usage'`,
	},
	{
		// a batch without rows has none to compare; the chain finds that
		"the rows of a batch cost what its transfer used",
		`SELECT u.transfer_id FROM usage_rows u GROUP BY u.transfer_id HAVING SUM(u.cost) <>
			(SELECT COALESCE(SUM(e.amount), 0) FROM ledger_entries e WHERE e.transfer_id = u.transfer_id AND e.account = 'usage')`,
	},
	{
		"the rows of a batch charged what its transfer took from the wallet",
		`SELECT u.transfer_id FROM usage_rows u GROUP BY u.transfer_id HAVING SUM(u.charged) <>
			(SELECT COALESCE(-SUM(e.amount), 0) FROM ledger_entries e WHERE e.transfer_id = u.transfer_id AND e.account = 'wallet')`,
	},
	{
		"no row is charged more than it costs, or less than nothing",
		`SELECT request_id FROM usage_rows WHERE charged < 0 OR charged > cost`,
	},
}

// holdInvariants are the rules of named holds.
var holdInvariants = []invariant{
	{
		"every hold that a usage row names is a hold of its workspace",
		`SELECT u.request_id FROM usage_rows u
			LEFT JOIN named_holds h ON h.workspace_id = u.workspace_id AND h.id = u.hold_id
			WHERE u.hold_id <> '' AND h.id IS NULL`,
	},
	{
		"every hold has spent what its usage rows were charged",
		`SELECT h.workspace_id || '/' || h.id FROM named_holds h LEFT JOIN (
				SELECT workspace_id, hold_id, SUM(charged) AS charged FROM usage_rows WHERE hold_id <> ''
				GROUP BY workspace_id, hold_id
			) AS u ON u.workspace_id = h.workspace_id AND u.hold_id = h.id WHERE h.spent <> COALESCE(u.charged, 0)`,
	},
	{
		"no hold has spent more than its amount, or less than nothing",
		`SELECT workspace_id || '/' || id FROM named_holds WHERE spent > amount OR spent < 0`,
	},
	{
		"every wallet covers what its open holds have left",
		`SELECT h.workspace_id FROM named_holds h WHERE h.ended_at = 0 GROUP BY h.workspace_id
			HAVING SUM(h.amount - h.spent) > (SELECT COALESCE(SUM(b.amount), 0) FROM ledger_balances b
				WHERE b.workspace_id = h.workspace_id AND b.account = 'wallet')`,
	},
}

// sliceInvariants are the rules of what servers have taken.
var sliceInvariants = []invariant{
	{
		"no slice is below zero",
		`SELECT workspace_id || '/' || hold_id || '/' || node FROM wallet_slices WHERE amount < 0`,
	},
	{
		"every slice is of a wallet, or of a hold of its workspace",
		`SELECT s.workspace_id || '/' || s.hold_id FROM wallet_slices s LEFT JOIN named_holds h
			ON h.workspace_id = s.workspace_id AND h.id = s.hold_id WHERE s.hold_id <> '' AND s.amount > 0 AND h.id IS NULL`,
	},
	{
		"every open hold covers its slices",
		`SELECT h.workspace_id || '/' || h.id FROM named_holds h
			JOIN wallet_slices s ON s.workspace_id = h.workspace_id AND s.hold_id = h.id
			WHERE h.ended_at = 0 GROUP BY h.workspace_id, h.id, h.amount, h.spent HAVING SUM(s.amount) > h.amount - h.spent`,
	},
	{
		"every wallet covers its slices and what its open holds have left",
		`SELECT taken.workspace_id FROM (
				SELECT s.workspace_id, s.amount FROM wallet_slices s WHERE ` + notOpen + ` UNION ALL
				SELECT workspace_id, amount - spent FROM named_holds WHERE ended_at = 0
			) AS taken GROUP BY taken.workspace_id
			HAVING SUM(taken.amount) > (SELECT COALESCE(SUM(b.amount), 0) FROM ledger_balances b
				WHERE b.workspace_id = taken.workspace_id AND b.account = 'wallet')`,
	},
}

// dayInvariants are the rules of the rows of days. Rows that were summed up under another tag stay one day, model and
// key.
var dayInvariants = []invariant{
	{
		"the usage of every day, model and key is the sum of its rows",
		`SELECT workspace_id || '/' || day || '/' || model || '/' || key_id FROM (
			SELECT workspace_id, at / 86400000000 AS day, model, key_id, 1 AS requests, input, cached, output, cost, charged
			FROM usage_rows UNION ALL
			SELECT workspace_id, day, model, key_id, -requests, -input, -cached, -output, -cost, -charged FROM usage_days
		) AS both_sides GROUP BY workspace_id, day, model, key_id
		HAVING SUM(requests) <> 0 OR SUM(input) <> 0 OR SUM(cached) <> 0 OR SUM(output) <> 0 OR SUM(cost) <> 0
			OR SUM(charged) <> 0`,
	},
	{
		"the sums of closed days are those of their rows",
		`SELECT workspace_id || '/' || day FROM (
			SELECT workspace_id, day, requests, input, output, cost FROM usage_sums WHERE cut = 'none' UNION ALL
			SELECT d.workspace_id, d.day, -d.requests, -d.input, -d.output, -d.cost
			FROM usage_days d JOIN usage_closed c ON c.workspace_id = d.workspace_id AND d.day < c.before
		) AS both_sides GROUP BY workspace_id, day
		HAVING SUM(requests) <> 0 OR SUM(input) <> 0 OR SUM(output) <> 0 OR SUM(cost) <> 0`,
	},
}

// billingInvariants are the rules of statements and debts.
var billingInvariants = []invariant{
	{
		"the sums of every day are those of its entries",
		`SELECT workspace_id || '/' || CAST(day AS TEXT) FROM (
			SELECT workspace_id, day, kind, account, amount FROM ledger_days UNION ALL
			SELECT workspace_id, at / 86400000000 AS day, kind, account, -amount FROM ledger_entries
		) AS both_sides GROUP BY workspace_id, day, kind, account HAVING SUM(amount) <> 0`,
	},
	{
		"no debt is paid more than it is, or less than nothing",
		`SELECT workspace_id || '/' || id FROM wallet_debts WHERE paid < 0 OR paid > amount`,
	},
}

// mispriced finds the usage rows whose cost is not their tokens, and what else they used, at their price. seconds says
// whether the rows count seconds of a GPU.
func mispriced(ctx context.Context, all db.Scoped, seconds bool) ([]string, error) {
	gpu := "0"
	if seconds {
		gpu = "gpu_seconds"
	}
	type row struct {
		RequestID, Price                string
		Input, Cached, Written, AudioIn int64
		Output, Reasoning, AudioOut     int64
		Searches, GPU                   int64
		Cost                            money.Nano
	}
	var wrong []string
	for r, err := range db.Rows[row](ctx, all, `
		SELECT request_id, input, cached, written, audio_input AS audio_in, output, reasoning, audio_output AS audio_out,
			searches, `+gpu+` AS gpu, price, cost
		FROM usage_rows`) {
		if err != nil {
			return nil, fmt.Errorf("check the prices: %w", err)
		}
		price, err := live.ReadRates([]byte(r.Price))
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("the price of %s cannot be read", r.RequestID))
			continue
		}
		used := live.Usage{
			Input: r.Input, Cached: r.Cached, Written: r.Written, AudioInput: r.AudioIn,
			Output: r.Output, Reasoning: r.Reasoning, AudioOutput: r.AudioOut, Searches: r.Searches,
			GPUSeconds: r.GPU,
		}
		if price.Of(used) != r.Cost {
			wrong = append(wrong, fmt.Sprintf("every row costs its tokens at its price: not so for %s", r.RequestID))
		}
	}
	return wrong, nil
}
