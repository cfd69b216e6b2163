package logbook

import (
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/secret"
	"sovereign/internal/domain/logbook/logbooktest"
	"sovereign/internal/plane/capture"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// fillRows inserts rows of a month as the ingester does, and returns them with their segments.
func fillRows(t testing.TB, d *db.DB, n int) (source *logbooktest.Source, rows []*capture.Row) {
	t.Helper()
	source = logbooktest.New(home, n, clock.Now())
	ingester := newIngester(t, d)
	for len(rows) < n {
		batch := make([]*capture.Row, min(2000, n-len(rows)))
		for i := range batch {
			batch[i] = source.Next(90 * 24 * time.Hour)
		}
		if err := insertRows(t.Context(), ingester, batch); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, batch...)
	}
	return source, rows
}

// Whatever the filters, the range and the number of buckets, a histogram has no gap and counts every row once.
func TestAHistogramCountsEveryRowOnce(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		source, rows := fillRows(t, d, 1500)
		store, yes := NewStore(d), true
		end := rows[len(rows)-1].At
		for name, f := range map[string]Filters{
			"all": {}, "model": {Model: "provider/model-3"}, "model and hit": {Model: "provider/model-3", CacheHit: &yes},
			"tag": {Tag: "task-0"}, "finish": {FinishReason: "stop"}, "since": {Start: end - 40*hour - 1234567},
			"between": {Start: end - 100*hour + 5, End: end - 3*hour - 99}, "an hour": {Start: end - hour, End: end + 1},
			"tag between": {Tag: "task-0", Start: end - 300*hour + 7, End: end - 20*hour}, "nothing": {Model: "unknown"},
		} {
			for _, buckets := range []int{1, 7, 60, 500} {
				h, err := store.Histogram(t.Context(), home, &f, buckets)
				if err != nil {
					t.Fatal(err)
				}
				checkHistogram(t, fmt.Sprintf("%s in %d", name, buckets), &h, &f, rows, buckets)
			}
		}
		_ = source
	})
}

func checkHistogram(t *testing.T, name string, h *Histogram, f *Filters, rows []*capture.Row, buckets int) {
	t.Helper()
	want, total := make([]int64, len(h.Buckets)), int64(0)
	for _, r := range rows {
		if !f.match(&tailed{row: r}) {
			continue
		}
		total++
		for i, b := range h.Buckets {
			if r.At >= b.From && r.At < b.To {
				want[i]++
			}
		}
	}
	if h.Total != total {
		t.Errorf("%s: %d rows, want %d", name, h.Total, total)
	}
	if len(h.Buckets) > buckets {
		t.Errorf("%s: %d buckets", name, len(h.Buckets))
	}
	for i, b := range h.Buckets {
		if b.Count == nil || *b.Count != want[i] {
			t.Errorf("%s: %v from %v to %v, want %d", name, b.Count, b.From, b.To, want[i])
		}
		if b.From >= b.To || i > 0 && h.Buckets[i-1].To != b.From {
			t.Errorf("%s: bucket %d is from %v to %v", name, i, b.From, b.To)
		}
	}
}

func TestExpiredRowsAreNotInAHistogram(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		source, ingester := logbooktest.New(home, 100, clock.Now()), newIngester(t, d)
		var rows []*capture.Row
		for range 100 {
			rows = append(rows, source.Next(15*24*time.Hour)) // half of them
		}
		if err := insertRows(t.Context(), ingester, rows); err != nil {
			t.Fatal(err)
		}
		_, total, err := NewStore(d).List(t.Context(), home, &Filters{}, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		h, err := NewStore(d).Histogram(t.Context(), home, &Filters{}, 30)
		if err != nil || h.Total != total || total == 100 {
			t.Errorf("%d in the histogram, %d in the list, %v", h.Total, total, err)
		}
	})
}

func TestFacetsAreTheCommonValuesOfATimeRange(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		_, rows := fillRows(t, d, 1000)
		all, err := NewStore(d).Facets(t.Context(), home, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		counts := map[string]int64{}
		for _, r := range rows {
			counts[r.Model]++
		}
		if len(all.Models) != len(counts) || len(all.Tags) == 0 || len(all.Tags) > maxFacetValues || len(all.Segments) == 0 || len(all.Finishes) != 4 || len(all.Cached) != 2 {
			t.Errorf("%+v", all)
		}
		for i, m := range all.Models {
			if m.Count != counts[m.Value] || i > 0 && m.Count > all.Models[i-1].Count {
				t.Errorf("%+v, want %d", m, counts[m.Value])
			}
		}
		end := rows[len(rows)-1].At
		for _, between := range [][2]clock.Time{
			{0, end + 1},
			{end - 40*hour, 0},
			{end - 400*hour, end - 7*hour},
			{end - 3*hour, end + 1},
			{end - 30*hour, end - 20*hour},
			{(end/day - 3) * day, end / day * day},
			{(end/day-3)*day + 1, end/day*day + 1},
			{(end/day-3)*day - 1, end/day*day - 1},
			{(end/day-5)*day + hour, end/day*day + 23*hour},
			{(end/day-5)*day + hour - 1, end/day*day + 23*hour + 1},
			{end + day, 0},
		} {
			checkFacets(t, d, rows, between[0], between[1])
		}
		theirs, err := NewStore(d).Facets(t.Context(), "ws_theirs", 0, 0)
		if err != nil || len(theirs.Models) != 0 {
			t.Errorf("%+v, %v", theirs, err)
		}
	})
}

// An earlier release has counted by the hour alone.
func TestFacetsOfRowsThatAnEarlierReleaseCounted(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, folder string, url secret.Text) {
		d, err := db.OpenLogs(t.Context(), folder, url)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = d.Close() }()
		if err := d.MigrateTo(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		_, rows := fillRows(t, d, 500)
		if _, err := db.Exec(t.Context(), d.Across("a test"), `DELETE FROM log_counts WHERE facet LIKE '%@day'`); err != nil {
			t.Fatal(err)
		}
		if err := d.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		end := rows[len(rows)-1].At
		checkFacets(t, d, rows, 0, 0)
		checkFacets(t, d, rows, end-100*hour, end-10*hour)
	})
}

// checkFacets compares the models of a time range with the rows of its whole hours.
func checkFacets(t *testing.T, d *db.DB, rows []*capture.Row, from, to clock.Time) {
	t.Helper()
	got, err := NewStore(d).Facets(t.Context(), home, from, to)
	if err != nil {
		t.Fatal(err)
	}
	want, have := map[string]int64{}, map[string]int64{}
	for _, r := range rows {
		if at := r.At - r.At%hour; at > from-hour && (to == 0 || at < to) {
			want[r.Model]++
		}
	}
	for _, m := range got.Models {
		have[m.Value] = m.Count
	}
	if !maps.Equal(want, have) {
		t.Errorf("from %v to %v: %v, want %v", from, to, have, want)
	}
}

// A million rows: SOVEREIGN_LOG_ROWS=1000000 go test ./internal/domain/logbook -run '^$' -bench Histogram. The mark is
// 150 ms.
func BenchmarkHistogram(b *testing.B) {
	rows := 20_000
	if text := os.Getenv("SOVEREIGN_LOG_ROWS"); text != "" {
		if _, err := fmt.Sscan(text, &rows); err != nil {
			b.Fatal(err)
		}
	}
	for _, engine := range []db.Engine{db.SQLite, db.Postgres} {
		d := dbtest.MigratedLogs(b, engine)
		_, all := fillRows(b, d, rows)
		if engine == db.Postgres {
			if _, err := db.Exec(b.Context(), d.Across("a benchmark"), `VACUUM ANALYZE`); err != nil {
				b.Fatal(err)
			}
		}
		store, end := NewStore(d), all[len(all)-1].At
		for name, f := range map[string]Filters{
			"all": {}, "model": {Model: "provider/model-3"}, "two": {Model: "provider/model-3", FinishReason: "length"},
			"a day": {Start: end - 24*hour}, "six hours of a tag": {Tag: "task-0", Start: end - 6*hour},
		} {
			b.Run(string(engine)+"/"+name, func(b *testing.B) {
				before := cpuTime(b)
				for b.Loop() {
					if _, err := store.Histogram(b.Context(), home, &f, 60); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
			})
		}
		b.Run(string(engine)+"/facets", func(b *testing.B) {
			before := cpuTime(b)
			for b.Loop() {
				if _, err := store.Facets(b.Context(), home, 0, 0); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}
