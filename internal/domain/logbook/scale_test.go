package logbook

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/logbook/logbooktest"
	"sovereign/internal/plane/capture"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/plane/spool"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

const home tenant.ID = "ws_home"

// eachLogs runs test on a fresh log database of each engine.
func eachLogs(t *testing.T, test func(t *testing.T, d *db.DB)) {
	t.Helper()
	dbtest.EachLogs(t, test)
}

func newIngester(t testing.TB, d *db.DB) *Ingester {
	t.Helper()
	s, err := spool.Open(journaltest.NewDisk(), spool.Position{}, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	return NewIngester(d, s, "jrn_test", slog.New(slog.DiscardHandler))
}

// insertRows inserts rows as the ingester does.
func insertRows(ctx context.Context, c *Ingester, rows []*capture.Row) error {
	_, err := c.db.Tx(ctx, func(tx *db.Tx) error { return c.insertRows(ctx, tx, rows) })
	return err
}

func percentile(all []time.Duration, p float64) time.Duration {
	slices.Sort(all)
	return all[min(len(all)-1, int(float64(len(all))*p))]
}

// Reading, writing and deleting stay fast with a million rows, on both engines. With so many rows it checks the times
// and takes minutes; without the variable it checks with few rows that every page is complete:
//
//	SOVEREIGN_LOG_ROWS=1000000 go test ./internal/domain/logbook -run TestMillionRows -v -timeout 60m
func TestMillionRows(t *testing.T) {
	m := measurement{rows: 1_000, repeats: 8}
	if rows := os.Getenv("SOVEREIGN_LOG_ROWS"); rows != "" {
		m.full, m.repeats = true, 40
		if _, err := fmt.Sscan(rows, &m.rows); err != nil {
			t.Fatal(err)
		}
	}
	eachLogs(t, func(t *testing.T, d *db.DB) {
		m := m
		m.db, m.ingester, m.store, m.now = d, newIngester(t, d), NewStore(d), clock.Now()
		m.source = logbooktest.New(home, m.rows, m.now)
		m.insert(t)
		for name, f := range m.singleFilters() {
			m.pages(t, name, f, 50*time.Millisecond)
		}
		for name, f := range m.severalFilters(t) {
			m.pages(t, name, f, 500*time.Millisecond)
		}
		m.export(t)
		m.deletion(t)
	})
}

// A measurement checks, and in full size times, reading, writing and deleting.
type measurement struct {
	rows, repeats int
	full          bool // the times are checked

	db       *db.DB
	ingester *Ingester
	store    *Store
	source   *logbooktest.Source
	now      clock.Time
}

func (m *measurement) insert(t *testing.T) {
	t.Helper()
	began := time.Now()
	var batch []*capture.Row
	for range m.rows {
		if batch = append(batch, m.source.Next(90*24*time.Hour)); len(batch) == 2000 || m.source.Made == m.rows {
			if err := insertRows(t.Context(), m.ingester, batch); err != nil {
				t.Fatal(err)
			}
			batch = nil
		}
	}
	t.Logf("%d rows inserted in %v, %v each", m.rows, time.Since(began).Round(time.Second), time.Since(began)/time.Duration(m.rows))
	if m.db.Engine == db.Postgres { // as autovacuum does within a minute
		if _, err := db.Exec(t.Context(), m.db.Across("a test"), `VACUUM ANALYZE log_rows`); err != nil {
			t.Fatal(err)
		}
	}
}

func (m *measurement) ago(days int) clock.Time { return m.now - clock.Time(days)*24*hour + 12345 }

func (m *measurement) singleFilters() map[string]Filters {
	yes, no := true, false
	return map[string]Filters{
		"none": {}, "model": {Model: "provider/model-3"}, "tag, common": {Tag: "task-0"}, "tag, rare": {Tag: "task-190"},
		"finish": {FinishReason: "length"}, "hit": {CacheHit: &yes}, "miss": {CacheHit: &no}, "start": {Start: m.ago(10)}, "end": {End: m.ago(10)},
		"unknown": {Tag: "unused"},
	}
}

func (m *measurement) severalFilters(t *testing.T) map[string]Filters {
	t.Helper()
	segments, err := m.store.Segments(t.Context(), home, 1000, 0)
	if err != nil {
		t.Fatal(err)
	}
	yes, no, some := true, false, segments[len(segments)/2].ID
	m.pages(t, "segment", Filters{Segment: some}, 50*time.Millisecond)
	return map[string]Filters{
		"model and tag": {Model: "provider/model-3", Tag: "task-0"},
		"all": {
			Model: "provider/model-3", Tag: "task-1", Segment: some, FinishReason: "stop", CacheHit: &no, Start: m.ago(20), End: m.ago(2),
		},
		"common ones": {FinishReason: "stop", CacheHit: &no}, "model, between": {Model: "provider/model-3", Start: m.ago(20), End: m.ago(2)},
		"rare together":      {Tag: "task-150", FinishReason: "content_filter", CacheHit: &yes},
		"segment and finish": {Segment: some, FinishReason: "tool_calls"},
	}
}

// pages reads pages of a filter, every fourth at a random offset, and checks that each is complete.
func (m *measurement) pages(t *testing.T, name string, f Filters, most time.Duration) {
	t.Helper()
	var took []time.Duration
	var total int64
	for i := range m.repeats {
		offset := 0
		if i%4 == 3 && total > 200 {
			offset = m.source.Random.IntN(int(total) - 100)
		}
		at := time.Now()
		page, n, err := m.store.List(t.Context(), home, &f, 50, offset)
		if err != nil {
			t.Fatal(err)
		}
		took, total = append(took, time.Since(at)), n
		if want := min(50, n-int64(offset)); int64(len(page)) != want {
			t.Errorf("%s: %d rows of %d at %d", name, len(page), n, offset)
		}
	}
	p50, p99 := percentile(took, .5), percentile(took, .99)
	t.Logf("%-20s %8d rows: p50 %v, p99 %v", name, total, p50.Round(10*time.Microsecond), p99.Round(10*time.Microsecond))
	if m.full && p99 > most {
		t.Errorf("%s takes %v", name, p99)
	}
}

func (m *measurement) export(t *testing.T) {
	t.Helper()
	at := time.Now()
	export, err := m.store.Export(t.Context(), home, &Filters{})
	if err != nil {
		t.Fatal(err)
	}
	first := &firstWrite{began: at}
	runtime.GC()
	if err := export.Write(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	t.Logf("an export of %d begins after %v, and takes %v, %d bytes",
		export.Count, first.after.Round(time.Millisecond), time.Since(at).Round(time.Millisecond), first.bytes)
}

// deletion deletes all rows while others are inserted.
func (m *measurement) deletion(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	background, stopTasks := context.WithCancel(ctx)
	defer stopTasks()
	go m.ingester.repeat(background, checkpointEvery, nil, m.ingester.emptySpool, "the spool cannot be emptied")
	stop, done, writes := make(chan struct{}), make(chan struct{}), []time.Duration{}
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			row := m.source.Next(90 * 24 * time.Hour)
			row.At, row.ID = row.At+1, fmt.Sprintf("log_%026d", 5_000_000+m.source.Made)
			at := time.Now()
			_ = m.ingester.acquire(ctx) // as Ingest does
			err := insertRows(ctx, m.ingester, []*capture.Row{row})
			m.ingester.release()
			if err != nil {
				t.Error(err)
				return
			}
			writes = append(writes, time.Since(at))
			time.Sleep(5 * time.Millisecond)
		}
	}()
	at := time.Now()
	deleted, err := m.ingester.DeleteExpired(ctx, m.now.Add(90*24*time.Hour))
	close(stop)
	<-done
	if err != nil {
		t.Fatal(err)
	}
	worst := percentile(writes, 1)
	t.Logf("%d rows deleted in %v; %d writes meanwhile: p50 %v, p99 %v, longest %v", deleted, time.Since(at).Round(time.Second), len(writes),
		percentile(writes, .5).Round(time.Millisecond), percentile(writes, .99).Round(time.Millisecond), worst.Round(time.Millisecond))
	if m.full && worst > 50*time.Millisecond {
		t.Errorf("a write took %v", worst)
	}
}

// firstWrite records when the first byte was written, and counts the bytes.
type firstWrite struct {
	began time.Time
	after time.Duration
	bytes int
}

func (s *firstWrite) Write(p []byte) (int, error) {
	if s.bytes == 0 {
		s.after = time.Since(s.began)
	}
	s.bytes += len(p)
	return len(p), nil
}
