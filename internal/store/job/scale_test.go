package job

import (
	"fmt"
	"strings"
	"testing"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

// insertJobs inserts many jobs of a workspace at once.
func insertJobs(t testing.TB, d *db.DB, ws tenant.ID, n int, status Status) error {
	t.Helper()
	rows := make([][]any, n)
	for i := range rows {
		var finished any
		if status.Ended() {
			finished = 9
		}
		rows[i] = []any{ws, fmt.Sprintf("cnt_%s_%06d", status, i), kind, string(status), 0, 0, 0, 0, 0, 0, "", false, "", i, nil, finished}
	}
	columns := strings.Split("workspace_id, id, kind, status, done, total, cost, estimate, attempts, losses, claim, cancel_requested, failure, created_at, started_at, finished_at", ", ")
	_, err := d.Tx(t.Context(), func(tx *db.Tx) error { return db.Insert(t.Context(), tx.Across("test"), "jobs", columns, rows) })
	return err
}

// endedJobs is how many ended jobs addManyJobs inserts: enough for PostgreSQL's planner to prefer an index where
// there is one.
const endedJobs = 20_000

// addManyJobs inserts many jobs that have ended, many waiting jobs of one workspace, and a few of each of fifty others.
func addManyJobs(t *testing.T, m fixture) {
	t.Helper()
	for _, part := range []struct {
		n      int
		status Status
	}{{endedJobs, Done}, {endedJobs / 100, Failed}, {endedJobs / 10, Queued}} {
		if err := insertJobs(t, m.db, mine, part.n, part.status); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 50 {
		ws := name("ws", i)
		m.addWorkspace(t, ws)
		if err := insertJobs(t, m.db, ws, 3, Queued); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFindingWorkReadsNoEndedJobs(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		addManyJobs(t, m)
		for _, analyzed := range []bool{false, true} {
			if m.db.Engine == db.Postgres && !analyzed {
				continue // its planner needs the statistics that autovacuum collects; SQLite plans without
			}
			if analyzed {
				if _, err := db.Exec(t.Context(), m.db.Across("test"), `ANALYZE`); err != nil {
					t.Fatal(err)
				}
			}
			for _, query := range []string{selectQueueHeads, selectClaimed} {
				if plan := explain(t, m.db, query); strings.Contains(plan, "Seq Scan on jobs") || scans(plan) {
					t.Errorf("analyzed %v: %s\n%s", analyzed, query, plan)
				}
			}
		}
		heads, err := find[queueHead](t.Context(), NewRunner(Config{DB: m.db}), selectQueueHeads)
		if err != nil || len(heads) != 51 {
			t.Fatalf("%d heads: %v", len(heads), err)
		}
		for _, h := range heads {
			if h.ID != "cnt_QUEUED_000000" || h.CreatedAt != 0 || h.Kind != kind {
				t.Errorf("%+v is not the oldest", h)
			}
		}
	})
}

// scans reports whether SQLite reads a table or an index from end to end. The index of claimed jobs is the exception:
// all of it is wanted.
func scans(plan string) bool {
	for line := range strings.Lines(plan) {
		if strings.HasPrefix(line, "SCAN jobs") && !strings.Contains(line, "jobs_claimed") {
			return true
		}
	}
	return false
}

func explain(t *testing.T, d *db.DB, query string) string {
	t.Helper()
	if d.Engine == db.Postgres {
		lines, err := db.Query[string](t.Context(), d.Across("test"), `EXPLAIN `+query)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(lines, "\n")
	}
	type step struct {
		ID, Parent, Notused int64
		Detail              string
	}
	steps, err := db.Query[step](t.Context(), d.Across("test"), `EXPLAIN QUERY PLAN `+query)
	if err != nil {
		t.Fatal(err)
	}
	var plan strings.Builder
	for _, s := range steps {
		fmt.Fprintln(&plan, s.Detail)
	}
	return plan.String()
}
