package logbook

import (
	"syscall"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/secret"
	"sovereign/internal/store/db"
)

// BenchmarkIngest measures the cost of ingesting a row, in batches of a busy server.
func BenchmarkIngest(b *testing.B) { benchmarkIngest(b, false) }

// BenchmarkIngestDrawn measures the same for rows whose requests were drawn.
func BenchmarkIngestDrawn(b *testing.B) { benchmarkIngest(b, true) }

func benchmarkIngest(b *testing.B, drawn bool) {
	b.Helper()
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
	var used time.Duration
	for seq := int64(0); b.Loop(); {
		b.StopTimer()
		var batch records
		for range 1000 {
			row := source.next(30 * 24 * time.Hour)
			batch.rows = append(batch.rows, row)
			if seq++; drawn {
				draw := drawAt(row.At, "src_01k5h2m3n4p5q6r7s8t9v0w1x2", seq)
				batch.draws = append(batch.draws, drawRecord{draw, draw.Append(nil)})
			}
		}
		before := cpuTime(b)
		b.StartTimer()
		_, err := d.Tx(b.Context(), func(tx *db.Tx) error { return ingester.insert(b.Context(), tx, batch) })
		if err != nil {
			b.Fatal(err)
		}
		used += cpuTime(b) - before
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/row")
	b.ReportMetric(float64(used.Nanoseconds())/float64(b.N)/1000, "cpu-ns/row")
}

// cpuTime returns the CPU time of this process. Other work on the machine disturbs it less than it does the clock.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
