package vault_test

import (
	"strings"
	"testing"

	"sovereign/internal/vault"
)

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

// Any character of the compact text.
func TestAnyChangedCharacterOfTheJWSIsRefused(t *testing.T) {
	s := newSigner(t, "k1")
	jwks, jws := s.jwks(t), s.jws(t, certificate())
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for i := range jws {
		for _, c := range alphabet + "=\n" {
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
