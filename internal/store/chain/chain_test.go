package chain_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"pgregory.net/rapid"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/chain"
	"sovereign/internal/store/chain/chaintest"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/vault"
)

// A trail is an audit trail with its sealer.
type trail struct {
	t      *testing.T
	db     *db.DB
	keys   *vault.Vault
	sealer *chain.Sealer
}

func newTrail(t *testing.T, d *db.DB) *trail {
	t.Helper()
	keys := openKeys(t, d)
	return &trail{t, d, keys, chain.NewSealer(d, keys, slog.New(slog.DiscardHandler))}
}

func openKeys(t testing.TB, d *db.DB) *vault.Vault {
	t.Helper()
	root, err := vault.CreateRoot(filepath.Join(t.TempDir(), "root.key"))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := vault.Open(t.Context(), d, root)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func (tr *trail) record(ws tenant.ID, action string, before, after any) {
	tr.t.Helper()
	if _, err := tr.db.Tx(tr.t.Context(), func(tx *db.Tx) error {
		return audit.Record(tr.t.Context(), tx, ws, tenant.Operator, action, "subject", before, after)
	}); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr *trail) seal() {
	tr.t.Helper()
	if err := tr.sealer.Seal(tr.t.Context()); err != nil {
		tr.t.Fatal(err)
	}
}

// fill records some changes, sealed in two rounds.
func (tr *trail) fill() {
	for round := range 2 {
		for i := range 2 {
			tr.record(tenant.ID(fmt.Sprint("ws_", i+1)), fmt.Sprint("a.", round), nil, map[string]int{"n": i})
		}
		tr.record(tenant.Server, "b", "was", nil)
		tr.seal()
	}
}

func (tr *trail) head() chain.Head {
	tr.t.Helper()
	heads, err := tr.sealer.Heads(tr.t.Context())
	if err != nil || len(heads) != 2 || heads[0].Chain != chain.Audit {
		tr.t.Fatalf("%+v %v", heads, err)
	}
	return heads[0].Head
}

// find verifies with a head that was kept.
func (tr *trail) find(kept string) chaintest.Verifier {
	return func(t *testing.T, s db.Scoped) []string {
		t.Helper()
		proof, err := chain.Verify(t.Context(), s, tr.keys, chain.Audit, kept)
		if err != nil {
			t.Fatal(err)
		}
		if proof.OK != (len(proof.Problems) == 0) {
			t.Errorf("%+v", proof)
		}
		return proof.Problems
	}
}

var auditTables = []chaintest.Table{
	{Name: "audit_entries", Key: []string{"id"}},
	{Name: "chain_links", Key: []string{"chain", "subject"}, Where: "chain = 'audit'"},
	{Name: "chain_heads", Key: []string{"chain"}, Where: "chain = 'audit'"},
}

func TestSerialEveryChangeOfTheAuditTrailIsFound(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		tr := newTrail(t, d)
		tr.fill()
		chaintest.EveryChangeIsFound(t, d, auditTables, tr.find(""))
	})
}

// The signed head says how many there are: whoever removes the last entries with their links is found.
func TestATruncatedTrailIsFound(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		tr := newTrail(t, d)
		tr.fill()
		for left := range int(tr.head().Seq) {
			rows := chaintest.Do(`DELETE FROM audit_entries WHERE id IN (SELECT subject FROM chain_links WHERE chain = 'audit' AND seq > $1)`, left)
			links := chaintest.Do(`DELETE FROM chain_links WHERE chain = 'audit' AND seq > $1`, left)
			claim := chaintest.Do(`UPDATE chain_heads SET seq = $1 WHERE chain = 'audit'`, left)
			gone := chaintest.Do(`DELETE FROM chain_heads WHERE chain = 'audit'`)
			if !chaintest.Found(t, d, fmt.Sprintf("%d are left", left), tr.find(""), rows, links) ||
				!chaintest.Found(t, d, fmt.Sprintf("%d are left, and so says the row of the head", left), tr.find(""), rows, links, claim) ||
				!chaintest.Found(t, d, fmt.Sprintf("%d are left, and no head", left), tr.find(tr.head().Hash), rows, links, gone) {
				t.Error("the database refuses")
			}
		}
	})
}

var forgedEntry = chaintest.Do(`
	INSERT INTO audit_entries (workspace_id, id, at, actor_kind, actor_user, actor_key, request_id, action, subject)
	VALUES ('ws_1', 'aud_forged', 1, 'operator', '', '', '', 'key.create', 'x')`)

func TestAnEntryWithoutALinkIsFound(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		tr := newTrail(t, d)
		tr.fill()
		if !chaintest.Found(t, d, "an entry was added", tr.find(""), forgedEntry) {
			t.Error("the database refuses")
		}
	})
}

// A chain that is made anew has another hash at the place of the kept head.
func TestAKeptHeadFindsAChainThatTheServerItselfMadeAnew(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		tr := newTrail(t, d)
		tr.fill()
		kept := tr.head().Hash
		tr.record("ws_1", "later", nil, nil)
		tr.seal()
		chaintest.Unchanged(t, d, tr.find(kept))
		chaintest.Unchanged(t, d, tr.find(tr.head().Hash))
		for _, text := range []string{
			`DELETE FROM chain_heads`, `DELETE FROM chain_links`, `UPDATE audit_entries SET action = 'never' WHERE action = 'b'`,
		} {
			if _, err := db.Exec(t.Context(), d.Across("test"), text); err != nil {
				t.Fatal(err)
			}
		}
		again := chain.NewSealer(d, tr.keys, slog.New(slog.DiscardHandler))
		if err := again.Seal(t.Context()); err != nil {
			t.Fatal(err)
		}
		chaintest.Unchanged(t, d, tr.find("")) // the holder of the keys can do that
		if err := d.Snapshot(t.Context(), "test", func(s db.Scoped) error {
			if problems := tr.find(kept)(t, s); len(problems) != 1 || !strings.Contains(problems[0], kept) {
				t.Errorf("%q", problems)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAHeadThatAnotherKeySignedIsFound(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		tr := newTrail(t, d)
		tr.fill()
		public, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		document, err := db.One[[]byte](t.Context(), d.Across("test"), `SELECT document FROM chain_heads WHERE chain = 'audit'`)
		if err != nil {
			t.Fatal(err)
		}
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: private}, new(jose.SignerOptions).WithHeader("kid", "mine"))
		if err != nil {
			t.Fatal(err)
		}
		signed, err := signer.Sign(document)
		if err != nil {
			t.Fatal(err)
		}
		jws, err := signed.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		if !chaintest.Found(t, d, "an attacker's key has signed", tr.find(""),
			chaintest.Do(`INSERT INTO signing_keys (id, public, sealed, created_at, retired_at) VALUES ('mine', $1, NULL, 1, 2)`, []byte(public)),
			chaintest.Do(`UPDATE chain_heads SET key_id = 'mine', jws = $1 WHERE chain = 'audit'`, jws)) {
			t.Error("the database refuses")
		}
	})
}

// The head is signed by the new key in the transaction of the rotation, and a forged one is not.
func TestARotationOfTheSigningKeySignsTheHeadsAnew(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		tr := newTrail(t, d)
		tr.fill()
		rotate := func() {
			t.Helper()
			if _, err := tr.keys.RotateSigning(t.Context(), tenant.Operator); err != nil {
				t.Fatal(err)
			}
		}
		before := tr.head()
		rotate()
		if after := tr.head(); after != before {
			t.Errorf("%+v became %+v", before, after)
		}
		chaintest.Unchanged(t, d, tr.find(before.Hash))
		tr.seal()
		chaintest.Unchanged(t, d, tr.find(before.Hash))
		if _, err := db.Exec(t.Context(), d.Across("test"), `UPDATE chain_heads SET jws = jws || 'x'`); err != nil {
			t.Fatal(err)
		}
		rotate()
		if err := tr.sealer.Seal(t.Context()); err == nil {
			t.Error("a forged head was extended")
		}
	})
}

// Rows from before the chain are its beginning. Rows that are written before the first seal come with their links.
func TestAChainBeginsWithTheRowsThatAreThere(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		tr := newTrail(t, d)
		for i := range 3 {
			tr.record("ws_1", fmt.Sprint("old.", i), nil, i)
		}
		if _, err := db.Exec(t.Context(), d.Across("test"), `DELETE FROM chain_links`); err != nil { // as an earlier release left it
			t.Fatal(err)
		}
		tr.record("ws_1", "new", nil, 1)
		chaintest.Unchanged(t, d, tr.find(""))
		tr.seal()
		if h := tr.head(); h.Seq != 4 || h.Since == 0 || h.Since > h.At {
			t.Errorf("%+v", h)
		}
		chaintest.Unchanged(t, d, tr.find(""))
		if !chaintest.Found(t, d, "an old entry was changed", tr.find(""), chaintest.Do(`UPDATE audit_entries SET at = 1 WHERE action = 'old.1'`)) ||
			!chaintest.Found(t, d, "an old entry was removed", tr.find(""), chaintest.Do(`DELETE FROM audit_entries WHERE action = 'old.0'`)) {
			t.Error("the database refuses")
		}
	})
}

// Many writers never wait for each other, and several sealers agree on one chain.
func TestConcurrentWritersAndSealersMakeOneChain(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		tr := newTrail(t, d)
		const writers, each, sealers = 6, 15, 3
		var writing, sealing sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		for range sealers {
			other := chain.NewSealer(d, tr.keys, slog.New(slog.DiscardHandler))
			sealing.Go(func() {
				for ctx.Err() == nil {
					if err := other.Seal(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for w := range writers {
			writing.Go(func() {
				for i := range each {
					tr.record(tenant.ID(fmt.Sprint("ws_", w)), "a", nil, i)
				}
			})
		}
		writing.Wait()
		stop()
		sealing.Wait()
		tr.seal()
		chaintest.Unchanged(t, d, tr.find(""))
		if h := tr.head(); h.Seq != writers*each {
			t.Errorf("%d of %d are sealed", h.Seq, writers*each)
		}
	})
}

// Two different rows never have one hash, whatever is in them; the order of columns does not matter.
func TestARowsHashTellsRowsApart(t *testing.T) {
	columns := []string{"a", "b", "ab", "c"}
	value := rapid.OneOf(
		rapid.Int64().AsAny(), rapid.StringN(0, 3, 8).AsAny(), rapid.Bool().AsAny(), rapid.SliceOfN(rapid.Byte(), 0, 3).AsAny(),
		rapid.Just[any](nil), rapid.Float64().AsAny(),
	)
	zero := func(v any) bool { return v == nil || v == int64(0) || v == "" || v == false || v == 0.0 }
	rapid.Check(t, func(t *rapid.T) {
		one, other := rapid.SliceOfN(value, 4, 4).Draw(t, "one"), rapid.SliceOfN(value, 4, 4).Draw(t, "other")
		same := true
		for i := range one {
			same = same && (zero(one[i]) && zero(other[i]) || fmt.Sprintf("%T %#v", one[i], one[i]) == fmt.Sprintf("%T %#v", other[i], other[i]))
		}
		hash := func(table string, columns []string, row []any) chain.Hash {
			h, err := chain.NewLayout(table, columns).Hash(row)
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		if got := hash("t", columns, one) == hash("t", columns, other); got != same {
			t.Fatalf("%#v and %#v have the same hash: %v", one, other, got)
		}
		if hash("t", columns, one) == hash("u", columns, one) {
			t.Fatal("two tables have the same hash")
		}
		turned := slices.Clone(one)
		slices.Reverse(turned)
		if hash("t", columns, one) != hash("t", []string{"c", "ab", "b", "a"}, turned) {
			t.Fatal("the order of columns matters")
		}
	})
}

// A chain has begun with its first seal, also when there was nothing to seal.
func TestAnEntryWithoutALinkIsFoundInAnEmptyChain(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		tr := newTrail(t, d)
		tr.seal()
		chaintest.Unchanged(t, d, tr.find(""))
		if !chaintest.Found(t, d, "an entry was added", tr.find(""), forgedEntry) {
			t.Error("the database refuses")
		}
	})
}

// A head that is not genuine stops its own chain alone: what is written to the other is sealed all the same.
func TestAChainThatCannotBeSealedKeepsNoOtherFromIt(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		tr := newTrail(t, d)
		tr.fill()
		if _, err := db.Exec(t.Context(), d.Across("test"), `UPDATE chain_heads SET jws = 'spoilt' WHERE chain = 'audit'`); err != nil {
			t.Fatal(err)
		}
		tr.record("ws_1", "a.later", nil, nil)
		if _, err := d.Tx(t.Context(), func(tx *db.Tx) error {
			return chain.Add(t.Context(), tx, chain.Ledger, chain.NewLink("txn_1"))
		}); err != nil {
			t.Fatal(err)
		}
		if err := tr.sealer.Seal(t.Context()); !errors.Is(err, chain.ErrHead) {
			t.Errorf("sealing says %v", err)
		}
		heads, err := tr.sealer.Heads(t.Context())
		if err != nil || len(heads) != 2 || heads[1].Chain != chain.Ledger || heads[1].Seq != 1 {
			t.Errorf("%+v %v", heads, err)
		}
	})
}
