package e2e

import (
	"encoding/json"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"sovereign/internal/base/secret"
)

// An admin command without a server takes the same lock, does the same work, and the next server finds it done.
func TestAdminWorksWithoutAServer(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
		if _, stderr, code := p.admin(t, "key", "list", "--workspace", "x"); p.url.Empty() && (code != 1 || !strings.Contains(stderr, "there is no data folder")) {
			t.Errorf("a mistyped folder must not become an installation: %d %s", code, stderr)
		}
		p.serve(t).stop(t)
		var made struct {
			WorkspaceID string `json:"workspace_id"`
			UserID      string `json:"user_id"`
			APIKey      string `json:"api_key"`
		}
		p.mustAdmin(t, &made, "bootstrap", "--workspace", "offline", "--email", "ann@x.test", "--balance-usd", "1.5", "--json")
		var minted struct {
			ID     string
			APIKey string `json:"api_key"`
		}
		p.mustAdmin(t, nil, "member", "add", "--workspace", "offline", "--email", "bob@x.test", "--role", "admin", "--json")
		p.mustAdmin(t, &minted, "key", "create", "--workspace", made.WorkspaceID, "--email", "bob@x.test", "--json")
		var balance struct {
			Balance json.Number `json:"balance_usd"`
			Held    json.Number `json:"held_usd"`
			Spent   json.Number `json:"spent_usd"`
		}
		p.mustAdmin(t, &balance, "wallet", "show", "--workspace", "offline", "--json")
		if balance.Balance != "1.5" || balance.Held != "0" || balance.Spent != "0" {
			t.Errorf("%+v", balance)
		}
		server := p.serve(t)
		for _, key := range []string{made.APIKey, minted.APIKey} {
			if got := status(t, server.address(), key); got != 200 {
				t.Errorf("a key minted without a server: %d", got)
			}
		}
		p.mustAdmin(t, nil, "key", "revoke", "--workspace", "offline", "--id", minted.ID, "--json")
		if got := status(t, server.address(), minted.APIKey); got != 401 {
			t.Errorf("after revoke: %d", got)
		}
		p.mustAdmin(t, nil, "member", "remove", "--workspace", "offline", "--email", "bob@x.test", "--json")
		me, err := user.Current()
		if err != nil {
			t.Fatal(err)
		}
		var trail struct {
			Data []struct {
				Action string
				Actor  struct {
					Kind   string
					UserID string `json:"user_id"`
				}
			}
		}
		p.mustAdmin(t, &trail, "audit", "--workspace", "offline", "--json")
		for _, entry := range trail.Data { // over the socket and without a server alike
			if entry.Actor.Kind != "operator" || entry.Actor.UserID != "unix:"+me.Username {
				t.Errorf("%s is said to be by %+v", entry.Action, entry.Actor)
			}
		}
		if len(trail.Data) < 6 {
			t.Errorf("%d entries", len(trail.Data))
		}
		stdout, stderr, code := p.admin(t, "bootstrap", "--workspace", "offline", "--email", "ann@x.test")
		fails(t, stdout, stderr, code, "exists already")
	})
}

// The journal holds money: a failed start or a refused restore never deletes it.
func TestAJournalWhoseDatabaseIsMissingIsKept(t *testing.T) {
	t.Parallel()
	p := newInstance(t, secret.Text{})
	s := p.serve(t)
	s.caller().must(t, chat("sim/chat", "charged", `"max_tokens":5`))
	p.mustAdmin(t, nil, "backup", filepath.Dir(p.data)+"/backup")
	spent := s.wallet(t, "default").Spent
	if a := s.caller().must(t, chat("sim/chat", "charged once more", `"max_tokens":5`)); a.status != 200 {
		t.Fatal(a.status)
	}
	s.kill()
	core := filepath.Join(p.data, "core.db")
	for _, end := range []string{"", "-wal", "-shm"} {
		_ = os.Rename(core+end, filepath.Dir(p.data)+"/aside"+end)
	}
	for _, args := range [][]string{{"serve", "--listen", "127.0.0.1:0", "--operations-listen", "off", "--bootstrap"}, {"admin", "restore", filepath.Dir(p.data) + "/backup"}, {"admin", "bootstrap", "--workspace", "x", "--email", "x@x.test"}} {
		all := append(append([]string{args[0]}, p.flags()...), args[1:]...)
		if _, stderr, code := run(t, all...); code != 1 || !strings.Contains(stderr, "money journal") {
			t.Errorf("%v: exit %d: %s", args, code, stderr)
		}
	}
	for _, end := range []string{"", "-wal", "-shm"} {
		_ = os.Rename(filepath.Dir(p.data)+"/aside"+end, core+end)
	}
	p.serve(t)
	if after := p.wallet(t, "default"); after.Spent <= spent || after.Held != 0 {
		t.Errorf("the second charge is lost: %+v", after)
	}
	p.verifyLedger(t)
}
