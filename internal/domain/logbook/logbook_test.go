package logbook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/logbook/logbooktest"
	"sovereign/internal/plane/capture"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/plane/spool"
	"sovereign/internal/store/db"
	"sovereign/internal/text/fold"
	"sovereign/internal/text/segment"
)

// rowAt returns a row of a time.
func rowAt(t rapid.TB, at clock.Time, messages, response string) *capture.Row {
	t.Helper()
	chain, err := fold.Keys([]byte(messages), []byte(response))
	if err != nil {
		t.Fatal(err)
	}
	return &capture.Row{
		ID: id.At("log", at.Std()), Workspace: home, Key: "key_1", Request: "req_1", At: at, Expires: at.Add(7 * 24 * time.Hour), Model: "p/m", Requested: "p/m", Provider: "p",
		Finish: "stop", Prompt: 3, Completion: 4, Cost: 5, Exact: segment.Exact(capture.System([]byte(messages))), Chain: chain.Bytes(), Messages: []byte(messages), Response: []byte(response),
	}
}

// Every page and every count equals what a scan of all rows would find.
func TestEveryFilterFindsWhatThereIs(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		ctx, ingester, store, round := t.Context(), newIngester(t, d), NewStore(d), 0
		check := func(t *rapid.T) {
			round++
			ws := tenant.ID(fmt.Sprintf("ws_%d", round))
			now := clock.Now()
			type facts struct {
				row     *capture.Row
				segment string
			}
			prompts := []string{"", "You are the first of two assistants, and kind.", "Summarise what the customer of the shop has written in three words."}
			pick := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(t, name) }
			var all []facts
			at := now - 5*hour
			var rows []*capture.Row
			for range rapid.IntRange(1, 60).Draw(t, "rows") {
				at += clock.Time(rapid.Int64Range(1, int64(hour)/8).Draw(t, "later"))
				prompt := rapid.SampledFrom(prompts).Draw(t, "prompt")
				messages := `[{"role":"user","content":"Hi"}]`
				if prompt != "" {
					messages = fmt.Sprintf(`[{"role":"system","content":%q},{"role":"user","content":"Hi"}]`, prompt)
				}
				r := rowAt(t, at, messages, `{"role":"assistant","content":"Hello"}`)
				r.Workspace, r.Model, r.Tag, r.Finish, r.Trace = ws, pick("model", "p/a", "p/b"), pick("tag", "", "x", "y"), pick("finish", "stop", "length"), pick("trace", "", "run")
				r.Cached = rapid.Bool().Draw(t, "cached")
				if rapid.IntRange(0, 4).Draw(t, "over") == 0 {
					r.Expires = now - 1
				}
				rows = append(rows, r)
				name := None
				if prompt != "" {
					name = segment.Name(prompt)
				}
				all = append(all, facts{r, name})
			}
			for _, part := range [][]*capture.Row{rows[:len(rows)/2], rows[len(rows)/2:]} {
				if len(part) > 0 {
					if err := insertRows(ctx, ingester, part); err != nil {
						t.Fatal(err)
					}
				}
			}
			slices.Reverse(all)
			holds := func(when string) {
				for range 12 {
					f := Filters{Model: pick("model filter", "", "p/a", "p/none"), Tag: pick("tag filter", "", "", "x"), FinishReason: pick("finish filter", "", "stop", "length")}
					f.Segment = rapid.SampledFrom([]string{"", "", None, segment.Name(prompts[1])}).Draw(t, "segment filter")
					switch rapid.IntRange(0, 3).Draw(t, "hit filter") {
					case 0:
						yes := true
						f.CacheHit = &yes
					case 1:
						no := false
						f.CacheHit = &no
					}
					edges := []clock.Time{0, 0, now - 3*hour, (now - 2*hour) / hour * hour, all[len(all)/2].row.At, all[len(all)/2].row.At + 1}
					f.Start, f.End = rapid.SampledFrom(edges).Draw(t, "start"), rapid.SampledFrom(edges).Draw(t, "end")
					var want []string
					for _, one := range all {
						r := one.row
						if r.Expires > now && (f.Model == "" || f.Model == r.Model) && (f.Tag == "" || f.Tag == r.Tag) && (f.FinishReason == "" || f.FinishReason == r.Finish) &&
							(f.Segment == "" || f.Segment == one.segment) && (f.CacheHit == nil || *f.CacheHit == r.Cached) && r.At >= f.Start && (f.End == 0 || r.At < f.End) {
							want = append(want, r.ID)
						}
					}
					limit, offset := rapid.IntRange(1, 20).Draw(t, "limit"), rapid.IntRange(0, 40).Draw(t, "offset")
					got, total, err := store.List(ctx, ws, &f, limit, offset)
					if err != nil {
						t.Fatal(err)
					}
					var ids []string
					for _, r := range got {
						ids = append(ids, r.ID)
					}
					page := want[min(offset, len(want)):min(offset+limit, len(want))]
					if total != int64(len(want)) || !slices.Equal(ids, page) {
						t.Fatalf("%s, %+v, %d from %d: %d rows %v; want %d, %v", when, f, limit, offset, total, ids, len(want), page)
					}
				}
			}
			holds("before the deletion")
			if _, err := ingester.DeleteExpired(ctx, now); err != nil {
				t.Fatal(err)
			}
			holds("after it")
			steps, count := int64(0), map[string]int64{}
			var first, last clock.Time // without a system prompt
			for _, one := range all {
				if one.row.Expires > now {
					count[one.segment]++
					if one.segment == None {
						first, last = one.row.At, max(last, one.row.At) // the newest is the first of all
					}
					if one.row.Trace != "" {
						steps++
					}
				}
			}
			segments, err := store.Segments(ctx, ws, 100, 0)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]int64{}
			for _, s := range segments {
				got[s.ID] = s.Count
				if s.ID == None && (s.FirstAt != first || s.LastAt != last) {
					t.Fatalf("exchanges without a system prompt are of %v to %v, want %v to %v", s.FirstAt, s.LastAt, first, last)
				}
			}
			if !maps.Equal(got, count) {
				t.Fatalf("segments %v, want %v", got, count)
			}
			runs, err := store.Traces(ctx, ws, 100, 0)
			if err != nil {
				t.Fatal(err)
			}
			if steps == 0 && len(runs) != 0 || steps > 0 && (len(runs) != 1 || runs[0].Steps != steps || runs[0].PromptTokens != 3*steps || runs[0].CostUSD != money.Nano(5*steps)) {
				t.Fatalf("runs %+v, want %d steps", runs, steps)
			}
			none, err := db.One[int64](ctx, d.In(ws), `SELECT COUNT(*) FROM log_counts WHERE workspace_id = $1 AND n <= 0`)
			if err != nil || none != 0 {
				t.Fatalf("%d counts of nothing, %v", none, err)
			}
		}
		if d.Engine == db.Postgres {
			limitChecks(t, 25) // both engines run the same SQL; a round trip costs more here
		}
		rapid.Check(t, check)
	})
}

// limitChecks lowers the number of cases that rapid runs in this test.
func limitChecks(t *testing.T, n int) {
	t.Helper()
	checks := flag.Lookup("rapid.checks").Value
	before := checks.String()
	if m, err := strconv.Atoi(before); err != nil || m <= n {
		return
	}
	if err := checks.Set(strconv.Itoa(n)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = checks.Set(before) })
}

// Rows move from the spool to the database once, whatever dies when.
func TestEveryRowIsIngestedOnce(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		disk := journaltest.NewDisk()
		var s *spool.Spool
		var ingester *Ingester
		start := func() {
			at, err := Position(ctx, d, "jrn_1")
			if err != nil {
				t.Fatal(err)
			}
			if s, err = spool.Open(disk, at, 1<<30); err != nil {
				t.Fatal(err)
			}
			s.Limit = 2_000
			ingester = NewIngester(d, s, "jrn_1", slog.New(slog.DiscardHandler))
		}
		start()
		at, made := clock.Now(), 0
		put := func(n int) {
			for range n {
				made++
				at++
				row := rowAt(t, at, fmt.Sprintf(`[{"role":"user","content":"%d"}]`, made), `{"role":"assistant","content":"Hello"}`)
				if !s.Append(row.Append(nil)) || !s.Append(drawAt(at, "src_1", int64(made)).Append(nil)) {
					t.Fatal("no room")
				}
			}
		}
		for round := range 12 {
			put(round + 1)
			switch round % 4 {
			case 0: // the process dies
				disk = disk.Crash()
				start()
			case 1: // the commit is not answered: once it took effect, once it did not
				batch, err := s.Read(ingester.at, 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				if round == 1 {
					if err := ingester.commitBatch(ctx, batch.Next, ingester.parseAll(batch.Records), ingester.insert); err != nil {
						t.Fatal(err)
					}
				}
				ingester.positionKnown = false
			case 2: // a record that cannot be read
				s.Append([]byte("?"))
			case 3: // a commit takes effect that this ingester does not know of; its rows are not ingested again
				if err := NewIngester(d, s, "jrn_1", slog.New(slog.DiscardHandler)).Ingest(ctx); err != nil {
					t.Fatal(err)
				}
				put(1)
				if err := ingester.Ingest(ctx); !errors.Is(err, errCursorMoved) {
					t.Fatalf("ingested twice: %v", err)
				}
			}
			if err := ingester.Ingest(ctx); err != nil {
				t.Fatal(err)
			}
			page, total, err := NewStore(d).List(ctx, home, &Filters{}, 1000, 0)
			if err != nil || total != int64(made) || len(page) != made {
				t.Fatalf("round %d: %d of %d rows, %d in the page, %v", round, total, made, len(page), err)
			}
			draws, err := NewStore(d).Draws(ctx, home, "fast", "ep_1", "src_1", 0, 1000)
			if err != nil || len(draws) != made || draws[made-1].Seq != int64(made) {
				t.Fatalf("round %d: %d draws of %d, %v", round, len(draws), made, err)
			}
		}
		if newest, err := ingester.Newest(ctx); err != nil || newest != at {
			t.Errorf("the newest row is of %v, and not of %v: %v", newest, at, err)
		}
		put(1)
		if newest, err := ingester.Newest(ctx); err != nil || newest != at {
			t.Errorf("the newest row is of %v, and not of %v, in the spool: %v", newest, at, err)
		}
		if err := ingester.emptySpool(ctx); err != nil {
			t.Fatal(err)
		}
		if waiting := s.State().Waiting; waiting > 3_000 {
			t.Errorf("%d bytes are still in the spool", waiting)
		}
		put(30)
		if err := ingester.Ingest(ctx); err != nil {
			t.Fatal(err)
		}
		start() // nothing new comes after it
		if err := errors.Join(ingester.Ingest(ctx), ingester.emptySpool(ctx)); err != nil {
			t.Fatal(err)
		}
		if waiting := s.State().Waiting; waiting > 3_000 {
			t.Errorf("%d bytes are still in the spool of the last process", waiting)
		}
	})
}

func TestWithoutTheDatabaseRowsWaitInTheSpool(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		ingester := newIngester(t, d)
		row := rowAt(t, clock.Now(), `[{"role":"user","content":"Hi"}]`, `{"role":"assistant","content":"Hello"}`)
		ingester.spool.Append(row.Append(nil))
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := ingester.Ingest(gone); err == nil {
			t.Error("ingested without a database")
		}
		if err := ingester.Ingest(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, err := NewStore(d).Get(t.Context(), home, row.ID)
		if err != nil || got.RequestID != "req_1" {
			t.Errorf("%+v, %v", got, err)
		}
		for _, other := range []struct {
			ws tenant.ID
			id string
		}{{"ws_other", row.ID}, {home, "log_nothing"}, {home, id.At("log", row.At.Std())}} {
			_, err := NewStore(d).Get(t.Context(), other.ws, other.id)
			var f *fault.Fault
			if !errors.As(err, &f) || f.Code != "not_found" {
				t.Errorf("%v: %v", other, err)
			}
		}
	})
}

func TestAnExportFoldsConversationsAndCountsWhatItSaw(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		ctx, ingester, at := t.Context(), newIngester(t, d), clock.Now()-100
		first, second := `{"role":"user","content":"1"}`, `{"role":"user","content":"2"}`
		said := `{"role":"assistant","content":"a"}`
		rows := []*capture.Row{
			rowAt(t, at, "["+first+"]", said),
			rowAt(t, at+1, "["+first+","+said+","+second+"]", `{"role":"assistant","content":"b","refusal":null}`),
			rowAt(t, at+2, `[{"role":"user","content":"alone"}]`, said),
		}
		rows[2].Tools = []byte(`[{"type":"function","function":{"name":"f"}}]`)
		if err := insertRows(ctx, ingester, rows); err != nil {
			t.Fatal(err)
		}
		export, err := NewStore(d).Export(ctx, home, &Filters{})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := export.Write(ctx, &out); err != nil {
			t.Fatal(err)
		}
		want := `{"messages":[{"role":"user","content":"alone"},{"role":"assistant","content":"a"}],"tools":[{"type":"function","function":{"name":"f"}}]}
{"messages":[{"role":"user","content":"1"},{"role":"assistant","content":"a","weight":1},{"role":"user","content":"2"},{"role":"assistant","content":"b","weight":1}]}
`
		if diff := cmp.Diff(want, out.String()); diff != "" || export.Count != 2 || export.Scanned != 3 || export.Capped {
			t.Errorf("%+v\n%s", export, diff)
		}
	})
}

// The full size is behind the same variable as TestMillionRows.
func TestAnExportIsCapped(t *testing.T) {
	most := 300
	if os.Getenv("SOVEREIGN_LOG_ROWS") != "" {
		most = MaxExport
	}
	eachLogs(t, func(t *testing.T, d *db.DB) {
		ctx, ingester, source := t.Context(), newIngester(t, d), logbooktest.New(home, most+10, clock.Now())
		for source.Made < most+10 {
			var rows []*capture.Row
			for range min(1000, most+10-source.Made) {
				rows = append(rows, source.Next(time.Hour*24*40))
			}
			if err := insertRows(ctx, ingester, rows); err != nil {
				t.Fatal(err)
			}
		}
		export, err := NewStore(d).export(ctx, home, &Filters{}, most)
		if err != nil || export.Count != most || export.Scanned != most || !export.Capped {
			t.Fatalf("%+v, %v", export, err)
		}
		var out bytes.Buffer
		if err := export.Write(ctx, &out); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(lines) != most || !strings.Contains(lines[0], fmt.Sprintf("Question %d:", most+10)) || !json.Valid([]byte(lines[most-1])) {
			t.Errorf("%d lines, the first %s", len(lines), lines[0])
		}
	})
}

// The families of prompts are the same after a restart, and are deleted with their last row.
func TestSegmentsAreStableAndEndWithTheirRows(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		ctx, at := t.Context(), clock.Now()
		say := func(day, n int) *capture.Row {
			at++
			system := fmt.Sprintf("You sort the letters of an insurance company into claims, complaints and the rest. Today is 2026-11-%02d. Answer with one word.", day)
			return rowAt(t, at, fmt.Sprintf(`[{"role":"system","content":%q},{"role":"user","content":"%d"}]`, system, n), `{"role":"assistant","content":"claim"}`)
		}
		for day := 1; day <= 3; day++ { // a new ingester each time
			if err := insertRows(ctx, newIngester(t, d), []*capture.Row{say(day, 1), say(day, 2)}); err != nil {
				t.Fatal(err)
			}
		}
		segments, err := NewStore(d).Segments(ctx, home, 10, 0)
		if err != nil || len(segments) != 1 || segments[0].Count != 6 || segments[0].Variants != 3 || !strings.HasPrefix(segments[0].Sample, "You sort the letters") {
			t.Fatalf("%+v, %v", segments, err)
		}
		if n, err := newIngester(t, d).DeleteExpired(ctx, at.Add(8*24*time.Hour)); n != 6 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		for _, table := range []string{"log_rows", "log_counts", "log_variants", "log_families", "log_traces"} {
			left, err := db.One[int64](ctx, d.Across("a test"), "SELECT COUNT(*) FROM "+table)
			if err != nil || left != 0 {
				t.Errorf("%d rows are left in %s, %v", left, table, err)
			}
		}
	})
}

// Lost rows are logged, once for those lost since the last report.
func TestLostRowsAreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	s, err := spool.Open(journaltest.NewDisk(), spool.Position{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	ingester := NewIngester(nil, s, "jrn_1", slog.New(slog.NewTextHandler(&log, nil)))
	for range 5 {
		s.Append(make([]byte, 60))
	}
	for range 3 {
		if err := ingester.reportLost(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if text := log.String(); strings.Count(text, "level=ERROR") != 1 || !strings.Contains(text, "rows=4") {
		t.Errorf("%s", text)
	}
}

// An export holds a few rows at a time, however large they are.
func TestAnExportHoldsLittleInMemory(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		ctx, ingester, at := t.Context(), newIngester(t, d), clock.Now()-10_000
		text := strings.Repeat("many words ", 20_000)
		const rows = 160 // of 220 KB
		for i := 0; i < rows; i += 20 {
			var batch []*capture.Row
			for j := range 20 {
				batch = append(batch, rowAt(t, at+clock.Time(i+j), fmt.Sprintf(`[{"role":"user","content":"%d %s"}]`, i+j, text), `{"role":"assistant","content":"Hello"}`))
			}
			if err := insertRows(ctx, ingester, batch); err != nil {
				t.Fatal(err)
			}
		}
		export, err := NewStore(d).Export(ctx, home, &Filters{})
		if err != nil || export.Count != rows {
			t.Fatal(export, err)
		}
		var peak watermark
		runtime.GC()
		var before runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := export.Write(ctx, &peak); err != nil {
			t.Fatal(err)
		}
		if grown := int64(peak.most) - int64(before.HeapAlloc); peak.bytes < 32<<20 || grown > 16<<20 {
			t.Errorf("%d bytes were written, and the heap grew by %d", peak.bytes, grown)
		}
	})
}

// A watermark measures how much memory was in use while something was written.
type watermark struct {
	bytes int
	most  uint64
}

func (w *watermark) Write(p []byte) (int, error) {
	if w.bytes += len(p); w.bytes%(4<<20) < len(p) {
		runtime.GC() // what is left is in use
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		w.most = max(w.most, now.HeapAlloc)
	}
	return len(p), nil
}

// A row that the database refuses is lost alone.
func TestARowThatIsRefusedBlocksNoOther(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		want := int64(4)
		if d.Engine == db.SQLite { // which holds any text
			want = 5
		}
		ingester, at := newIngester(t, d), clock.Now()
		for i := range 5 {
			row := rowAt(t, at+clock.Time(i), `[{"role":"user","content":"Hi"}]`, `{"role":"assistant","content":"Hello"}`)
			if i == 2 {
				row.Finish = "a\x00b"
			}
			ingester.spool.Append(row.Append(nil))
		}
		if err := ingester.Ingest(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, total, err := NewStore(d).List(t.Context(), home, &Filters{}, 10, 0); err != nil || total != want {
			t.Errorf("%d rows, want %d, %v", total, want, err)
		}
	})
}

// An ingester that was idle ingests a new row, and deletes it when it expires, although it had nothing to wait for
// before.
func TestAnIdleIngesterIngestsAndDeletesNewRows(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		t.Parallel() // with the other engine: most of it is waiting
		ingester := newIngester(t, d)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { ingester.Run(ctx); close(ended) }()
		await := func(what string, reached func() bool) {
			t.Helper()
			for deadline := time.Now().Add(2 * time.Minute); !reached(); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("the row is not %s", what)
				}
			}
		}
		time.Sleep(deleteEvery + 3*ingestEvery) // until it is idle
		for range 2 {
			row := rowAt(t, clock.Now(), `[{"role":"user","content":"Hi"}]`, `{"role":"assistant","content":"Hello"}`)
			row.Expires = clock.Now().Add(300 * time.Millisecond)
			ingester.spool.Append(row.Append(nil))
			end := ingester.spool.End()
			await("ingested", func() bool { at := ingester.ingested.Load(); return at != nil && !at.Before(end) })
			await("deleted", func() bool {
				count, err := db.One[int64](ctx, d.Across("test"), `SELECT COUNT(*) FROM log_rows`)
				if err != nil {
					t.Fatal(err)
				}
				return count == 0
			})
		}
		stop()
		<-ended
	})
}

func TestTheNextExpiryIsKnownWithoutAQuery(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		ctx, ingester, now := t.Context(), newIngester(t, d), clock.Now()
		if first, err := firstExpiry(ctx, d); err != nil || first < now.Add(1000*24*time.Hour) {
			t.Errorf("of nothing: %v, %v", first, err)
		}
		if err := ingester.deleteExpiredWhenDue(ctx); err != nil || ingester.nextExpiry < now || ingester.nextExpiry > clock.Now().Add(time.Minute) {
			t.Errorf("asked again at %v, %v", ingester.nextExpiry, err)
		}
		row := rowAt(t, now, `[{"role":"user","content":"Hi"}]`, `{"role":"assistant","content":"Hello"}`)
		row.Expires = now.Add(2 * time.Second)
		ingester.spool.Append(row.Append(nil))
		if err := ingester.Ingest(ctx); err != nil || ingester.nextExpiry != row.Expires {
			t.Errorf("after a row until %v: %v, %v", row.Expires, ingester.nextExpiry, err)
		}
		if first, err := firstExpiry(ctx, d); err != nil || first != row.Expires {
			t.Errorf("%v, %v", first, err)
		}
	})
}
