package logbook

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/capture"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/plane/spool"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/text/fold"
	"sovereign/internal/text/segment"
)

const home tenant.ID = "ws_home"

// logsOn runs test on a fresh database of logs of each engine.
func eachLogs(t *testing.T, test func(t *testing.T, d *db.DB)) {
	t.Helper()
	dbtest.EachURL(t, func(t *testing.T, folder string, url secret.Text) {
		t.Helper()
		d, err := db.OpenLogs(t.Context(), folder, url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		if err := d.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		test(t, d)
	})
}

func newIngester(t testing.TB, d *db.DB) *Ingester {
	t.Helper()
	s, err := spool.Open(journaltest.NewDisk(), spool.Position{}, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	return NewIngester(d, s, "jrn_test", slog.New(slog.DiscardHandler))
}

// enterRows enters rows as the clerk does.
func insertRows(ctx context.Context, c *Ingester, rows []*capture.Row) error {
	_, err := c.db.Tx(ctx, func(tx *db.Tx) error { return c.insertRows(ctx, tx, rows) })
	return err
}

// million makes rows like those of a busy month, the oldest first.
type rowSource struct {
	random *rand.Rand
	tags   *rand.Zipf
	from   clock.Time
	step   clock.Time
	made   int
}

func newRowSource(rows int, until clock.Time) *rowSource {
	random := rand.New(rand.NewPCG(1, 2))
	const month = 30 * 24 * hour
	return &rowSource{random: random, tags: rand.NewZipf(random, 1.2, 1, 199), from: until - month, step: month / clock.Time(rows)}
}

// prompts are forty that have no words in common.
var prompts = func() (all []string) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 40 {
		var words []string
		for range 30 {
			var word []byte
			for range 7 {
				word = append(word, byte('a'+random.IntN(26)))
			}
			words = append(words, string(word))
		}
		all = append(all, strings.Join(words, " "))
	}
	return all
}()

var finishes = []string{"stop", "stop", "stop", "stop", "stop", "stop", "stop", "tool_calls", "length", "content_filter"}

func (m *rowSource) next(retention time.Duration) *capture.Row {
	m.made++
	prompt := fmt.Sprintf("%s Today is day %d.", prompts[m.random.IntN(len(prompts))], m.random.IntN(40))
	messages := fmt.Sprintf(`[{"role":"system","content":%q},{"role":"user","content":"Question %d: %s"}]`, prompt, m.made, strings.Repeat("what is it ", m.random.IntN(20)))
	response := fmt.Sprintf(`{"role":"assistant","content":"Answer %d"}`, m.made)
	chain, err := fold.Keys([]byte(messages), []byte(response))
	if err != nil {
		panic(err)
	}
	r := &capture.Row{
		ID: fmt.Sprintf("log_%026d", m.made), Workspace: home, Key: "key_1", Request: fmt.Sprintf("req_%026d", m.made), At: m.from + clock.Time(m.made)*m.step,
		Model: fmt.Sprintf("provider/model-%d", m.random.IntN(12)), Requested: "fast", Provider: "provider", Exact: segment.Exact(prompt),
		Finish: finishes[m.random.IntN(len(finishes))], Cached: m.random.IntN(10) == 0, Prompt: 100, Completion: 20, Cost: money.Nano(1000),
		Chain: chain.Bytes(), Messages: []byte(messages), Response: []byte(response),
	}
	if m.random.IntN(2) == 0 {
		r.Tag = fmt.Sprintf("task-%d", m.tags.Uint64())
	}
	if m.random.IntN(5) == 0 {
		r.Trace = fmt.Sprintf("run-%d", m.made/20)
	}
	r.Expires = r.At.Add(retention)
	return r
}

func percentile(all []time.Duration, p float64) time.Duration {
	slices.Sort(all)
	return all[min(len(all)-1, int(float64(len(all))*p))]
}

// What a million rows cost whoever reads, writes and deletes, on both storages. It takes minutes:
//
//	SOVEREIGN_LOG_ROWS=1000000 go test ./internal/domain/logbook -run TestMillion -v -timeout 60m
func TestMillionRows(t *testing.T) {
	rows := 2_000
	full := os.Getenv("SOVEREIGN_LOG_ROWS") != ""
	if full {
		if _, err := fmt.Sscan(os.Getenv("SOVEREIGN_LOG_ROWS"), &rows); err != nil {
			t.Fatal(err)
		}
	}
	eachLogs(t, func(t *testing.T, d *db.DB) {
		ctx, clerk, store := t.Context(), newIngester(t, d), NewStore(d)
		now := clock.Now()
		source := newRowSource(rows, now)
		began := time.Now()
		var batch []*capture.Row
		for range rows {
			if batch = append(batch, source.next(90*24*time.Hour)); len(batch) == 2000 || source.made == rows {
				if err := insertRows(ctx, clerk, batch); err != nil {
					t.Fatal(err)
				}
				batch = nil
			}
		}
		t.Logf("%d rows entered in %v, %v each", rows, time.Since(began).Round(time.Second), time.Since(began)/time.Duration(rows))

		if d.Engine == db.Postgres { // as the server does by itself, within a minute
			if _, err := db.Exec(ctx, d.Across("a test"), `VACUUM ANALYZE log_rows`); err != nil {
				t.Fatal(err)
			}
		}
		yes, no := true, false
		segments, err := store.Segments(ctx, home, 1000, 0)
		if err != nil {
			t.Fatal(err)
		}
		some := segments[len(segments)/2].ID
		ago := func(days int) clock.Time { return now - clock.Time(days)*24*hour + 12345 }
		single := map[string]Filters{
			"none": {}, "model": {Model: "provider/model-3"}, "tag, common": {Tag: "task-0"}, "tag, rare": {Tag: "task-190"}, "segment": {Segment: some},
			"finish": {FinishReason: "length"}, "hit": {CacheHit: &yes}, "miss": {CacheHit: &no}, "start": {Start: ago(10)}, "end": {End: ago(10)},
			"unknown": {Tag: "nobody's"},
		}
		several := map[string]Filters{
			"model and tag": {Model: "provider/model-3", Tag: "task-0"}, "all": {Model: "provider/model-3", Tag: "task-1", Segment: some, FinishReason: "stop", CacheHit: &no, Start: ago(20), End: ago(2)},
			"common ones": {FinishReason: "stop", CacheHit: &no}, "model, between": {Model: "provider/model-3", Start: ago(20), End: ago(2)},
			"rare together": {Tag: "task-150", FinishReason: "content_filter", CacheHit: &yes}, "segment and finish": {Segment: some, FinishReason: "tool_calls"},
		}
		measure := func(name string, f Filters, most time.Duration) {
			var took []time.Duration
			var total int64
			for i := range 40 {
				offset := 0
				if i%4 == 3 && total > 200 {
					offset = source.random.IntN(int(total) - 100)
				}
				at := time.Now()
				page, n, err := store.List(ctx, home, &f, 50, offset)
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
			if full && p99 > most {
				t.Errorf("%s takes %v", name, p99)
			}
		}
		for name, f := range single {
			measure(name, f, 50*time.Millisecond)
		}
		for name, f := range several {
			measure(name, f, 500*time.Millisecond)
		}

		at := time.Now()
		export, err := store.Export(ctx, home, &Filters{})
		if err != nil {
			t.Fatal(err)
		}
		first := &stopped{began: at}
		runtime.GC()
		if err := export.Write(ctx, first); err != nil {
			t.Fatal(err)
		}
		t.Logf("an export of %d begins after %v, and takes %v, %d bytes", export.Count, first.after.Round(time.Millisecond), time.Since(at).Round(time.Millisecond), first.bytes)

		beside, rest := context.WithCancel(ctx)
		defer rest()
		go clerk.repeat(beside, checkpointEvery, nil, clerk.emptySpool, "the spool cannot be emptied")
		stop, writes := make(chan struct{}), []time.Duration{}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
				}
				row := source.next(90 * 24 * time.Hour)
				row.At, row.ID = row.At+1, fmt.Sprintf("log_%026d", 5_000_000+source.made)
				at := time.Now()
				_ = clerk.acquire(ctx) // as the clerk does
				err := insertRows(ctx, clerk, []*capture.Row{row})
				clerk.release()
				if err != nil {
					t.Error(err)
					return
				}
				writes = append(writes, time.Since(at))
				time.Sleep(5 * time.Millisecond)
			}
		}()
		at = time.Now()
		gone, err := clerk.DeleteExpired(ctx, now.Add(90*24*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		close(stop)
		<-done
		t.Logf("%d rows deleted in %v; %d writes meanwhile: p50 %v, p99 %v, longest %v", gone, time.Since(at).Round(time.Second), len(writes),
			percentile(writes, .5).Round(time.Millisecond), percentile(writes, .99).Round(time.Millisecond), percentile(writes, 1).Round(time.Millisecond))
		if worst := percentile(writes, 1); full && worst > 50*time.Millisecond {
			t.Errorf("a write took %v", worst)
		}
	})
}

type stopped struct {
	began time.Time
	after time.Duration
	bytes int
}

func (s *stopped) Write(p []byte) (int, error) {
	if s.bytes == 0 {
		s.after = time.Since(s.began)
	}
	s.bytes += len(p)
	return len(p), nil
}
