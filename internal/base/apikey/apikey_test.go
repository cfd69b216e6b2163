package apikey_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"hash/crc32"
	"math/big"
	"strings"
	"testing"

	"sovereign/internal/base/apikey"
)

const (
	alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	length   = 60
	sumLen   = 7
)

func TestKeyHasItsShapeAndParsesToItsDigest(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		key, digest, hint := apikey.New()
		text := key.Reveal()
		body, ok := strings.CutPrefix(text, "sk_sovereign_")
		if !ok || len(text) != length || strings.Trim(body, alphabet) != "" {
			t.Fatalf("key %q", text)
		}
		if got, ok := apikey.Parse(text); !ok || got != digest || digest != sha256.Sum256([]byte(text)) {
			t.Fatalf("%q: parsed %v to %x, made with %x", text, ok, got, digest)
		}
		if len(hint) != 4 || !strings.HasSuffix(body[:len(body)-sumLen], hint) {
			t.Fatalf("%q: hint %q", text, hint)
		}
		if seen[text] {
			t.Fatalf("%q was made twice", text)
		}
		seen[text] = true
	}
}

// The dimension of the space that keys span, without the hint, is the number of independent random bits in them: a
// constant, a copied or a derived bit would lower it.
func TestAKeyHas180BitsThatTheHintDoesNotReveal(t *testing.T) {
	var basis []*big.Int
	for range 400 {
		key, _, hint := apikey.New()
		body := strings.TrimPrefix(key.Reveal(), apikey.Prefix)
		vector := new(big.Int)
		for _, c := range body[:len(body)-sumLen-len(hint)] {
			vector.Or(vector.Lsh(vector, 5), big.NewInt(int64(strings.IndexRune(alphabet, c))))
		}
		for _, b := range basis {
			if vector.Bit(b.BitLen()-1) == 1 {
				vector.Xor(vector, b)
			}
		}
		if vector.Sign() != 0 {
			basis = append(basis, vector)
		}
	}
	if len(basis) != 180 {
		t.Errorf("%d independent bits", len(basis))
	}
}

func TestAnyChangedCharacterOrSwappedNeighboursAreRefused(t *testing.T) {
	for range 30 {
		key, _, _ := apikey.New()
		good := []byte(key.Reveal())
		for i := range good {
			for c := range 256 {
				changed := bytes.Clone(good)
				changed[i] = byte(c)
				if _, ok := apikey.Parse(string(changed)); ok && byte(c) != good[i] {
					t.Fatalf("%s became %s and is accepted", good, changed)
				}
			}
			if i > 0 && good[i] != good[i-1] {
				swapped := bytes.Clone(good)
				swapped[i], swapped[i-1] = good[i-1], good[i]
				if _, ok := apikey.Parse(string(swapped)); ok {
					t.Fatalf("%s became %s and is accepted", good, swapped)
				}
			}
		}
	}
}

func TestATruncatedOrExtendedKeyIsRefused(t *testing.T) {
	secret, _, _ := apikey.New()
	key := secret.Reveal()
	for i := range key {
		if _, ok := apikey.Parse(key[:i]); ok {
			t.Errorf("accepts the first %d characters", i)
		}
	}
	for _, other := range []string{key + "0", " " + key, key + " ", key + "\n", "Bearer " + key, strings.ToUpper(key), key + key} {
		if _, ok := apikey.Parse(other); ok {
			t.Errorf("accepts %q", other)
		}
	}
}

func TestAnotherPrefixIsRefusedDespiteAValidChecksum(t *testing.T) {
	key, _, _ := apikey.New()
	body := strings.TrimPrefix(key.Reveal(), apikey.Prefix)
	for _, prefix := range []string{"sk_sovereign-", "sk_SOVEREIGN_", "xx_sovereign_", "sk_sovereigns"} {
		other := prefix + body[:len(body)-sumLen]
		if _, ok := apikey.Parse(other + checksum(other)); ok {
			t.Errorf("accepts %s", other)
		}
	}
	if own := apikey.Prefix + body[:len(body)-sumLen]; own+checksum(own) != key.Reveal() {
		t.Errorf("the sum of %s is not %s", key.Reveal(), checksum(own))
	}
}

// checksum is CRC-32 in Crockford's base 32, worked out here by other means.
func checksum(text string) string {
	bits := uint64(crc32.ChecksumIEEE([]byte(text))) << 3
	var sum [sumLen]byte
	for i := range sum {
		sum[i] = alphabet[bits>>(5*(sumLen-1-i))&31]
	}
	return string(sum[:])
}

func TestTheStoredDigestIsNotAcceptedAsAKey(t *testing.T) {
	_, digest, _ := apikey.New()
	for _, form := range []string{
		string(digest[:]),
		hex.EncodeToString(digest[:]),
		base64.StdEncoding.EncodeToString(digest[:]),
		base64.RawURLEncoding.EncodeToString(digest[:]),
		base32.NewEncoding(alphabet).WithPadding(base32.NoPadding).EncodeToString(digest[:]),
	} {
		fitted := (apikey.Prefix + form)[:min(length, len(apikey.Prefix)+len(form))]
		for _, key := range []string{form, apikey.Prefix + form, fitted} {
			if _, ok := apikey.Parse(key); ok {
				t.Errorf("accepts %q", key)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	key, _, _ := apikey.New()
	good := key.Reveal()
	for _, seed := range []string{good, "", apikey.Prefix, good[:length-1], good + "0", strings.Repeat("\x00", length), apikey.Prefix + strings.Repeat("0", length-len(apikey.Prefix))} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		digest, ok := apikey.Parse(text)
		if !ok {
			if digest != (apikey.Digest{}) {
				t.Fatalf("%q is refused with the digest %x", text, digest)
			}
			return
		}
		if len(text) != length || !strings.HasPrefix(text, apikey.Prefix) || text[length-sumLen:] != checksum(text[:length-sumLen]) || digest != sha256.Sum256([]byte(text)) {
			t.Fatalf("%q is accepted as %x", text, digest)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	secret, _, _ := apikey.New()
	good := secret.Reveal()
	for name, key := range map[string]string{"good": good, "mistyped": good[:length-1] + "~", "foreign": "sk-" + good} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				apikey.Parse(key)
			}
		})
	}
}

// A token of a reward session is in the path of a URL: it must never open what a key opens.
func TestATokenOfARewardSessionIsNoKey(t *testing.T) {
	token, digest := apikey.NewReward()
	text := token.Reveal()
	if body, ok := strings.CutPrefix(text, "rt_sovereign_"); !ok || len(text) != length || strings.Trim(body, alphabet) != "" {
		t.Fatalf("token %q", text)
	}
	if got, ok := apikey.ParseReward(text); !ok || got != digest || digest != sha256.Sum256([]byte(text)) {
		t.Errorf("%q: parsed %v to %x, made with %x", text, ok, got, digest)
	}
	key, _, _ := apikey.New()
	asKey := apikey.Prefix + strings.TrimPrefix(text, apikey.RewardPrefix)
	asToken := apikey.RewardPrefix + strings.TrimPrefix(key.Reveal(), apikey.Prefix)
	for _, refused := range []string{text, asKey} {
		if _, ok := apikey.Parse(refused); ok {
			t.Errorf("%q is a key", refused)
		}
	}
	for _, refused := range []string{key.Reveal(), asToken, text[:len(text)-1], text + "0", ""} {
		if _, ok := apikey.ParseReward(refused); ok {
			t.Errorf("%q is a token", refused)
		}
	}
}
