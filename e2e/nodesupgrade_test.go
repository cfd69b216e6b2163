package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"sovereign/internal/base/money"
)

// nextMigration is what a release may do that must run beside the one before: it adds, and removes nothing.
const nextMigration = `-- +goose Up
CREATE TABLE next_things (workspace_id TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (workspace_id, id));
ALTER TABLE aliases ADD COLUMN next TEXT NOT NULL DEFAULT '';
ALTER TABLE usage_rows ADD COLUMN next BIGINT NOT NULL DEFAULT 0;
CREATE INDEX next_of_keys ON api_keys (workspace_id, created_at);

-- +goose Down
SELECT 1;
`

// buildNext builds the release after this one: the same code with one migration more.
func buildNext(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	migration, program := filepath.Join(folder, "next.sql"), filepath.Join(folder, "next")
	writeFile(t, migration, nextMigration)
	into, err := filepath.Abs("../internal/store/db/migrations/99999_next.sql")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(object{"Replace": map[string]string{into: migration}})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(folder, "overlay.json"), string(overlay))
	cmd := build(program, "../cmd/sovereign")
	cmd.Args = append(cmd.Args[:2:2], append([]string{"-overlay", filepath.Join(folder, "overlay.json")}, cmd.Args[2:]...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// The servers of a release run beside those of the next one, which has migrated the database: three nodes behind nginx are
// upgraded one after the other, under load. No request fails, every node can change what it could before, and a change is
// in force everywhere. A server of the older release that is started again is refused.
func TestDrillManyNodesAreUpgradedToAReleaseWithANewMigration(t *testing.T) {
	if !measured() {
		t.Skip("only with SOVEREIGN_DRILLS=full: it compiles the server a second time")
	}
	t.Parallel()
	next := buildNext(t)
	f := startNodes(t, 3, drillModels(), "--trusted-proxies", "127.0.0.1/32")
	f.logsWhenFailed(t)
	before := f.schema(t)
	key, older := f.all[0].newWorkspace(t, "upgraded", 100*money.Dollar), f.all[2].program
	f.roll(t, key, 1, func(n *node) {
		n.stop(t)
		n.program = next
		n.restart(t)
		f.changeOnAll(t, key)
	})
	if after := f.schema(t); after != 99999 || before >= after {
		t.Errorf("schema %d became %d", before, after)
	}
	f.verifyLedgers(t)
	f.all[2].stop(t)
	f.all[2].program = older
	f.all[2].start(t)
	if code := f.all[2].server.ended(t); code == 0 || !strings.Contains(f.all[2].server.log.String(), "newer than this binary") {
		t.Errorf("a server of the older release ends with %d:\n%s", code, f.all[2].server.log)
	}
	f.all[2].program = next
	f.all[2].restart(t)
	f.stop(t)
	f.nothingSliced(t)
	f.uncomplaining(t)
}

func (f *nodes) schema(t *testing.T) int64 {
	t.Helper()
	return f.number(t, `SELECT MAX(version_id) FROM goose_db_version`)
}

// changeOnAll repoints an alias, makes a key and revokes it on every node, and sees it in force on all of them.
func (f *nodes) changeOnAll(t *testing.T, key string) {
	t.Helper()
	for i, one := range f.all {
		alias := fmt.Sprintf("alias-%d", i)
		for _, target := range []string{"mock/whole", "mock/stream"} {
			one.caller(key).call(t, http.MethodPut, "/v1/aliases", object{"name": alias, "target_model": target}, http.StatusOK, nil)
			for _, other := range f.all {
				a := other.caller(key).must(t, chat(alias, "which model?", `"max_tokens":20`))
				if served := a.header.Get("X-Service-Served-Model"); a.status != http.StatusOK || served != target {
					t.Errorf("%s points to %s by %s; %s answers %d by %q", alias, target, one.name, other.name, a.status, served)
				}
			}
		}
		var made struct {
			ID  string `json:"id"`
			Key string `json:"api_key"`
		}
		of := []string{"--workspace", "upgraded", "--email", "upgraded@example.test", "--json"}
		one.mustAdmin(t, &made, append([]string{"key", "create"}, of...)...)
		for _, step := range []int{http.StatusOK, http.StatusUnauthorized} {
			for _, other := range f.all {
				if got := status(t, "http://"+other.listen, made.Key); got != step {
					t.Errorf("a key made and revoked by %s: %s says %d, want %d", one.name, other.name, got, step)
				}
			}
			if step == http.StatusOK {
				one.mustAdmin(t, nil, "key", "revoke", "--workspace", "upgraded", "--id", made.ID, "--json")
			}
		}
	}
}

// verifyLedgers proves the ledger on every node, by its own release.
func (f *nodes) verifyLedgers(t *testing.T) {
	t.Helper()
	for _, one := range f.all {
		one.verifyLedger(t)
	}
}
