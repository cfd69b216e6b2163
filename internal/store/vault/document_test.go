package vault_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"sovereign/internal/store/vault"
)

type fields = map[string]any

func certificate() fields {
	return fields{
		"id": "cert_1", "n": 120, "se": 0.9375, "se_ci": []float64{0.88, 0.97}, "matrix": fields{"tp": 90, "fn": 6},
		"trust": "calibrated", "voids": []string{"a label is corrected"}, "note": "naïve — ✓", "failed": nil,
	}
}

// A signer signs certificates as the product does.
type signer struct {
	id      string
	public  ed25519.PublicKey
	private ed25519.PrivateKey
}

func newSigner(t *testing.T, id string) signer {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return signer{id, public, private}
}

func (s signer) jwks(t *testing.T) []byte { return keySet(t, s.key(s.id)) }

func (s signer) key(id string) jose.JSONWebKey {
	return jose.JSONWebKey{Key: s.public, KeyID: id, Algorithm: "EdDSA", Use: "sig"}
}

func keySet(t *testing.T, keys ...jose.JSONWebKey) []byte {
	t.Helper()
	return marshal(t, jose.JSONWebKeySet{Keys: keys})
}

func (s signer) jws(t *testing.T, payload fields) string {
	t.Helper()
	return compact(t, jose.SigningKey{Algorithm: jose.EdDSA, Key: s.private}, s.id, payload)
}

func compact(t *testing.T, key jose.SigningKey, id string, payload fields) string {
	t.Helper()
	by, err := jose.NewSigner(key, new(jose.SignerOptions).WithHeader("kid", id))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := by.Sign(marshal(t, payload))
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// document returns a certificate that shows these fields and carries jws.
func document(t *testing.T, shown fields, keyID, jws string) []byte {
	t.Helper()
	all := maps.Clone(shown)
	all["signature"] = fields{"alg": "EdDSA", "key_id": keyID, "jws": jws}
	return marshal(t, all)
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func refused(t *testing.T, why string, document, jwks []byte) {
	t.Helper()
	if id, err := vault.VerifyDocument(document, jwks); !errors.Is(err, vault.ErrDocument) || id != "" {
		t.Errorf("%s: %q %v", why, id, err)
	}
}

func TestASignedDocumentVerifiesAndNamesItsKey(t *testing.T) {
	s := newSigner(t, "k1")
	good := document(t, certificate(), "k1", s.jws(t, certificate()))
	if id, err := vault.VerifyDocument(good, s.jwks(t)); err != nil || id != "k1" {
		t.Errorf("%q %v", id, err)
	}
	var indented fields
	if err := json.Unmarshal(good, &indented); err != nil {
		t.Fatal(err)
	}
	spaced, err := json.MarshalIndent(indented, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := vault.VerifyDocument(spaced, s.jwks(t)); err != nil {
		t.Errorf("with other spacing: %v", err)
	}
}

func TestVoidedMembersAreNotSigned(t *testing.T) {
	s := newSigner(t, "k1")
	shown := certificate()
	shown["voided"], shown["voided_at"], shown["voided_reason"] = true, "2026-03-01T00:00:00.000Z", "a label was corrected"
	if _, err := vault.VerifyDocument(document(t, shown, "k1", s.jws(t, certificate())), s.jwks(t)); !errors.Is(err, vault.ErrVoided) {
		t.Errorf("voided: %v", err)
	}
	shown["trust"] = "none"
	refused(t, "voided, and not what was signed", document(t, shown, "k1", s.jws(t, certificate())), s.jwks(t))
	shown = certificate()
	shown["voided"], shown["voided_at"], shown["voided_reason"] = false, nil, nil
	if _, err := vault.VerifyDocument(document(t, shown, "k1", s.jws(t, certificate())), s.jwks(t)); err != nil {
		t.Errorf("not voided: %v", err)
	}
}

func TestSerialAnyChangedByteOfTheSignedTextIsRefused(t *testing.T) {
	s := newSigner(t, "k1")
	jwks, parts := s.jwks(t), strings.Split(s.jws(t, certificate()), ".")
	for p, name := range []string{"header", "payload", "signature"} {
		raw, err := base64.RawURLEncoding.DecodeString(parts[p])
		if err != nil {
			t.Fatal(err)
		}
		for i := range raw {
			raw[i] ^= 1 << (i % 8)
			changed := []string{parts[0], parts[1], parts[2]}
			changed[p] = base64.RawURLEncoding.EncodeToString(raw)
			raw[i] ^= 1 << (i % 8)
			refused(t, name, document(t, certificate(), "k1", strings.Join(changed, ".")), jwks)
		}
	}
}

func TestAnyFieldThatShowsSomethingElseIsRefused(t *testing.T) {
	s := newSigner(t, "k1")
	jwks, jws := s.jwks(t), s.jws(t, certificate())
	for name := range certificate() {
		for _, value := range []any{"something else", 121, 0.93750000001, true, fields{}, []any{}} {
			shown := certificate()
			shown[name] = value
			refused(t, name+" changed", document(t, shown, "k1", jws), jwks)
		}
		shown := certificate()
		delete(shown, name)
		refused(t, name+" removed", document(t, shown, "k1", jws), jwks)
	}
	for _, name := range []string{"added", "Voided", "unvoided", "Signature", ""} {
		shown := certificate()
		shown[name] = true
		refused(t, name+" added", document(t, shown, "k1", jws), jwks)
	}
	shown := certificate()
	shown["matrix"] = fields{"tp": 90, "fn": 6, "tn": 1}
	refused(t, "added within", document(t, shown, "k1", jws), jwks)
}

func TestADuplicateMemberIsRefused(t *testing.T) {
	s := newSigner(t, "k1")
	good := string(document(t, certificate(), "k1", s.jws(t, certificate())))
	if id, err := vault.VerifyDocument([]byte(`{"trust":"none",`+good[1:]), s.jwks(t)); err == nil {
		t.Errorf("verifies by %q", id)
	}
}

func TestOnlyAKeyOfTheSetMayHaveSigned(t *testing.T) {
	s, stranger, namesake := newSigner(t, "k1"), newSigner(t, "k2"), newSigner(t, "k1")
	jwks := s.jwks(t)
	refused(t, "an unknown key", document(t, certificate(), "k2", stranger.jws(t, certificate())), jwks)
	refused(t, "another key under a known id", document(t, certificate(), "k1", namesake.jws(t, certificate())), jwks)
	refused(t, "a key that is not the one it names", document(t, certificate(), "k1", stranger.jws(t, certificate())), jwks)
	refused(t, "a name that is not the one it was signed with", document(t, certificate(), "k2", s.jws(t, certificate())), jwks)
	refused(t, "another name of the same key", document(t, certificate(), "k2", s.jws(t, certificate())), keySet(t, s.key("k1"), s.key("k2")))
	refused(t, "an empty set", document(t, certificate(), "k1", s.jws(t, certificate())), []byte(`{"keys":[]}`))
}

func TestNoOtherAlgorithmPasses(t *testing.T) {
	s := newSigner(t, "k1")
	jwks, payload := s.jwks(t), base64.RawURLEncoding.EncodeToString(marshal(t, certificate()))
	for _, alg := range []string{"none", "None", "NONE", ""} {
		header := base64.RawURLEncoding.EncodeToString(marshal(t, fields{"alg": alg, "kid": "k1"}))
		refused(t, "alg "+alg, document(t, certificate(), "k1", header+"."+payload+"."), jwks)
	}
	// The classic confusion: the public key, which everyone has, as the secret of an HMAC.
	secret := []byte(s.public)
	hs := document(t, certificate(), "k1", compact(t, jose.SigningKey{Algorithm: jose.HS256, Key: secret}, "k1", certificate()))
	refused(t, "HS256 by the public key", hs, jwks)
	refused(t, "HS256 by a secret that is in the set", hs, keySet(t, jose.JSONWebKey{Key: secret, KeyID: "k1"}))
}

func TestInvalidDocumentsAreRefused(t *testing.T) {
	s := newSigner(t, "k1")
	good := document(t, certificate(), "k1", s.jws(t, certificate()))
	for _, other := range []string{"", "null", "[]", "{}", `{"signature":null}`, `{"signature":{}}`, `{"signature":"x"}`, string(good[:len(good)-1]), string(good) + "{}"} {
		if id, err := vault.VerifyDocument([]byte(other), s.jwks(t)); err == nil {
			t.Errorf("%q verifies by %q", other, id)
		}
	}
	for _, jwks := range []string{"", "null", "[]", "{}", `{"keys":[{"kty":"OKP"}]}`} {
		if id, err := vault.VerifyDocument(good, []byte(jwks)); err == nil {
			t.Errorf("verifies by %q with the key set %q", id, jwks)
		}
	}
}

func TestANumberBeyondAFloatIsComparedExactly(t *testing.T) {
	s := newSigner(t, "k1")
	signed := certificate()
	signed["n"] = 9007199254740993
	shown := certificate()
	shown["n"] = 9007199254740992
	refused(t, "n changed", document(t, shown, "k1", s.jws(t, signed)), s.jwks(t))
}

func TestTheShownAlgorithmIsTheOneThatSigned(t *testing.T) {
	s := newSigner(t, "k1")
	good := string(document(t, certificate(), "k1", s.jws(t, certificate())))
	for _, bad := range []string{strings.Replace(good, `"alg":"EdDSA"`, `"alg":"RS256"`, 1), strings.Replace(good, `"alg":"EdDSA"`, `"alg":"EdDSA","by":"someone"`, 1)} {
		if bad == good {
			t.Fatal("nothing changed")
		}
		if _, err := vault.VerifyDocument([]byte(bad), s.jwks(t)); err == nil {
			t.Errorf("verifies: %s", bad[len(bad)-100:])
		}
	}
}

// Every single character of the compact JWS is changed in turn.
func TestSerialAnyChangedCharacterOfTheJWSIsRefused(t *testing.T) {
	s := newSigner(t, "k1")
	jwks, jws := s.jwks(t), s.jws(t, certificate())
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for i := range jws {
		others := alphabet + "=\n"
		if next := strings.IndexByte(alphabet, jws[i]); i < len(jws)-3 && next >= 0 { // at the end alone, some characters say the same bits
			others = alphabet[(next+1)%64:][:1] + alphabet[(next+32)%64:][:1] + "=\n"
		}
		for _, c := range others {
			if byte(c) == jws[i] {
				continue
			}
			changed := jws[:i] + string(c) + jws[i+1:]
			if _, err := vault.VerifyDocument(document(t, certificate(), "k1", changed), jwks); err == nil {
				t.Errorf("character %d of %d: %q", i, len(jws), changed[max(0, i-3):min(len(jws), i+4)])
			}
		}
	}
	if _, err := vault.VerifyDocument(document(t, certificate(), "k1", jws[:10]+"\n"+jws[10:]), jwks); err == nil {
		t.Error("a line break inside passes")
	}
}
