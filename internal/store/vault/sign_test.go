package vault

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// issued is a certificate, with numbers as a calibration yields them.
const issued = `{"id":"cert_0sg5dhf72w9r346x0q22170frw","criterion_id":"crit_0sg5dhf72zt69rzjfbf5en5tcc","criterion_version":3,"judge_model":"sim/chat",` +
	`"rubric_sha256":"794fb476ce78017eed704bc2fce359f158cc168dc0fbba615f883250cd40ff3a","n":120,"failed":1,"matrix":{"tp":69,"fp":2,"fn":3,"tn":46},` +
	`"se":0.9583333333333334,"se_ci":[0.8830199438012387,0.9913284862541107],"sp":0.30000000000000004,"sp_ci":[1e-7,null],"kappa":-0.25,` +
	`"trust":"measured","issued_at":"2026-03-01T00:00:00.000Z","voids":["a new version","naïve \"—\" ✓"],"holdout_active":true}`

// must signs document with the vault, and returns it with its signature.
func (f *fixture) must(ctx context.Context, t rapid.TB, document string) (whole []byte, s Signature) {
	t.Helper()
	s, err := f.vault.SignDocument(ctx, []byte(document))
	if err != nil {
		t.Fatal(err)
	}
	return assemble(t, document, s), s
}

func assemble(t rapid.TB, document string, s Signature) []byte {
	t.Helper()
	member, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	comma := ","
	if document == "{}" {
		comma = ""
	}
	return fmt.Appendf(nil, `%s%s"signature":%s}`, document[:len(document)-1], comma, member)
}

func (f *fixture) jwks(t rapid.TB) []byte {
	t.Helper()
	set, err := f.vault.JWKS(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func (f *fixture) keys(t rapid.TB) []SigningKey {
	t.Helper()
	keys, err := f.vault.SigningKeys(context.Background(), 1000, 0)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// oneInForce checks that the first of so many keys is in force and holds a private part, and no other does.
func (f *fixture) oneInForce(t *testing.T, keys int) {
	t.Helper()
	all := f.keys(t)
	if len(all) != keys {
		t.Fatalf("%d keys, want %d", len(all), keys)
	}
	for i, key := range all {
		if (key.RetiredAt == nil) != (i == 0) || key.Object != "signing_key" {
			t.Errorf("key %d of %d: %+v", i, keys, key)
		}
	}
	private, err := db.Query[string](t.Context(), f.db.Across("test"), `SELECT id FROM signing_keys WHERE sealed IS NOT NULL`)
	if err != nil || len(private) != 1 || private[0] != all[0].ID {
		t.Errorf("private parts: %v %v, want that of %s", private, err, all[0].ID)
	}
}

func verifies(t rapid.TB, whole, jwks []byte, by string) {
	t.Helper()
	if id, err := VerifyDocument(whole, jwks); err != nil || id != by {
		t.Errorf("by %q, want %q: %v in %s", id, by, err, whole)
	}
}

func TestAVaultHasASigningKeyFromItsFirstOpenOn(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.oneInForce(t, 1)
		before := f.jwks(t)
		if _, err := Open(t.Context(), f.db, f.load(t)); err != nil {
			t.Fatal(err)
		}
		f.oneInForce(t, 1)
		if after := f.jwks(t); !bytes.Equal(before, after) {
			t.Errorf("reopening changed the keys: %s %s", before, after)
		}
	})
}

// Any signed object verifies, and exactly its bytes were signed.
func TestASignedDocumentVerifies(t *testing.T) {
	scalar := rapid.OneOf(
		rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.Int64().AsAny(), rapid.Uint64().AsAny(), rapid.Float64().AsAny(), rapid.String().AsAny())
	value := rapid.OneOf(scalar, rapid.SliceOf(scalar).AsAny(), rapid.MapOf(rapid.String(), scalar).AsAny())
	each(t, func(t *testing.T, f *fixture) {
		jwks := f.jwks(t)
		rapid.Check(t, func(t *rapid.T) {
			members := rapid.MapOf(rapid.String().Filter(func(name string) bool { return !unsigned(name) }), value).Draw(t, "members")
			document, err := json.Marshal(members)
			if err != nil {
				t.Fatal(err)
			}
			whole, s := f.must(context.Background(), t, string(document))
			verifies(t, whole, jwks, s.KeyID)
			payload, err := base64.RawURLEncoding.DecodeString(strings.Split(s.JWS, ".")[1])
			if err != nil || !bytes.Equal(payload, document) {
				t.Fatalf("signed %q %v", payload, err)
			}
			voided := fmt.Appendf(nil, `%s,"voided":true,"voided_at":"2026-03-01T00:00:00.000Z"}`, whole[:len(whole)-1])
			if _, err := VerifyDocument(voided, jwks); !errors.Is(err, ErrVoided) {
				t.Fatalf("voided: %v", err)
			}
		})
	})
}

// Every bit of a certificate is changed in turn: of what it shows, and of the signature.
func TestSerialEveryChangedByteOfASignedDocumentIsRefused(t *testing.T) {
	d := dbtest.Open(t, t.TempDir(), secret.Text{})
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	f := build(t, d)
	jwks := f.jwks(t)
	whole, s := f.must(t.Context(), t, issued)
	verifies(t, whole, jwks, s.KeyID)
	changed := bytes.Clone(whole)
	check := func(at int, to byte) {
		changed[at] = to
		if id, err := VerifyDocument(changed, jwks); err == nil || errors.Is(err, ErrVoided) || id != "" {
			t.Errorf("byte %d, %q for %q, verifies by %q, %v", at, to, whole[at], id, err)
		}
		changed[at] = whole[at]
	}
	for i, was := range whole {
		for bit := range 8 {
			if i < len(issued) || bit == i%8 || bit == (i+3)%8 { // the signature is long, and tested by the character, too
				check(i, was^1<<bit)
			}
		}
		// A digit may become any other, also where there are more of them than a float tells apart.
		for digit := byte('0'); i < len(issued) && '0' <= was && was <= '9' && digit <= '9'; digit++ {
			if digit != was {
				check(i, digit)
			}
		}
	}
}

func TestADocumentWithUnsignedMembersIsNotSigned(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for _, document := range []string{
			"", "null", "[]", `"x"`, "1", "{", `{"a":1}{}`, `{"a":1,"a":2}`,
			`{"signature":{}}`, `{"a":1,"voided":false}`, `{"voided_at":null}`, `{"voided_reason":null}`, `{"voidedness":1}`, `{"\u0076oided":1}`,
		} {
			if s, err := f.vault.SignDocument(t.Context(), []byte(document)); err == nil || s != (Signature{}) {
				t.Errorf("%q was signed: %+v", document, s)
			}
		}
		for _, document := range []string{"{}", `{"voids":[]}`, `{"Signature":1}`, `{"a":{"signature":1,"voided":1}}`, " {\n\"a\" : 1.0}"} {
			whole, s := f.must(t.Context(), t, document)
			verifies(t, whole, f.jwks(t), s.KeyID)
		}
	})
}

func TestARetiredKeyVerifiesAndNeverSignsAgain(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		var documents [][]byte
		var ids []string
		for i := range 4 {
			whole, s := f.must(t.Context(), t, issued)
			documents, ids = append(documents, whole), append(ids, s.KeyID)
			done, err := f.vault.RotateSigning(t.Context(), tenant.Operator)
			if err != nil || done.From != s.KeyID || done.To == s.KeyID {
				t.Fatalf("%+v %v", done, err)
			}
			f.oneInForce(t, i+2)
			if f.keys(t)[0].ID != done.To {
				t.Errorf("in force is %s, not %s", f.keys(t)[0].ID, done.To)
			}
			entries, err := audit.List(t.Context(), f.db, tenant.Server, "signing_key.rotate", 1, 0)
			if err != nil || len(entries) != 1 || string(entries[0].Before) != `{"signing_key_id":"`+done.From+`"}` || string(entries[0].After) != `{"signing_key_id":"`+done.To+`"}` {
				t.Errorf("audited %v, %v", entries, err)
			}
		}
		for i, whole := range documents {
			verifies(t, whole, f.jwks(t), ids[i])
		}
		_, s := f.must(t.Context(), t, issued)
		for _, id := range ids {
			if s.KeyID == id {
				t.Errorf("a retired key signed: %s", id)
			}
		}
	})
}

func TestARotationThatCannotBeAuditedDoesNotHappen(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		_, before := f.must(t.Context(), t, issued)
		if _, err := db.Exec(t.Context(), f.db.Across("test"), `ALTER TABLE audit_entries RENAME TO elsewhere`); err != nil {
			t.Fatal(err)
		}
		if done, err := f.vault.RotateSigning(t.Context(), tenant.Operator); err == nil || done != (Rotated{}) {
			t.Errorf("rotated: %+v", done)
		}
		f.oneInForce(t, 1)
		if _, after := f.must(t.Context(), t, issued); after != before {
			t.Errorf("signed %+v, before %+v", after, before)
		}
	})
}

// The schema enforces what a bug in our code could break.
func TestTheDatabaseRefusesASecondKeyInForceAndARetiredOneThatCouldSign(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for _, text := range []string{
			`INSERT INTO signing_keys (id, public, sealed, created_at) SELECT 'second', public, sealed, created_at FROM signing_keys`,
			`INSERT INTO signing_keys (id, public, sealed, created_at, retired_at) SELECT 'second', public, sealed, created_at, 1 FROM signing_keys`,
			`INSERT INTO signing_keys (id, public, created_at) SELECT 'second', public, created_at FROM signing_keys`,
			`UPDATE signing_keys SET retired_at = 1`,
			`UPDATE signing_keys SET sealed = NULL`,
		} {
			if _, err := db.Exec(t.Context(), f.db.Across("test"), text); err == nil {
				t.Errorf("done: %s", text)
			}
		}
		f.oneInForce(t, 1)
	})
}

func TestAPrivateKeyOpensForItsOwnPublicKeyAlone(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		sealed, err := db.One[[]byte](t.Context(), f.db.Across("test"), `SELECT sealed FROM signing_keys`)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.vault.RotateSigning(t.Context(), tenant.Operator); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(t.Context(), f.db.Across("test"), `UPDATE signing_keys SET sealed = $1 WHERE retired_at IS NULL`, sealed); err != nil {
			t.Fatal(err)
		}
		if s, err := f.vault.Sign(t.Context(), []byte("x")); !errors.Is(err, ErrSealed) || s != (Signature{}) {
			t.Errorf("signed with a key from another row: %+v %v", s, err)
		}
	})
}

func TestANewRootKeyLeavesTheSigningKeyAsItIs(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		whole, before := f.must(t.Context(), t, issued)
		jwks := f.jwks(t)
		if _, err := f.vault.RotateRoot(t.Context(), tenant.Operator); err != nil {
			t.Fatal(err)
		}
		reopened, err := Open(t.Context(), f.db, f.load(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []*Vault{f.vault, reopened} {
			f.vault = v
			if _, after := f.must(t.Context(), t, issued); after != before { // Ed25519 signs the same text in the same way
				t.Errorf("signed %+v, before %+v", after, before)
			}
			verifies(t, whole, f.jwks(t), before.KeyID)
		}
		verifies(t, whole, jwks, before.KeyID)
	})
}

func TestATransactionSignsWithTheKeyThatItSees(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		_, before := f.must(t.Context(), t, issued)
		undo := errors.New("undo")
		if _, err := f.db.Tx(t.Context(), func(tx *db.Tx) error {
			ctx := tx.Bind(t.Context())
			done, err := f.vault.RotateSigning(ctx, tenant.Operator)
			if err != nil {
				t.Fatal(err)
			}
			if _, within := f.must(ctx, t, issued); within.KeyID != done.To {
				t.Errorf("signed by %s, and %s is in force", within.KeyID, done.To)
			}
			return undo
		}); !errors.Is(err, undo) {
			t.Fatal(err)
		}
		if _, after := f.must(t.Context(), t, issued); after != before {
			t.Errorf("signed %+v, before %+v", after, before)
		}
		f.oneInForce(t, 1)
	})
}

func TestDocumentsSignedDuringRotationsVerify(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		const rotations, signers = 8, 4
		var mu sync.Mutex
		var signed []Signature
		var group sync.WaitGroup
		for range 2 {
			group.Go(func() {
				for range rotations / 2 {
					if _, err := f.vault.RotateSigning(t.Context(), tenant.Operator); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for range signers {
			group.Go(func() {
				for range 20 {
					s, err := f.vault.SignDocument(t.Context(), []byte(issued))
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					signed = append(signed, s)
					mu.Unlock()
				}
			})
		}
		group.Wait()
		f.oneInForce(t, rotations+1)
		for _, s := range signed {
			verifies(t, assemble(t, issued, s), f.jwks(t), s.KeyID)
		}
	})
}

// Any verifier reads these members. There are no others: nothing private is in the set.
func TestTheKeySetHoldsPublicKeysUnderTheirThumbprints(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		if _, err := f.vault.RotateSigning(t.Context(), tenant.Operator); err != nil {
			t.Fatal(err)
		}
		var set struct{ Keys []map[string]string }
		strict := json.NewDecoder(bytes.NewReader(f.jwks(t)))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&set); err != nil || len(set.Keys) != 2 {
			t.Fatal(err, set)
		}
		for i, key := range set.Keys {
			x, err := base64.RawURLEncoding.DecodeString(key["x"])
			if err != nil || len(x) != 32 {
				t.Errorf("x is %q, %v", key["x"], err)
			}
			id, err := thumbprint(x)
			want := map[string]string{"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "x": key["x"], "kid": id}
			if err != nil || fmt.Sprint(key) != fmt.Sprint(want) || id != f.keys(t)[i].ID {
				t.Errorf("key %d is %v, want %v", i, key, want)
			}
		}
	})
}

// The key and the thumbprint of RFC 8037, appendix A.
func TestAThumbprintIsThePublishedOne(t *testing.T) {
	x, err := base64.RawURLEncoding.DecodeString("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")
	if err != nil {
		t.Fatal(err)
	}
	if id, err := thumbprint(x); err != nil || id != "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k" {
		t.Errorf("%s %v", id, err)
	}
}
