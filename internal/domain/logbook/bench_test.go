package logbook

import (
	"syscall"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/secret"
	"sovereign/internal/domain/logbook/logbooktest"
	"sovereign/internal/store/db"
)

// benchmarkIngest measures what the ingester takes for a record, in batches of a busy server. next makes a record.
func benchmarkIngest(b *testing.B, next func() []byte) {
	b.Helper()
	d, err := db.OpenLogs(b.Context(), b.TempDir(), secret.Text{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	if err := d.Migrate(b.Context()); err != nil {
		b.Fatal(err)
	}
	ingester, used := newIngester(b, d), time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		batch := make([][]byte, 1000)
		for i := range batch {
			batch[i] = next()
		}
		before := cpuTime(b)
		b.StartTimer()
		_, err := d.Tx(b.Context(), func(tx *db.Tx) error { return ingester.insert(b.Context(), tx, ingester.parseAll(batch)) })
		if err != nil {
			b.Fatal(err)
		}
		used += cpuTime(b) - before
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/record")
	b.ReportMetric(float64(used.Nanoseconds())/float64(b.N)/1000, "cpu-ns/record")
}

func BenchmarkIngestRows(b *testing.B) {
	source := logbooktest.New(home, 1_000_000, clock.Now())
	benchmarkIngest(b, func() []byte { return source.Next(30 * 24 * time.Hour).Append(nil) })
}

func BenchmarkIngestDraws(b *testing.B) {
	seq := int64(0)
	benchmarkIngest(b, func() []byte {
		seq++
		return drawAt(clock.Now(), "src_01k5h2m3n4p5q6r7s8t9v0w1x2", seq).Append(nil)
	})
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
