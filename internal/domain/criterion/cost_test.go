package criterion

import (
	"fmt"
	"os"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/id"
	"sovereign/internal/base/secret"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// measured is a criterion with a calibration of so many rows, in which the judge disagrees with people that often, and of which so many
// were ruled on.
func (r *room) measured(t testing.TB, agreements, disagreements, ruled int) string {
	t.Helper()
	c, name, now := r.judge(t), id.New("cal"), clock.Now()
	var halves trust.Halves
	var rows, labels [][]any
	for i := range agreements + disagreements {
		labelID := fmt.Sprintf("lbl_%s_%06d", name, i)
		human, report := []judge.Verdict{judge.Pass, judge.Fail}[i%2], i%4 < 2
		said, standing, kind := human, human, ""
		if i < disagreements {
			said = opposite(human)
		}
		if i < ruled {
			kind = "judge_error"
			if i%2 == 0 {
				kind, standing = "label_error", said
			}
		}
		halves.Half(report).Add(human, said, 1)
		rows = append(rows, []any{
			mine, name, labelID, "req_1", []byte("item"), report, false, string(human), string(standing), kind, draw(name, labelID), false,
			string(said), float64(i%100) / 100, "The response is not polite, for it calls the customer names.", "",
		})
		if kind != "" {
			labels = append(labels, []any{mine, labelID, c.ID, "req_1", "", string(human), nil, "", "usr_ann", "api", report, false, []byte(labelID), kind, string(standing), "looked at", "usr_ann", now, now})
		}
	}
	_, err := r.db.Tx(t.Context(), func(tx *db.Tx) error {
		in := tx.Across("test")
		if _, err := db.Exec(t.Context(), tx.In(mine), `
			INSERT INTO calibrations (workspace_id, id, criterion_id, version, judge_model, threshold, fresh, counts, enrolled, last, created_by, created_at, aligned_at)
			VALUES ($1, $2, $3, 1, 'sim/judge', 0.5, FALSE, $4, '', '', 'usr_ann', $5, $5)`, name, c.ID, string(shown(t, halves)), now); err != nil {
			return err
		}
		if _, err := db.Exec(t.Context(), tx.In(mine), `
			INSERT INTO jobs (workspace_id, id, kind, status, done, total, estimate, cost, attempts, losses, claim, cancel_requested, failure, created_at, finished_at)
			VALUES ($1, $2, 'calibration', 'DONE', 0, 0, 0, 0, 0, 0, '', FALSE, '', $3, $3)`, name, now); err != nil {
			return err
		}
		items := make([][]any, len(labels))
		for i := range labels {
			items[i] = []any{mine, labels[i][12], []byte("[]")}
		}
		if err := db.Insert(t.Context(), in, "label_items", []string{"workspace_id", "hash", "steps"}, items); err != nil {
			return err
		}
		if err := db.Insert(t.Context(), in, "labels", []string{
			"workspace_id", "id", "criterion_id", "request_id", "trace_id", "verdict", "grade", "critique", "author", "source", "in_report_half", "straddles", "item", "kind",
			"adjudicated", "note", "adjudicated_by", "adjudicated_at", "created_at",
		}, labels); err != nil {
			return err
		}
		return db.Insert(t.Context(), in, "calibration_rows", []string{
			"workspace_id", "calibration_id", "label_id", "request_id", "item", "in_report_half", "shown", "human", "standing",
			"ruling", "draw", "pending", "judge", "grade", "critique", "failure",
		}, rows)
	})
	if err != nil {
		t.Fatal(err)
	}
	return c.ID
}

// read is how long the report takes, at best.
func (r *room) read(t testing.TB, criterionID string, times int) time.Duration {
	best := time.Hour
	for range times {
		began := time.Now()
		r.report(t, criterionID)
		best = min(best, time.Since(began))
	}
	return best
}

// The report reads disagreements and rulings, and of the agreements no more than it asks people to look at.
func TestDrillTheReportDoesNotGrowWithTheAgreements(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		few := r.measured(t, 1_000, 60, 20)
		full, agreements := os.Getenv("SOVEREIGN_DRILLS") == "full", 3_000
		if full {
			agreements = 40_000
		}
		many := r.measured(t, agreements, 60, 20)
		if r.db.Engine == db.Postgres { // as the server does by itself, within a minute
			if _, err := db.Exec(t.Context(), r.db.Across("test"), `ANALYZE`); err != nil {
				t.Fatal(err)
			}
		}
		report := r.report(t, many)
		if report.RemainingDisagreements != 40 || len(report.AgreementsToReview) != 20 || report.Adjudicated != 20 {
			t.Fatalf("%+v", report)
		}
		small, large := r.read(t, few, 30), r.read(t, many, 30)
		t.Logf("among 1,000: %v; among %d: %v", small, agreements, large)
		if full && large > 2*small+time.Millisecond { // a busy machine measures nothing
			t.Errorf("it takes %v among 1,000 agreements, and %v among %d", small, large, agreements)
		}
	})
}

// What the report costs for a calibration of 100,000 labels with 5,000 disagreements.
func BenchmarkReport100k(b *testing.B) {
	for _, engine := range []db.Engine{db.SQLite, db.Postgres} {
		for _, ruled := range []int{0, 1_000} {
			b.Run(fmt.Sprintf("%s/%d ruled on", engine, ruled), func(b *testing.B) {
				var url secret.Text
				if engine == db.Postgres {
					url = dbtest.Postgres(b)
				}
				folder := b.TempDir()
				core := dbtest.Open(b, folder, url)
				logs, err := db.OpenLogs(b.Context(), folder, url)
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = logs.Close() })
				for _, d := range []*db.DB{core, logs} {
					if err := d.Migrate(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				r := furnish(b, core, logs)
				c := r.measured(b, 95_000, 5_000, ruled)
				if engine == db.Postgres { // as the server does by itself, within a minute
					if _, err := db.Exec(b.Context(), core.Across("test"), `VACUUM ANALYZE`); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportAllocs()
				for b.Loop() {
					if report := r.report(b, c); report.RemainingDisagreements != int64(5_000-ruled) {
						b.Fatal(report.RemainingDisagreements)
					}
				}
			})
		}
	}
}
