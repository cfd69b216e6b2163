package logbook

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/plane/capture"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/plane/spool"
	"sovereign/internal/store/api"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// twoServers returns the ingesters of two servers that share a PostgreSQL.
func twoServers(t *testing.T) (d *db.DB, a, b *Ingester) {
	t.Helper()
	d = dbtest.MigratedLogs(t, db.Postgres)
	server := func(source string) *Ingester {
		s, err := spool.Open(journaltest.NewDisk(), spool.Position{}, 1<<40)
		if err != nil {
			t.Fatal(err)
		}
		return NewIngester(d, s, source, slog.New(slog.DiscardHandler))
	}
	return d, server("jrn_a"), server("jrn_b")
}

// ingested ingests rows at a server.
func ingested(t *testing.T, c *Ingester, rows ...*capture.Row) {
	t.Helper()
	spooled(t, c, rows...)
	if err := c.Ingest(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// polled finds what other servers have ingested.
func polled(t *testing.T, c *Ingester) {
	t.Helper()
	if err := c.tailOthers(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// plain returns a row of now.
func plain(t *testing.T) *capture.Row {
	t.Helper()
	return rowAt(t, clock.Now(), `[{"role":"user","content":"Hi"}]`, `{"role":"assistant","content":"Hello"}`)
}

func wantTailed(t *testing.T, l *Listener, rows ...*capture.Row) (events []api.Event) {
	t.Helper()
	var want []string
	for _, r := range rows {
		want = append(want, "log "+r.ID)
	}
	events = l.Take()
	if got := names(events); got != strings.Join(want, ", ") {
		t.Errorf("%s\nwant %s", got, strings.Join(want, ", "))
	}
	return events
}

func TestATailHasTheRowsOfAllServersOnce(t *testing.T) {
	d, a, b := twoServers(t)
	ingested(t, b, plain(t))
	polled(t, a)
	if a.cursors != nil {
		t.Error("cursors are read although nobody listens")
	}
	all, tagged := listen(t, &a.Tail, home, Filters{}), listen(t, &a.Tail, home, Filters{Tag: "a"})
	mine, other, theirs := plain(t), plain(t), plain(t)
	other.Tag, other.Trace, theirs.Workspace = "a", "run", "ws_theirs"
	ingested(t, a, mine)
	ingested(t, b, other, theirs)
	polled(t, a)
	wantTailed(t, all, mine, other)
	events := wantTailed(t, tagged, other)
	listed, _, err := NewStore(d).List(t.Context(), home, &Filters{Tag: "a"}, 1, 0)
	if err != nil || len(listed) != 1 || len(events) != 1 {
		t.Fatal(listed, events, err)
	}
	want, err := api.Render(listed[0])
	if got := events[0].Data.(api.Rendered); err != nil || string(got) != string(want) {
		t.Errorf("%s\nwant, as it is listed\n%s, %v", got, want, err)
	}
	polled(t, a)
	wantTailed(t, all)

	// This server's next row is in the range of times that the other's next one makes it read.
	late, next, old := plain(t), plain(t), plain(t)
	own := plain(t)
	old.At = old.At.Add(-2 * tailOldest)
	ingested(t, a, own)
	ingested(t, b, old, next, late)
	polled(t, a)
	wantTailed(t, all, own, late, next)
	a.Tail.publish([]tailed{{row: next}, {row: own}}, time.Now()) // as if it had been read before it was published
	wantTailed(t, all)

	all.Close()
	tagged.Close()
	polled(t, a)
	if a.cursors != nil || a.Tail.seen.young != nil {
		t.Error("cursors or ids are kept although nobody listens")
	}
}

func TestATailGetsABoundedNumberOfRowsOfOtherServers(t *testing.T) {
	_, a, b := twoServers(t)
	all, tagged := listen(t, &a.Tail, home, Filters{}), listen(t, &a.Tail, home, Filters{Tag: "last"})
	var rows []*capture.Row
	for range tailPerSecond + 7 {
		rows = append(rows, plain(t))
	}
	last := rows[len(rows)-1]
	last.Tag = "last"
	ingested(t, b, rows...)
	polled(t, a)
	events := all.Take()
	if end := events[len(events)-1]; len(events) != tailPerSecond+1 || end.Data != (Dropped{7}) {
		t.Errorf("%d events, the last %+v", len(events), end)
	}
	wantTailed(t, tagged, last)

	// Of large rows, no more are read than may wait.
	all = listen(t, &a.Tail, home, Filters{})
	text := fmt.Sprintf(`[{"role":"user","content":%q}]`, strings.Repeat("a", tailBytes*5/8))
	for range 3 {
		ingested(t, b, rowAt(t, clock.Now(), text, `{"role":"assistant","content":"Hello"}`))
	}
	polled(t, a)
	if events := all.Take(); len(events) != 2 || events[1].Data != (Dropped{2}) {
		t.Errorf("%d events, the last %+v", len(events), events[len(events)-1].Data)
	}
}

// A server that ends leaves rows that the others have not ingested.
func TestTheRowsOfAServerThatEndedAreDeletedByTheOthers(t *testing.T) {
	d, a, b := twoServers(t)
	if err := a.deleteExpiredWhenDue(t.Context()); err != nil {
		t.Fatal(err)
	}
	row := plain(t)
	row.Expires = clock.Now().Add(10 * time.Millisecond)
	ingested(t, b, row)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if err := a.deleteExpiredWhenDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		n, err := db.One[int64](t.Context(), d.Across("a test"), `SELECT COUNT(*) FROM log_rows`)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the row is not deleted")
		}
	}
}

// prompted returns a row with a system prompt: a task's instructions, of which one word varies, but is no value.
func prompted(t *testing.T, task, word string) *capture.Row {
	t.Helper()
	var words []string
	for i := range 60 {
		words = append(words, task+string(rune('a'+i%26))+string(rune('a'+i/26)))
	}
	words[57] = word
	return rowAt(t, clock.Now(), fmt.Sprintf(`[{"role":"system","content":%q},{"role":"user","content":"Hi"}]`,
		strings.Join(words, " ")), `{"role":"assistant","content":"Hello"}`)
}

func wantSegments(t *testing.T, d *db.DB, want int) []Segment {
	t.Helper()
	all, err := NewStore(d).Segments(t.Context(), home, 1000, 0)
	if err != nil || len(all) != want {
		t.Fatalf("%d families, want %d: %+v, %v", len(all), want, all, err)
	}
	return all
}

func TestServersGiveSimilarPromptsOneFamily(t *testing.T) {
	d, a, b := twoServers(t)
	ingested(t, a, prompted(t, "first", "one"))
	ingested(t, b, prompted(t, "first", "two"), prompted(t, "second", "one"))
	ingested(t, a, prompted(t, "second", "two"))
	ingested(t, b, prompted(t, "second", "three"))
	for _, s := range wantSegments(t, d, 2) {
		if s.Variants != s.Count || s.Variants < 2 {
			t.Errorf("%+v", s)
		}
	}
}

func TestServersThatMakeAFamilyAtOnceMakeOne(t *testing.T) {
	d, a, b := twoServers(t)
	ingested(t, a, prompted(t, "known", "one"))
	ingested(t, b, prompted(t, "known", "two"))
	const tasks = 12
	for i := range tasks {
		task := "task" + string(rune('a'+i))
		var both sync.WaitGroup
		for word, c := range map[string]*Ingester{"one": a, "two": b} {
			spooled(t, c, prompted(t, task, word))
			both.Go(func() {
				if err := c.Ingest(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
	}
	wantSegments(t, d, tasks+1)
}

// What another server has deleted is stored whole when its prompt recurs.
func TestAPromptThatAnotherServerHasDeletedIsStoredAgain(t *testing.T) {
	d, a, b := twoServers(t)
	for _, word := range []string{"one", "two"} { // the second time, the family is known, and the prompt is new
		gone := prompted(t, "task", "one")
		gone.Expires = clock.Now() - 1
		ingested(t, a, gone)
		if _, err := b.DeleteExpired(t.Context(), clock.Now()); err != nil {
			t.Fatal(err)
		}
		ingested(t, a, prompted(t, "task", word))
		all := wantSegments(t, d, 1)
		printed, err := db.One[int64](t.Context(), d.In(home),
			`SELECT COUNT(*) FROM log_families WHERE workspace_id = $1 AND LENGTH(print) > 0`)
		if err != nil || printed != 1 || all[0].Sample == "" {
			t.Errorf("%s: %d families with prints, %v, %+v", word, printed, err, all)
		}
		if _, err := b.DeleteExpired(t.Context(), clock.Now().Add(30*24*time.Hour)); err != nil {
			t.Fatal(err)
		}
		clear(a.families)
	}
}

// sameTimes returns rows of a few times, in the order in which they are listed, with others that are not listed by a
// filter of the tag a.
func sameTimes(t *testing.T, at clock.Time, groups ...int) (stored, listed []*capture.Row) {
	t.Helper()
	for i, n := range groups {
		for j := range n {
			row := rowAt(t, at+clock.Time(i), fmt.Sprintf(`[{"role":"user","content":"%d %d"}]`, i, j),
				`{"role":"assistant","content":"Hello"}`)
			row.Tag, row.Trace = "a", "run"
			listed = append(listed, row)
		}
		for _, tag := range []string{"a", "b"} {
			row := rowAt(t, at+clock.Time(i), `[{"role":"user","content":"hidden"}]`, `{"role":"assistant","content":"Hello"}`)
			if row.Tag = tag; tag == "a" {
				row.Expires = at
			}
			stored = append(stored, row)
		}
	}
	stored = append(stored, listed...)
	slices.SortFunc(listed, func(a, b *capture.Row) int {
		return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(b.ID, a.ID))
	})
	return stored, listed
}

// Servers that share a database log rows with the same times.
func TestPagesOfRowsWithOneTimeLoseAndRepeatNone(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		c, store := newIngester(t, d), NewStore(d)
		stored, rows := sameTimes(t, clock.Now().Add(-time.Minute), 1, 9, 2, 3)
		if err := insertRows(t.Context(), c, stored); err != nil {
			t.Fatal(err)
		}
		for _, f := range []Filters{{Tag: "a"}, {Tag: "a", Model: "p/m"}} {
			for limit := 1; limit <= len(rows)+1; limit++ {
				for offset := range len(rows) + 1 {
					page, total, err := store.List(t.Context(), home, &f, limit, offset)
					want := rows[offset:min(offset+limit, len(rows))]
					same := slices.EqualFunc(page, want, func(got Row, want *capture.Row) bool { return got.ID == want.ID })
					if err != nil || total != int64(len(rows)) || !same {
						t.Fatalf("%+v, %d from %d: %d rows of %d, want %d, %v", f, limit, offset, len(page), total, len(want), err)
					}
				}
			}
		}
		if _, err := c.DeleteExpired(t.Context(), clock.Now()); err != nil { // then whole hours are skipped
			t.Fatal(err)
		}
		slices.Reverse(rows) // the steps of a run, oldest first
		for offset := range rows {
			_, steps, err := store.Trace(t.Context(), home, "run", 1, offset)
			if err != nil || len(steps) != 1 || steps[0].ID != rows[offset].ID {
				t.Fatalf("step %d: %+v, %v", offset, steps, err)
			}
		}
	})
}

func TestAnExportOfRowsWithOneTimeLosesAndRepeatsNone(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		c, store := newIngester(t, d), NewStore(d)
		stored, rows := sameTimes(t, clock.Now().Add(-time.Minute), exportBatch-3, exportBatch+5, 2*exportBatch)
		if err := insertRows(t.Context(), c, stored); err != nil {
			t.Fatal(err)
		}
		for _, most := range []int{exportBatch + 20, len(rows)} {
			export, err := store.export(t.Context(), home, &Filters{Tag: "a"}, most)
			if err != nil || export.Count != most || export.Capped != (most < len(rows)) {
				t.Fatalf("%+v, %v", export, err)
			}
			late := *stored[len(stored)-1] // another server ingests it meanwhile
			late.ID += "_late"
			if err := insertRows(t.Context(), c, []*capture.Row{&late}); err != nil {
				t.Fatal(err)
			}
			var out, want bytes.Buffer
			for _, r := range rows[:most] {
				fmt.Fprintf(&want, `{"messages":[%s,{"role":"assistant","content":"Hello"}]}`+"\n", bytes.Trim(r.Messages, "[]"))
			}
			if err := export.Write(t.Context(), &out); err != nil || out.String() != want.String() {
				t.Errorf("%d rows: %d lines, want %d, %v", most, strings.Count(out.String(), "\n"), most, err)
			}
			if _, err := db.Exec(t.Context(), d.In(home),
				`DELETE FROM log_rows WHERE workspace_id = $1 AND id = $2`, late.ID); err != nil {
				t.Fatal(err)
			}
		}
	})
}
