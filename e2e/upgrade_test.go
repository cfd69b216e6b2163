package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
	"sovereign/internal/store/db/dbtest"
)

// facts are what must hold for the kept data of an earlier schema.
type facts struct {
	Key, Revoked string
	Balance      json.Number `json:"balance_usd"`
	Requests     int

	Alias, Dataset, Provider string // empty where the schema is older than they are
	Examples                 int

	Encrypted  bool   // the backup is
	LedgerHead string `json:"ledger_head"` // that the release had signed; empty where the schema is older than chains

	Owner, Day string     // who signs in to the dashboard, and the day of all usage; empty where neither is checked
	Spent      money.Nano `json:"spent_usd"`
	Judge      *judgeFacts
}

// This binary opens the data of every earlier schema, on either engine, with its keys, money, usage, audit trail, and
// what its workspace made.
func TestDataOfEveryEarlierSchemaComesUp(t *testing.T) {
	t.Parallel()
	kept, err := filepath.Glob("testdata/schema-*")
	if err != nil || len(kept) == 0 {
		t.Fatal("no kept data", err)
	}
	for _, folder := range kept {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			dbtest.EachURL(t, func(t *testing.T, _ string, url secret.Text) {
				var facts facts
				text, err := os.ReadFile(folder + "/facts.json")
				if err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal(text, &facts); err != nil {
					t.Fatal(err)
				}
				p := newInstance(t, url)
				copyFile(t, folder+"/root.key", p.root)
				if facts.Encrypted {
					p.mustAdmin(t, nil, "restore", folder+"/backup")
				} else {
					stdout, stderr, code := p.admin(t, "restore", folder+"/backup")
					fails(t, stdout, stderr, code, "--plain accepts it")
					p.mustAdmin(t, nil, "restore", "--plain", folder+"/backup")
				}
				server := p.serve(t)
				p.verifyLedger(t)
				p.verifyTrail(t)
				if got := status(t, server.address(), facts.Key); got != 200 {
					t.Errorf("its key: %d", got)
				}
				if got := status(t, server.address(), facts.Revoked); got != 401 {
					t.Errorf("its revoked key: %d", got)
				}
				var wallet struct {
					Balance json.Number `json:"balance_usd"`
				}
				p.mustAdmin(t, &wallet, "wallet", "show", "--workspace", "kept", "--json")
				if wallet.Balance != facts.Balance {
					t.Errorf("its balance: %s, want %s", wallet.Balance, facts.Balance)
				}
				var usage struct{ Data []struct{} }
				p.mustAdmin(t, &usage, "usage", "--workspace", "kept", "--json")
				if len(usage.Data) != facts.Requests {
					t.Errorf("its usage: %d requests, want %d", len(usage.Data), facts.Requests)
				}
				for _, of := range [][]string{{"--workspace", "kept"}, nil} {
					var trail struct{ Data []struct{ Action string } }
					p.mustAdmin(t, &trail, append([]string{"audit", "--json"}, of...)...)
					if len(trail.Data) == 0 {
						t.Errorf("its trail of %v is empty", of)
					}
				}
				if facts.Owner != "" {
					facts.opened(t, p, server)
				}
				if facts.Judge != nil {
					facts.Judge.judged(t, server.callerWith(facts.Key), server.callerWith(facts.Judge.Colleague))
				}
				facts.made(t, p, server)
				p.verifyLedger(t) // with what was used since
				if facts.LedgerHead != "" {
					p.mustAdmin(t, nil, "ledger", "verify", "--head", facts.LedgerHead)
				}
			})
		})
	}
}

// made checks what the workspace had made: its alias answers, its dataset is complete, its provider key decrypts.
func (f facts) made(t *testing.T, p instance, server *process) {
	t.Helper()
	owner := server.callerWith(f.Key)
	if f.Alias != "" {
		if got := owner.must(t, chat(f.Alias, "Are you still there?")); got.status != 200 {
			t.Errorf("its alias %s: %d %s", f.Alias, got.status, got.body)
		}
	}
	if f.Dataset != "" {
		status, lines := owner.read(t, "/v1/datasets/"+f.Dataset+"/export")
		if n := bytes.Count(lines, []byte("\n")); status != 200 || n != f.Examples {
			t.Errorf("its dataset: %d, %d examples, want %d", status, n, f.Examples)
		}
	}
	if f.Provider != "" {
		var keys struct{ Data []struct{ Provider string } }
		p.mustAdmin(t, &keys, "provider-key", "list", "--workspace", "kept", "--json")
		if len(keys.Data) != 1 || keys.Data[0].Provider != f.Provider || strings.Contains(server.log.String(), "cannot be read") {
			t.Errorf("its key at %s: %v\n%s", f.Provider, keys, server.log)
		}
	}
}
