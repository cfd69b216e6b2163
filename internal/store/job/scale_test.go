package job

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

// fillUp adds many jobs of a workspace at once.
func fillUp(t testing.TB, d *db.DB, ws tenant.ID, n int, status Status) error {
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

// crowd is a database with many jobs that have ended, a workspace that has many waiting, and others that have some.
func crowd(t *testing.T, m room) {
	t.Helper()
	for _, part := range []struct {
		n      int
		status Status
	}{{finished, Done}, {finished / 100, Failed}, {finished / 10, Queued}} {
		if err := fillUp(t, m.db, mine, part.n, part.status); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 50 {
		ws := name("ws", i)
		m.settle(t, ws)
		if err := fillUp(t, m.db, ws, 3, Queued); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFindingWorkCostsNothingForWhatHasEnded(t *testing.T) {
	each(t, func(t *testing.T, m room) {
		crowd(t, m)
		for _, analyzed := range []bool{false, true} {
			if m.db.Engine == db.Postgres && !analyzed {
				continue // it plans by statistics, which it takes by itself; SQLite has none
			}
			if analyzed {
				if _, err := db.Exec(t.Context(), m.db.Across("test"), `ANALYZE`); err != nil {
					t.Fatal(err)
				}
			}
			for _, query := range []string{findHeads, findClaimed} {
				if plan := explain(t, m.db, query); strings.Contains(plan, "Seq Scan on jobs") || scans(plan) {
					t.Errorf("analyzed %v: %s\n%s", analyzed, query, plan)
				}
			}
		}
		heads, err := find[head](t.Context(), NewRunner(Config{DB: m.db}), findHeads)
		if err != nil || len(heads) != 51 {
			t.Fatalf("%d heads: %v", len(heads), err)
		}
		for _, h := range heads {
			if h.ID != "cnt_QUEUED_000000" || h.CreatedAt != 0 || h.Kind != kind {
				t.Errorf("%+v is not the oldest", h)
			}
		}
		for _, query := range []string{findHeads, findClaimed} {
			const times = 20
			began := time.Now()
			for range times {
				if _, err := db.Query[any](t.Context(), m.db.Across("test"), `SELECT COUNT(*) FROM (`+query+`) found`); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%s…: %s", strings.Join(strings.Fields(query)[:4], " "), time.Since(began)/times)
		}
	})
}

// scans reports whether SQLite reads a table, or an index, from end to end, other than the index of what is in hand: that is wanted whole.
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
