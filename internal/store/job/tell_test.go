package job

import (
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

func TestPeopleAreToldOfFailuresAndOfLongWorkThatIsDone(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		start := clock.Of(time.Date(2026, 11, 18, 0, 0, 0, 0, time.UTC))
		short, long := start.Add(longWork-time.Second), start.Add(longWork)
		for i, of := range []struct {
			r    record
			told bool
		}{
			{record{Status: Failed, Failure: "no judge", StartedAt: &start, FinishedAt: &short}, true},
			{record{Status: Failed, FinishedAt: &short}, true},
			{record{Status: Done, StartedAt: &start, FinishedAt: &short}, false},
			{record{Status: Done, StartedAt: &start, FinishedAt: &long}, true},
			{record{Status: Cancelled, StartedAt: &start, FinishedAt: &long}, false},
			{record{Status: Running, StartedAt: &start}, false},
			{record{Status: Queued}, false},
		} {
			ws := tenant.ID(rune('a' + i))
			of.r.Kind = "eval"
			if _, err := d.Tx(t.Context(), func(tx *db.Tx) error { return tell(t.Context(), tx, ws, "eval_1", &of.r) }); err != nil {
				t.Fatal(err)
			}
			n, err := db.One[int64](t.Context(), d.In(ws), `SELECT COUNT(*) FROM notices WHERE workspace_id = $1 AND kind = 'job.ended'`)
			if err != nil || (n == 1) != of.told {
				t.Errorf("%d, %s: %d notices, %v", i, of.r.Status, n, err)
			}
		}
	})
}
