package dbtest

import (
	"context"
	"errors"
	"strings"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

// Two workspaces for tests: the caller's own, and another's.
const (
	Mine   tenant.ID = "ws_mine"
	Theirs tenant.ID = "ws_theirs"
)

// Ann is a user of the workspace Mine.
var Ann = tenant.Caller{Workspace: Mine, User: "usr_ann", Key: "key_1"}.Actor()

// A T is a test, a benchmark, or one case of a property.
type T interface {
	Helper()
	Context() context.Context
	Errorf(string, ...any)
	Fatal(...any)
	Fatalf(string, ...any)
}

// AddWorkspaces inserts workspaces.
func AddWorkspaces(t T, d *db.DB, all ...tenant.ID) {
	t.Helper()
	for _, ws := range all {
		if _, err := db.Exec(
			t.Context(), d.In(ws), `INSERT INTO workspaces (workspace_id, name, created_at) VALUES ($1, $2, 1)`,
			string(ws),
		); err != nil {
			t.Fatal(err)
		}
	}
}

// Count counts the rows of a table, which a WHERE clause may follow.
func Count(t T, d *db.DB, table string, args ...any) int {
	t.Helper()
	n, err := db.One[int](t.Context(), d.Across("test"), `SELECT COUNT(*) FROM `+table, args...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Refused checks that an error is a refusal of that status whose message has all the words.
func Refused(t T, err error, status int, words ...string) {
	t.Helper()
	f, ok := errors.AsType[*fault.Fault](err)
	if !ok || f.Status != status {
		t.Errorf("%v, want a refusal with %d", err, status)
		return
	}
	for _, word := range words {
		if !strings.Contains(f.Message, word) {
			t.Errorf("%q does not say %q", f.Message, word)
		}
	}
}
