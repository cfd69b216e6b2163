package wallet

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/store/chain"
	"sovereign/internal/store/chain/chaintest"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/vault"
)

// newSealer returns a sealer with the keys of a new vault.
func newSealer(t *testing.T, d *db.DB) (*chain.Sealer, *vault.Vault) {
	t.Helper()
	root, err := vault.CreateRoot(filepath.Join(t.TempDir(), "root.key"))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := vault.Open(t.Context(), d, root)
	if err != nil {
		t.Fatal(err)
	}
	return chain.NewSealer(d, keys, slog.New(slog.DiscardHandler)), keys
}

// sealed returns a ledger of three rounds of requests and a top-up, sealed, and what verifies it.
func sealed(t *testing.T, d *db.DB) (b *process, find chaintest.Verifier) {
	t.Helper()
	sealer, keys := newSealer(t, d)
	b = startProcess(t, d, journaltest.NewDisk())
	b.fund("ws_a", 1000)
	b.fund("ws_b", 1000)
	for _, round := range []string{"1", "2", "3"} {
		b.spend("ws_a", "req_a"+round, 10)
		b.spend("ws_a", "req_free"+round, 0)
		b.spend("ws_b", "req_b"+round, 20)
		b.drain()
		if err := sealer.Seal(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return b, func(t *testing.T, s db.Scoped) []string {
		t.Helper()
		proof, err := VerifyChain(t.Context(), s, keys, "")
		if err != nil {
			t.Fatal(err)
		}
		if proof.OK != (len(proof.Problems) == 0) || proof.Entries > 0 && proof.Head == nil && proof.OK {
			t.Errorf("%+v", proof)
		}
		return proof.Problems
	}
}

func TestSerialEveryChangeOfTheLedgerIsFound(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		_, find := sealed(t, d)
		chaintest.EveryChangeIsFound(t, d, []chaintest.Table{
			{Name: "ledger_entries", Key: []string{"transfer_id", "line"}},
			{Name: "usage_rows", Key: []string{"workspace_id", "at", "request_id"}},
			{Name: "ledger_balances", Key: []string{"workspace_id", "account"}},
			{Name: "chain_links", Key: []string{"chain", "subject"}, Where: "chain = 'ledger'"},
			{Name: "chain_heads", Key: []string{"chain"}, Where: "chain = 'ledger'"},
		}, find)
	})
}

// What adds up is not enough: a whole batch that is gone, with its transfer, its balances and its link, is found, in
// the middle and at the end.
func TestABatchThatIsGoneWithAllItsTracesIsFound(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		_, find := sealed(t, d)
		for _, request := range []string{"req_a2", "req_a3", "req_b3"} {
			const of = `(SELECT transfer_id FROM usage_rows WHERE request_id = $1)`
			adjust := func(account string) string {
				return `UPDATE ledger_balances SET amount = amount - (SELECT SUM(amount) FROM ledger_entries e WHERE e.transfer_id = ` + of +
					` AND e.account = ledger_balances.account) WHERE account = '` + account +
					`' AND workspace_id = (SELECT workspace_id FROM usage_rows WHERE request_id = $1)`
			}
			if !chaintest.Found(t, d, request+" is gone", find,
				chaintest.Do(adjust(accountWallet), request), chaintest.Do(adjust(accountUsage), request),
				chaintest.Do(`DELETE FROM ledger_entries WHERE transfer_id = `+of, request),
				chaintest.Do(`DELETE FROM chain_links WHERE chain = 'ledger' AND subject = `+of, request),
				chaintest.Do(`DELETE FROM usage_rows WHERE transfer_id = `+of, request)) {
				t.Error("the database refuses")
			}
		}
	})
}

// The sums of a batch without usage rows still hold, if those of the days are gone as well. The chain finds that.
func TestUsageThatIsGoneIsFound(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b, find := sealed(t, d)
		for _, table := range []string{"usage_rows", "usage_days"} {
			if _, err := db.Exec(t.Context(), d.Across("test"), `DELETE FROM `+table+` WHERE workspace_id = 'ws_a'`); err != nil {
				t.Fatal(err)
			}
		}
		b.checkProof()
		if err := d.Snapshot(t.Context(), "test", func(s db.Scoped) error {
			if problems := find(t, s); len(problems) != 3 || !strings.Contains(problems[0], "was changed") {
				t.Errorf("%q", problems)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}
