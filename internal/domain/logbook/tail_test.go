package logbook

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/logbook/logbooktest"
	"sovereign/internal/plane/capture"
	"sovereign/internal/store/api"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

func always() bool { return true }

func listen(t *testing.T, tail *Tail, ws tenant.ID, f Filters) *Listener {
	t.Helper()
	l, err := tail.Listen(ws, f, always)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// spooled appends rows to the spool, as the recorder does.
func spooled(t *testing.T, c *Ingester, rows ...*capture.Row) {
	t.Helper()
	for _, r := range rows {
		c.spool.Append(r.Append(nil))
	}
}

func names(events []api.Event) string {
	all := make([]string, len(events))
	for i, e := range events {
		all[i] = e.Name + " " + e.ID
	}
	return strings.Join(all, ", ")
}

func TestATailHasTheRowsThatItsFiltersSelect(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		c, source := newIngester(t, d), logbooktest.New(home, 10, clock.Now())
		mine, other := source.Next(90*24*time.Hour), source.Next(90*24*time.Hour)
		mine.Tag, other.Tag = "a", "b"
		theirs := source.Next(24 * time.Hour)
		theirs.Workspace, theirs.Tag = "ws_theirs", "a"
		all, tagged := listen(t, &c.Tail, home, Filters{}), listen(t, &c.Tail, home, Filters{Tag: "a"})
		spooled(t, c, mine, other, theirs)
		if err := c.Ingest(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-all.Wake()
		if got, want := names(all.Take()), "log "+mine.ID+", log "+other.ID; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		events := tagged.Take()
		if got, want := names(events), "log "+mine.ID; got != want {
			t.Fatalf("%s, want %s", got, want)
		}
		listed, _, err := NewStore(d).List(t.Context(), home, &Filters{Tag: "a"}, 1, 0)
		if err != nil || len(listed) != 1 {
			t.Fatal(listed, err)
		}
		want, err := api.Render(listed[0])
		if got := events[0].Data.(api.Rendered); err != nil || string(got) != string(want) {
			t.Errorf("%s\nwant, as it is listed\n%s, %v", got, want, err)
		}
	})
}

func TestASlowTailIsToldWhatItMissed(t *testing.T) {
	var tail Tail
	l := listen(t, &tail, home, Filters{})
	var rows []tailed
	for i := range tailPerSecond + 7 {
		rows = append(rows, tailed{row: &capture.Row{ID: fmt.Sprint("log_", i), Workspace: home}})
	}
	now := time.Now()
	tail.publish(rows, now)
	events := l.Take()
	if last := events[len(events)-1]; len(events) != tailPerSecond+1 || last.Name != "dropped" || last.Data != (Dropped{7}) {
		t.Errorf("%d events, the last %+v", len(events), last)
	}
	large := append(append([]byte{'"'}, bytes.Repeat([]byte{'a'}, tailBytes)...), '"')
	tail.publish([]tailed{
		{row: &capture.Row{ID: "log_a", Workspace: home, Messages: large}},
		{row: &capture.Row{ID: "log_b", Workspace: home, Messages: large}},
	}, now.Add(time.Minute))
	if got := names(l.Take()); got != "log log_a, dropped " {
		t.Errorf("%s: more than a few MiB wait", got)
	}
}

// However fast rows come, and however fast it takes them, a tail gets a bounded number of them: the gateway does not
// pay for readers who cannot read so fast.
func TestATailGetsABoundedNumberOfRowsInASecond(t *testing.T) {
	var tail Tail
	l, now, got, missed := listen(t, &tail, home, Filters{}), time.Now(), 0, int64(0)
	const seconds, batches, rows = 10, 50, 300
	for i := range seconds * batches {
		var some []tailed
		for range rows {
			some = append(some, tailed{row: &capture.Row{ID: "log_1", Workspace: home}})
		}
		tail.publish(some, now.Add(time.Duration(i)*time.Second/batches))
		for _, e := range l.Take() {
			if told, is := e.Data.(Dropped); is {
				missed += told.Count
			} else {
				got++
			}
		}
	}
	if least, most := (seconds-1)*tailPerSecond, (seconds+1)*tailPerSecond; got < least || got > most || int64(got)+missed != seconds*batches*rows {
		t.Errorf("%d rows, and %d missed; want %d to %d", got, missed, least, most)
	}
}

// A listener that never takes anything costs a bounded memory, and what is ingested does not wait for it.
func TestATailThatNobodyReadsStopsNothing(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		c, source := newIngester(t, d), logbooktest.New(home, 10, clock.Now())
		stuck, reads := listen(t, &c.Tail, home, Filters{}), listen(t, &c.Tail, home, Filters{Tag: "last"})
		for range tailPerSecond + 100 {
			spooled(t, c, source.Next(24*time.Hour))
		}
		last := source.Next(24 * time.Hour)
		last.Tag = "last"
		spooled(t, c, last)
		if err := c.Ingest(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := names(reads.Take()); got != "log "+last.ID {
			t.Errorf("the one that reads gets %q", got)
		}
		if n := int64(len(stuck.rows)); n < tailPerSecond || n > tailRows || n+stuck.dropped != tailPerSecond+101 {
			t.Errorf("%d rows wait, and %d were dropped", n, stuck.dropped)
		}
		for i := range 10 {
			c.Tail.publish([]tailed{{row: last}}, time.Now().Add(time.Duration(i)*time.Minute))
			c.Tail.publish(slices.Repeat([]tailed{{row: last}}, 2*tailRows), time.Now().Add(time.Duration(i)*time.Minute))
		}
		if len(stuck.rows) > tailRows {
			t.Errorf("%d rows wait", len(stuck.rows))
		}
	})
}

func TestTailsAreBounded(t *testing.T) {
	var tail Tail
	var all []*Listener
	for n := range tailsInAll {
		all = append(all, listen(t, &tail, tenant.ID(fmt.Sprint("ws_", n/tailsPerWorkspace)), Filters{}))
	}
	for _, ws := range []tenant.ID{"ws_0", "ws_new"} {
		_, err := tail.Listen(ws, Filters{}, always)
		dbtest.Refused(t, err, 429)
	}
	for _, l := range all {
		l.Close()
		l.Close()
	}
	if tail.listening() || len(tail.all) > 0 {
		t.Error("closed tails are kept")
	}
}

func TestATailEndsWhenLoggingIsDisabled(t *testing.T) {
	var tail Tail
	open := true
	l, err := tail.Listen(home, Filters{}, func() bool { return open })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if why := l.Over(); why != "" {
		t.Error(why)
	}
	open = false
	if why := l.Over(); why != "logging_disabled" {
		t.Errorf("%q", why)
	}
}
