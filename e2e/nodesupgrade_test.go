package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sovereign/internal/base/money"
)

// nextMigration is what a release may do that must run beside the one before: it adds, and removes nothing. nextSchema
// is its number.
const nextMigration = `-- +goose Up
CREATE TABLE next_things (workspace_id TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (workspace_id, id));
ALTER TABLE aliases ADD COLUMN next TEXT NOT NULL DEFAULT '';
ALTER TABLE usage_rows ADD COLUMN next BIGINT NOT NULL DEFAULT 0;
CREATE INDEX next_of_keys ON api_keys (workspace_id, created_at);

-- +goose Down
SELECT 1;
`

const nextSchema = 99999

// buildNext builds the release after this one: the same code with one migration more.
func buildNext(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	migration, program := filepath.Join(folder, "next.sql"), filepath.Join(folder, "next")
	writeFile(t, migration, nextMigration)
	into, err := filepath.Abs(fmt.Sprintf("../internal/store/db/migrations/%d_next.sql", nextSchema))
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

// The servers of a release run beside those of the next one, which has migrated the database: three nodes behind nginx
// are upgraded one after the other, under load. No request fails, every node can change what it could before, and a
// change is in force everywhere. A server of the older release that is started again is refused.
//
// A full drill compiles the next release. Otherwise the database is migrated, and the nodes go on as they are.
func TestDrillManyNodesAreUpgradedToAReleaseWithANewMigration(t *testing.T) {
	t.Parallel()
	f := startNodes(t, 3, drillModels(), "--trusted-proxies", "127.0.0.1/32")
	f.logsWhenFailed(t)
	key, last := f.all[0].newWorkspace(t, "upgraded", 100*money.Dollar), f.all[2]
	older, next := last.program, ""
	if measured() {
		next = buildNext(t)
	}
	f.roll(t, key, 1, func(n *node) {
		switch {
		case next != "":
			n.stop(t)
			n.program = next
			n.restart(t)
		case n == f.all[0]:
			f.migrate(t)
		default:
			return
		}
		f.changeOnAll(t, key)
	})
	if after := f.number(t, `SELECT MAX(version_id) FROM goose_db_version`); after != nextSchema {
		t.Errorf("the schema is %d", after)
	}
	for _, one := range f.all { // by its own release
		one.verifyLedger(t)
	}
	f.stop(t)
	f.nothingSliced(t)
	f.uncomplaining(t)
	last.program = older
	last.start(t)
	if code := last.server.ended(t); code == 0 || !strings.Contains(last.server.log.String(), "newer than this binary") {
		t.Errorf("a server of the older release ends with %d:\n%s", code, last.server.log)
	}
}

// migrate does to the database what the first server of the next release does when it starts.
func (f *nodes) migrate(t *testing.T) {
	t.Helper()
	up, _, _ := strings.Cut(nextMigration, "-- +goose Down")
	applied := `INSERT INTO goose_db_version (version_id, is_applied) VALUES (` + strconv.Itoa(nextSchema) + `, TRUE)`
	for _, statement := range []string{up, applied} {
		if _, err := f.books.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
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
