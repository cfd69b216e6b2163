package vault

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/chain"
	"sovereign/internal/store/db"
)

// A Signature is the member of a signed document that proves the others.
type Signature struct {
	Alg   string `json:"alg" enum:"EdDSA"`
	KeyID string `json:"key_id" doc:"The key that signed, by its kid in /.well-known/jwks.json"`
	JWS   string `json:"jws" doc:"A compact JWS, whose payload is the document without signature, without adopted_at and without what begins with voided"`
}

// A SigningKey describes a key that signs, or once did, without revealing it.
type SigningKey struct {
	ID        string      `json:"id" doc:"Its kid: the thumbprint of its public key (RFC 7638)"`
	Object    string      `json:"object" enum:"signing_key"`
	CreatedAt clock.Time  `json:"created_at"`
	RetiredAt *clock.Time `json:"retired_at" doc:"Since when it signs nothing more; null while it is in force"`
}

// signingScope is why signing keys are read across workspaces.
const signingScope = "one key signs for all workspaces"

// Sign makes a compact JWS over payload with the key in force. With a ctx that is bound to a transaction, it uses the
// key that the transaction sees.
func (v *Vault) Sign(ctx context.Context, payload []byte) (Signature, error) {
	return v.signIn(ctx, v.db.Across(signingScope), payload)
}

func (v *Vault) signIn(ctx context.Context, s db.Scoped, payload []byte) (Signature, error) {
	id, key, err := v.signingKey(ctx, s)
	if err != nil {
		return Signature{}, err
	}
	compact, err := sign(key, id, payload)
	if err != nil {
		return Signature{}, fmt.Errorf("sign with key %s: %w", id, err)
	}
	return Signature{Alg: string(jose.EdDSA), KeyID: id, JWS: compact}, nil
}

// signingKey opens the key in force. Only the root key makes a key that opens, so a row that was put into the
// database by others is never used.
func (v *Vault) signingKey(ctx context.Context, s db.Scoped) (id string, key ed25519.PrivateKey, err error) {
	row, err := db.One[struct {
		ID     string
		Sealed []byte
	}](ctx, s, `SELECT id, sealed FROM signing_keys WHERE retired_at IS NULL`)
	if err != nil {
		return "", nil, fmt.Errorf("read the signing key: %w", err)
	}
	seed, err := v.Unseal(row.Sealed, signingPurpose(row.ID))
	if err != nil {
		return "", nil, fmt.Errorf("open signing key %s: %w", row.ID, err)
	}
	return row.ID, ed25519.NewKeyFromSeed(seed), nil
}

// SignHead signs the head of a chain with the key in force, as s has it.
func (v *Vault) SignHead(ctx context.Context, s db.Scoped, document []byte) (keyID, jws string, err error) {
	signature, err := v.signIn(ctx, s, document)
	return signature.KeyID, signature.JWS, err
}

// VerifyHead returns chain.ErrHead unless jws is a signature over document by the key in force, as s has it, and keyID
// its id. It does not use the stored public keys: they are not sealed, and an attacker could add one.
func (v *Vault) VerifyHead(ctx context.Context, s db.Scoped, document []byte, keyID, jws string) error {
	id, key, err := v.signingKey(ctx, s)
	if err != nil {
		return err
	}
	if keyID != id {
		return fmt.Errorf("%w: it names key %q, and %q is in force", chain.ErrHead, keyID, id)
	}
	payload, err := verified(jws, id, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: id}}})
	if err != nil {
		return fmt.Errorf("%w: it %w", chain.ErrHead, err)
	}
	if !bytes.Equal(payload, document) {
		return fmt.Errorf("%w: it shows something else than was signed", chain.ErrHead)
	}
	return nil
}

func sign(key ed25519.PrivateKey, id string, payload []byte) (string, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: key},
		new(jose.SignerOptions).WithHeader("kid", id))
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

// SignDocument signs a JSON object, byte for byte. VerifyDocument accepts that object with the signature as its
// member of that name, with any members whose name begins with voided, and with adopted_at. The object must have none
// of them yet.
func (v *Vault) SignDocument(ctx context.Context, document []byte) (Signature, error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(document, &members); err != nil {
		return Signature{}, fmt.Errorf("the document is not a JSON object: %w", err)
	}
	if members == nil {
		return Signature{}, errors.New("the document is null")
	}
	for name := range members {
		if unsigned(name) {
			return Signature{}, fmt.Errorf("the document has a member %q, which would not be signed", name)
		}
	}
	return v.Sign(ctx, document)
}

// unsigned reports whether a member of a document is not covered by its signature.
func unsigned(name string) bool {
	return name == "signature" || name == "adopted_at" || strings.HasPrefix(name, "voided")
}

// JWKS returns the set of public keys (RFC 7517), the one in force first. Retired keys stay in it for ever: what they
// signed still verifies.
func (v *Vault) JWKS(ctx context.Context) ([]byte, error) {
	keys, err := db.Query[struct {
		ID     string
		Public []byte
	}](ctx, v.db.Across(signingScope), `SELECT id, public FROM signing_keys`+newestFirst)
	if err != nil {
		return nil, fmt.Errorf("read the signing keys: %w", err)
	}
	set := jose.JSONWebKeySet{Keys: make([]jose.JSONWebKey, len(keys))}
	for i, key := range keys {
		set.Keys[i] = jose.JSONWebKey{
			Key: ed25519.PublicKey(key.Public), KeyID: key.ID, Algorithm: string(jose.EdDSA), Use: "sig",
		}
	}
	return json.Marshal(set)
}

// newestFirst orders signing keys: the one in force comes first, whatever the clock said.
const newestFirst = ` ORDER BY (CASE WHEN retired_at IS NULL THEN 0 ELSE 1 END), created_at DESC, id`

// SigningKeys lists the keys that sign or signed, the one in force first.
func (v *Vault) SigningKeys(ctx context.Context, limit, offset int) ([]SigningKey, error) {
	keys, err := db.Query[SigningKey](ctx, v.db.Across(signingScope), `
		SELECT id, 'signing_key' AS object, created_at, retired_at FROM signing_keys`+newestFirst+` LIMIT $1 OFFSET $2`,
		limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list signing keys: %w", err)
	}
	return keys, nil
}

// A Rotated says which signing key replaced which.
type Rotated struct {
	From string `json:"from" doc:"The key that is retired: it verifies, and never signs again"`
	To   string `json:"to" doc:"The key in force"`
}

// RotateSigning puts a new signing key in force and erases the private part of the previous one, in one transaction.
// The heads that the previous key has signed are signed by the new one.
func (v *Vault) RotateSigning(ctx context.Context, by tenant.Actor) (Rotated, error) {
	var done Rotated
	_, err := v.db.Tx(ctx, func(tx *db.Tx) (err error) {
		across := tx.Across(signingScope)
		heads, err := chain.Genuine(ctx, across, v)
		if err != nil {
			return fmt.Errorf("verify the heads of the chains: %w", err)
		}
		if done.From, err = db.One[string](ctx, across, `
			UPDATE signing_keys SET retired_at = $1, sealed = NULL WHERE retired_at IS NULL RETURNING id`,
			clock.Now()); err != nil {
			return fmt.Errorf("retire a signing key: %w", err)
		}
		if done.To, err = v.newSigningKey(ctx, across); err != nil {
			return err
		}
		if err := chain.Resign(ctx, across, v, heads); err != nil {
			return fmt.Errorf("sign the heads of the chains: %w", err)
		}
		return audit.Record(ctx, tx, tenant.Server, by, "signing_key.rotate", "signing_key", signedBy{done.From},
			signedBy{done.To})
	})
	if err != nil {
		return Rotated{}, fmt.Errorf("rotate the signing key: %w", err)
	}
	return done, nil
}

// signedBy is a signing key as the audit log shows it.
type signedBy struct {
	SigningKeyID string `json:"signing_key_id"`
}

// firstSigningKey creates a key when none is in force.
func (v *Vault) firstSigningKey(ctx context.Context, across db.Scoped) error {
	there, err := db.One[int](ctx, across, `SELECT COUNT(*) FROM signing_keys WHERE retired_at IS NULL`)
	if err != nil {
		return fmt.Errorf("read the signing keys: %w", err)
	}
	if there > 0 {
		return nil
	}
	_, err = v.newSigningKey(ctx, across)
	return err
}

// newSigningKey creates a key and puts it in force.
func (v *Vault) newSigningKey(ctx context.Context, across db.Scoped) (id string, err error) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return "", fmt.Errorf("make a signing key: %w", err)
	}
	if id, err = thumbprint(public); err != nil {
		return "", fmt.Errorf("name a signing key: %w", err)
	}
	sealed, err := v.Seal(private.Seed(), signingPurpose(id))
	if err != nil {
		return "", fmt.Errorf("seal a signing key: %w", err)
	}
	if _, err := db.Exec(ctx, across, `INSERT INTO signing_keys (id, public, sealed, created_at) VALUES ($1, $2, $3, $4)`,
		id, []byte(public), sealed, clock.Now()); err != nil {
		return "", fmt.Errorf("keep a signing key: %w", err)
	}
	return id, nil
}

// signingPurpose is the purpose that a private key is sealed for. It names the key, so that the seed does not open
// for another.
func signingPurpose(id string) string { return "signing key " + id }

// thumbprint names a public key by what it is (RFC 7638).
func thumbprint(key ed25519.PublicKey) (string, error) {
	sum, err := (&jose.JSONWebKey{Key: key}).Thumbprint(crypto.SHA256)
	return base64.RawURLEncoding.EncodeToString(sum), err
}
