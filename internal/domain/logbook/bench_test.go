package logbook

import (
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/secret"
	"sovereign/internal/plane/capture"
	"sovereign/internal/store/db"
)

// BenchmarkIngest measures the cost of ingesting a row, in batches of a busy server.
func BenchmarkIngest(b *testing.B) {
	d, err := db.OpenLogs(b.Context(), b.TempDir(), secret.Text{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	if err := d.Migrate(b.Context()); err != nil {
		b.Fatal(err)
	}
	ingester, source := newIngester(b, d), newRowSource(1_000_000, clock.Now())
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		rows := make([]*capture.Row, 1000)
		for i := range rows {
			rows[i] = source.next(30 * 24 * time.Hour)
		}
		b.StartTimer()
		if err := insertRows(b.Context(), ingester, rows); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/row")
}
