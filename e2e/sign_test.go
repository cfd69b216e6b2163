package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/secret"
	"sovereign/internal/store/db"
	"sovereign/internal/store/vault"
)

// calibrated is what a certificate shows of a calibration.
const calibrated = `{"id":"cert_1","criterion_id":"crit_1","criterion_version":3,"judge_model":"sim/chat","n":120,"failed":1,` +
	`"matrix":{"tp":69,"fp":2,"fn":3,"tn":46},"se":0.9583333333333334,"se_ci":[0.8830199438012387,0.9913284862541107],"sp":0.30000000000000004,` +
	`"sp_ci":[1e-7,null],"trust":"measured","issued_at":"2026-03-01T00:00:00.000Z","voids":["a new version","naïve \"—\" ✓"]}`

// sign makes a certificate with the key in the instance's database, as the server does.
func (p instance) sign(t *testing.T) (certificate string, by vault.Signature) {
	t.Helper()
	d, err := db.Open(t.Context(), p.data, p.url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	root, err := vault.LoadRoot(p.root)
	if err != nil {
		t.Fatal(err)
	}
	v, err := vault.Open(t.Context(), d, root)
	if err != nil {
		t.Fatal(err)
	}
	if by, err = v.SignDocument(t.Context(), []byte(calibrated)); err != nil {
		t.Fatal(err)
	}
	return signedBy(t, calibrated, by), by
}

// signedBy is a certificate that shows some members and carries a signature.
func signedBy(t *testing.T, shown string, by vault.Signature) string {
	t.Helper()
	member, err := json.Marshal(by)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`%s,"signature":%s}`, shown[:len(shown)-1], member)
}

// independent verifies a certificate with a JOSE library that shares no code with the server; jwks is a file or a URL.
func independent(t *testing.T, certificate, jwks string) (says string, err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "certificate.json")
	writeFile(t, path, certificate)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "verify.mjs", path, jwks)
	cmd.Dir = nodeFolder(t, "verify.mjs")
	out, err := cmd.CombinedOutput()
	return string(bytes.TrimSpace(out)), err
}

// verified asks sovereign verify and the independent library about a certificate; they must agree.
func verified(t *testing.T, why, certificate string, server *process) bool {
	t.Helper()
	const path = "/.well-known/jwks.json"
	says, err := independent(t, certificate, server.address()+path)
	_, jwks := server.callerWith("").read(t, path)
	folder := t.TempDir()
	writeFile(t, folder+"/certificate.json", certificate)
	writeFile(t, folder+"/jwks.json", string(jwks))
	stdout, stderr, code := run(t, "verify", folder+"/certificate.json", "--jwks", folder+"/jwks.json")
	if (err == nil) != (code == 0) || (err == nil) != strings.HasPrefix(says, "OK ") {
		t.Errorf("%s: the library says %q (%v), sovereign verify %d %s%s", why, says, err, code, stdout, stderr)
	}
	return err == nil && code == 0
}

type signingKey struct {
	ID        string
	RetiredAt *time.Time `json:"retired_at"`
}

// signingKeys lists the keys, and fails the test unless the first alone is in force.
func (p instance) signingKeys(t *testing.T) (ids []string) {
	t.Helper()
	var all struct{ Data []signingKey }
	p.mustAdmin(t, &all, "signing-key", "list", "--limit", "1000", "--json")
	for i, key := range all.Data {
		if (key.RetiredAt == nil) != (i == 0) {
			t.Errorf("key %d of %+v", i, all.Data)
		}
		ids = append(ids, key.ID)
	}
	if len(ids) == 0 {
		t.Fatal("no signing key")
	}
	return ids
}

func TestACertificateVerifiesWithAnIndependentLibraryUnlessAByteIsChanged(t *testing.T) {
	t.Parallel()
	p := newInstance(t, secret.Text{})
	server := p.serve(t)
	certificate, by := p.sign(t)
	if !verified(t, "as it was issued", certificate, server) {
		t.Fatal("it does not verify")
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, []byte(certificate), "", "  "); err != nil {
		t.Fatal(err)
	}
	if !verified(t, "with other spacing", indented.String(), server) {
		t.Error("it does not verify with other spacing")
	}
	voided := strings.TrimSuffix(certificate, "}") + `,"voided":true,"voided_at":"2026-03-02T00:00:00.000Z"}`
	if says, err := independent(t, voided, server.address()+"/.well-known/jwks.json"); err != nil || says != "OK "+by.KeyID+", voided" {
		t.Errorf("voided: %s %v", says, err)
	}

	shown := func(old, with string) string { return strings.Replace(certificate, old, with, 1) }
	parts := strings.Split(by.JWS, ".")
	jws := func(header, payload, signature string) string {
		return signedBy(t, calibrated, vault.Signature{Alg: by.Alg, KeyID: by.KeyID, JWS: header + "." + payload + "." + signature})
	}
	// byteOf changes one byte of the decoded part.
	byteOf := func(part string) string {
		raw, err := base64.RawURLEncoding.DecodeString(part)
		if err != nil {
			t.Fatal(err)
		}
		raw[len(raw)/2] ^= 1
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	stranger := newInstance(t, secret.Text{})
	stranger.serve(t).stop(t)
	theirs, their := stranger.sign(t)
	for why, changed := range map[string]string{
		"a member":                     shown(`"n":120`, `"n":121`),
		"a name":                       shown(`"failed"`, `"faileD"`),
		"a digit beyond a float":       shown("0.30000000000000004", "0.30000000000000005"),
		"a letter of a text":           shown("a new version", "a new Version"),
		"null":                         shown(`1e-7,null`, `1e-7,0`),
		"the header":                   jws(byteOf(parts[0]), parts[1], parts[2]),
		"the payload":                  jws(parts[0], byteOf(parts[1]), parts[2]),
		"the signature":                jws(parts[0], parts[1], byteOf(parts[2])),
		"the signature's spelling":     jws(parts[0], parts[1], parts[2][:len(parts[2])-1]+string(parts[2][len(parts[2])-1]+1)), // base64 ignores some bits of the last character
		"the key's name":               shown(`"key_id":"`+by.KeyID[:1], `"key_id":"`+string(by.KeyID[0]^1)),
		"the algorithm's name":         shown(`"alg":"EdDSA"`, `"alg":"EdDSB"`),
		"a key that is not in the set": theirs,
		"a stranger's signature under a known name": signedBy(t, calibrated, vault.Signature{Alg: by.Alg, KeyID: by.KeyID, JWS: their.JWS}),
	} {
		if changed == certificate {
			t.Errorf("%s: nothing was changed", why)
		}
		if verified(t, why, changed, server) {
			t.Errorf("%s was changed, and it verifies", why)
		}
	}
}

func TestWhatARetiredKeySignedVerifiesAlsoAfterARestore(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
		server := p.serve(t)
		certificate, by := p.sign(t)
		var done struct{ From, To string }
		p.mustAdmin(t, &done, "signing-key", "rotate", "--json")
		if done.From != by.KeyID || !slices.Equal(p.signingKeys(t), []string{done.To, done.From}) {
			t.Errorf("%+v, and %s had signed", done, by.KeyID)
		}
		p.mustAdmin(t, nil, "rotate-root-key")
		newer, now := p.sign(t)
		if now.KeyID != done.To {
			t.Errorf("signed by %s, and %s is in force", now.KeyID, done.To)
		}
		elsewhere := newInstance(t, secret.Text{})
		copyFile(t, p.root, elsewhere.root)
		p.mustAdmin(t, nil, "backup", elsewhere.root+".backup")
		elsewhere.mustAdmin(t, nil, "restore", elsewhere.root+".backup")
		restored := elsewhere.serve(t)
		for _, at := range []*process{server, restored} {
			for why, one := range map[string]string{"by the retired key": certificate, "by the key in force": newer} {
				if !verified(t, why, one, at) {
					t.Errorf("%s: it does not verify", why)
				}
			}
		}
		if _, again := elsewhere.sign(t); again != now {
			t.Errorf("the restored key signs %+v, not %+v", again, now)
		}
		server.stop(t)
		if ids := p.signingKeys(t); len(ids) != 2 {
			t.Errorf("without a server: %v", ids)
		}
	})
}

// The signing key is rotated, and the server is killed at a random moment of it: one key is in force, and no key is
// lost.
func TestDrillKillDuringSigningKeyRotation(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
		server := p.serve(t)
		known := p.signingKeys(t)
		for range drills(8, 120) {
			client := p.socket()
			done := make(chan struct{})
			go func() { defer close(done); _, _, _ = post(client, "/admin/signing-keys/rotation", "") }()
			time.Sleep(rand.N(6 * time.Millisecond))
			server.kill()
			<-done
			server = p.serve(t)
			now := p.signingKeys(t)
			if n := len(now) - len(known); n < 0 || n > 1 || !slices.Equal(now[n:], known) {
				t.Fatalf("%v became %v", known, now)
			}
			known = now
			if _, by := p.sign(t); by.KeyID != known[0] {
				t.Fatalf("signed by %s, and %s is in force", by.KeyID, known[0])
			}
		}
		t.Logf("%d keys", len(known))
	})
}
