package wallet

import (
	"testing"

	"sovereign/internal/base/clock"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/plane/meter"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// What a key spent comes from the rows of usage and from what the journal still holds: by the UTC day and month, by
// cost, and never another workspace's.
func TestWhatAKeySpentSurvivesTheProcessAndIsByDayAndMonth(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		b.fund("ws_a", 10_000)
		b.fund("ws_b", 1000)
		for i, cost := range []int64{1, 20, 300} {
			b.spend("ws_a", "req_"+string(rune('a'+i)), cost)
			b.drain()
		}
		b.spend("ws_b", "req_other", 7)
		now := clock.Now()
		day, month := meter.Starts(now.Std())
		set := func(request string, at clock.Time) {
			t.Helper()
			if _, err := db.Exec(t.Context(), d.Across("test"), `UPDATE usage_rows SET at = $1 WHERE request_id = $2`, at, request); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := db.Exec(t.Context(), d.Across("test"), `UPDATE usage_rows SET outcome = 'abandoned', charged = 0 WHERE request_id = 'req_c'`); err != nil {
			t.Fatal(err) // its cost counts
		}
		set("req_a", clock.Of(month)-1) // of the month before
		set("req_b", clock.Of(month))   // of this month, and of this day on the first only
		b = b.killed()
		b.recover()
		b.spend("ws_a", "req_late", 4000)
		for _, ask := range []clock.Time{clock.Now() + 1_000_000, now} { // with the journal's last, and as of before it
			got, err := b.poster.Spent(t.Context(), "ws_a", ask)
			want := meter.Spent{Day: 300, Month: 320}
			if day.Equal(month) {
				want.Day += 20
			}
			if ask != now {
				want.Day, want.Month = want.Day+4000, want.Month+4000
			}
			if err != nil || len(got) != 1 || got["key_1"] != want {
				t.Errorf("%+v %v, want %+v", got, err, want)
			}
		}
	})
}
