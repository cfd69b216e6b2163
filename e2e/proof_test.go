package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sovereign/internal/base/secret"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// A row of the audit trail or the ledger that is changed or removed behind the server's back fails the commands that
// prove it, and those that read a backup of it, on either engine.
func TestChangedAndRemovedRowsFailTheProofsAndTheBackup(t *testing.T) {
	t.Parallel()
	dbtest.EachURL(t, func(t *testing.T, _ string, url secret.Text) {
		p := newInstance(t, url)
		server := p.serve(t)
		for range 3 {
			p.mustAdmin(t, nil, "wallet", "topup", "--workspace", "default", "--amount-usd", "1", "--memo", "paid")
		}
		heads, _, _ := p.admin(t, "audit", "heads", "--json")
		kept := filepath.Join(t.TempDir(), "heads.json")
		if err := os.WriteFile(kept, []byte(heads), 0o600); err != nil {
			t.Fatal(err)
		}
		p.mustAdmin(t, nil, "key", "create", "--workspace", "default", "--email", "owner@localhost")
		for _, command := range []string{"audit", "ledger"} {
			p.mustAdmin(t, nil, command, "verify")
			p.mustAdmin(t, nil, command, "verify", "--head", kept)
			stdout, stderr, code := p.admin(t, command, "verify", "--head", strings.Repeat("f", 64))
			if code != 1 || !strings.Contains(stderr, "the head that was kept") {
				t.Errorf("%s with another's head: exit %d: %s%s", command, code, stdout, stderr)
			}
		}
		server.stop(t)

		d := dbtest.Open(t, p.data, url)
		for _, c := range []struct{ command, attack, undo, says string }{
			{"audit", `UPDATE audit_entries SET action = 'key.list' WHERE action = 'key.create'`, `UPDATE audit_entries SET action = 'key.create' WHERE action = 'key.list'`, "was changed"},
			{"ledger", `UPDATE ledger_entries SET memo = 'x' WHERE memo = 'paid'`, `UPDATE ledger_entries SET memo = 'paid' WHERE memo = 'x'`, "was changed"},
			{"audit", `DELETE FROM audit_entries WHERE action = 'wallet.topup'`, "", "was removed"},
		} {
			p.prove(t, c.command, "")
			attack(t, d, c.attack)
			p.prove(t, c.command, c.says)
			if c.undo != "" {
				attack(t, d, c.undo)
			}
		}

		file := filepath.Join(t.TempDir(), "backup")
		p.mustAdmin(t, nil, "backup", file)
		stdout, stderr, code := p.admin(t, "check-backup", file)
		fails(t, stdout, stderr, code, "was removed")
		elsewhere := newInstance(t, secret.Text{})
		copyFile(t, p.root, elsewhere.root)
		stdout, stderr, code = elsewhere.admin(t, "restore", file)
		fails(t, stdout, stderr, code, "was removed")
		elsewhere.mustAdmin(t, nil, "restore", "--unverified", file)
		elsewhere.prove(t, "audit", "was removed")
	})
}

func attack(t *testing.T, d *db.DB, statement string) {
	t.Helper()
	if n, err := db.Exec(t.Context(), d.Across("test"), statement); err != nil || n == 0 {
		t.Fatalf("%s: %d rows, %v", statement, n, err)
	}
}

// prove runs a proof, which must find nothing but what says says.
func (p instance) prove(t *testing.T, command, says string) {
	t.Helper()
	stdout, stderr, code := p.admin(t, command, "verify")
	if says == "" && code != 0 || says != "" && (code != 1 || !strings.Contains(stderr, says)) {
		t.Errorf("%s verify, which should say %q: exit %d: %s%s", command, says, code, stdout, stderr)
	}
}

// A passphrase in place of the root key: it opens the file, and the root key opens what is in it.
func TestABackupWithAPassphrase(t *testing.T) {
	t.Parallel()
	p := newInstance(t, secret.Text{})
	p.serve(t).stop(t)
	folder := t.TempDir()
	passphrase, other, short := filepath.Join(folder, "passphrase"), filepath.Join(folder, "other"), filepath.Join(folder, "short")
	for name, text := range map[string]string{passphrase: "correct horse battery\n", other: "correct horse batterie\n", short: "horse\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(folder, "backup")
	stdout, stderr, code := p.admin(t, "backup", "--passphrase-file", short, file)
	fails(t, stdout, stderr, code, "less than 12 characters")
	p.mustAdmin(t, nil, "backup", "--passphrase-file", passphrase, file)
	elsewhere := newInstance(t, secret.Text{})
	copyFile(t, p.root, elsewhere.root)
	stdout, stderr, code = elsewhere.admin(t, "restore", file)
	fails(t, stdout, stderr, code, "it needs a passphrase")
	stdout, stderr, code = elsewhere.admin(t, "restore", "--passphrase-file", other, file)
	fails(t, stdout, stderr, code, "the passphrase is wrong")
	elsewhere.mustAdmin(t, nil, "restore", "--passphrase-file", passphrase, file)
	elsewhere.verifyTrail(t)
}
