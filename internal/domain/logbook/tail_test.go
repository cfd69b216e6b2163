package logbook

import (
	"fmt"
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
		mine, other := source.Next(24*time.Hour), source.Next(24*time.Hour)
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
		listed, err := NewStore(d).Get(t.Context(), home, mine.ID)
		if row := events[0].Data.(Row); err == nil && fmt.Sprint(row) != fmt.Sprint(listed) {
			t.Errorf("%v\nwant, as it is listed\n%v", row, listed)
		}
	})
}

func TestASlowTailIsToldWhatItMissed(t *testing.T) {
	var tail Tail
	l := listen(t, &tail, home, Filters{})
	var rows []tailed
	for i := range tailRows + 7 {
		rows = append(rows, tailed{&capture.Row{ID: fmt.Sprint("log_", i), Workspace: home}, None})
	}
	tail.publish(rows)
	events := l.Take()
	if last := events[len(events)-1]; len(events) != tailRows+1 || last.Name != "dropped" || last.Data != (Dropped{7}) {
		t.Errorf("%d events, the last %+v", len(events), last)
	}
	large := make([]byte, tailBytes)
	tail.publish([]tailed{
		{&capture.Row{ID: "log_a", Workspace: home, Messages: large}, None}, {&capture.Row{ID: "log_b", Workspace: home, Messages: large}, None},
	})
	if got := names(l.Take()); got != "log log_a, dropped " {
		t.Errorf("%s: more than a few MiB wait", got)
	}
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
