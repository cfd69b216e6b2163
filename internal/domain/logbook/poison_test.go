package logbook

import (
	"context"
	"testing"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/panics"
	"sovereign/internal/plane/capture"
	"sovereign/internal/store/db"
)

func appendRows(t *testing.T, c *Ingester, n int) {
	t.Helper()
	at := clock.Now()
	for i := range n {
		row := rowAt(t, at+clock.Time(i), `[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}]`, `{"role":"assistant","content":"Hello"}`)
		c.spool.Append(row.Append(nil))
	}
}

func wantRows(t *testing.T, d *db.DB, want int64) {
	t.Helper()
	if _, total, err := NewStore(d).List(t.Context(), home, &Filters{}, 10, 0); err != nil || total != want {
		t.Errorf("%d rows, want %d, %v", total, want, err)
	}
}

// A record that makes its reader panic is set aside and counted. The others are ingested, and so are later ones.
func TestARecordThatPanicsIsSetAside(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		ingester, reads, before := newIngester(t, d), 0, panics.Count()
		ingester.read = func(record []byte) (*capture.Row, error) {
			if reads++; reads == 3 {
				panic("a poisonous record")
			}
			return capture.Parse(record)
		}
		appendRows(t, ingester, 5)
		if err := ingester.Ingest(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantRows(t, d, 4)
		if n := ingester.SetAside(); n != 1 || panics.Count() == before {
			t.Errorf("%d were counted", n)
		}
		appendRows(t, ingester, 1)
		if err := ingester.Ingest(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantRows(t, d, 5)
		if _, err := ingester.Newest(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A panic while rows are stored ends no goroutine: they are stored one by one.
func TestRowsWhoseStoringPanicsAreStoredOneByOne(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		ingester := newIngester(t, d)
		ingester.families[home] = &families{} // without maps: to note a prompt panics
		appendRows(t, ingester, 3)
		if err := ingester.Ingest(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantRows(t, d, 3)
	})
}

// A task of the ingester that panics is tried again.
func TestATaskThatPanicsIsTriedAgain(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	eachLogs(t, func(t *testing.T, d *db.DB) {
		newIngester(t, d).repeat(ctx, 1, nil, func(context.Context) error {
			if tries++; tries > 2 {
				cancel()
			}
			panic("a task")
		}, "a task of a test")
	})
	if tries < 3 {
		t.Errorf("%d tries", tries)
	}
}
