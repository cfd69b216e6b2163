package criterion

import (
	"fmt"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

func TestTheSweepTakesWhatIsOverAndNothingElse(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		now := clock.Now()
		for i, expires := range []clock.Time{0, now.Add(-time.Hour), now.Add(-time.Second), now.Add(time.Hour)} {
			for ws := range map[tenant.ID]bool{mine: true, theirs: true} {
				if _, err := db.Exec(t.Context(), r.db.In(ws), `
					INSERT INTO judge_answers (workspace_id, question, criterion_id, origin, request_id, opinion, failure, cost, created_at, expires_at)
					VALUES ($1, $2, 'crit_1', '', '', '', '', 0, 1, $3)`, []byte{byte(i)}, expires); err != nil {
					t.Fatal(err)
				}
				if _, err := db.Exec(t.Context(), r.db.In(ws), `
					INSERT INTO judged_logs (workspace_id, run_id, log_id, at, pending, judge, grade, critique, failure, request_id, expires_at)
					VALUES ($1, 'scan_1', $2, 1, FALSE, 'pass', 1, '', '', '', $3)`, fmt.Sprint("log_", i), expires); err != nil {
					t.Fatal(err)
				}
			}
		}
		var many [][]any
		for i := range 2*sweptAtOnce + 1 {
			many = append(many, []any{mine, "scan_2", fmt.Sprint("log_", i), 1, false, "pass", 1.0, "", "", "", now - 1})
		}
		if err := db.Insert(t.Context(), r.db.Across("test"), "judged_logs", []string{"workspace_id", "run_id", "log_id", "at", "pending", "judge", "grade", "critique", "failure", "request_id", "expires_at"}, many); err != nil {
			t.Fatal(err)
		}
		if err := r.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		for table, want := range map[string]int{"judge_answers": 4, "judge_answers WHERE expires_at = 0": 2, "judged_logs": 4, "judged_logs WHERE log_id IN ('log_0', 'log_3')": 4} {
			if n := r.rows(t, table); n != want {
				t.Errorf("%d %s, want %d", n, table, want)
			}
		}
	})
}
