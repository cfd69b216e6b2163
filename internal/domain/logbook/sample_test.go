package logbook

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/capture"
	"sovereign/internal/store/db"
)

// insertSampleRows inserts n exchanges a microsecond apart: every other one is tagged, and every tenth has expired.
func insertSampleRows(t *testing.T, d *db.DB, n int) (rows []*capture.Row) {
	t.Helper()
	at := clock.Now() - clock.Time(n)
	for i := range n {
		r := rowAt(t, at+clock.Time(i), fmt.Sprintf(`[{"role":"user","content":"%d"}]`, i), fmt.Sprintf(`{"role":"assistant","content":"said %d"}`, i))
		r.Request, r.Tag = fmt.Sprint("req_", i), []string{"", "x"}[i%2]
		if i%10 == 9 {
			r.Expires = at
		}
		rows = append(rows, r)
	}
	other := rowAt(t, at, `[{"role":"user","content":"theirs"}]`, `{"role":"assistant","content":"not ours"}`)
	other.Workspace, other.Request = "ws_other", "req_other"
	if err := insertRows(t.Context(), newIngester(t, d), append(slices.Clone(rows), other)); err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestADrawIsUniformAndTheSameForOneSeed(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		store, rows := NewStore(d), insertSampleRows(t, d, 40)
		draw := func(f Filters, size int, seed uint64) (ids []string, pool int) {
			t.Helper()
			pool, err := store.Draw(t.Context(), home, &f, size, seed, func(r *Drawn) bool {
				ids = append(ids, r.ID)
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
			return ids, pool
		}
		if ids, pool := draw(Filters{Tag: "x"}, 100, 1); pool != 16 || len(ids) != 16 {
			t.Errorf("%d of %d", len(ids), pool)
		}
		first, pool := draw(Filters{}, 9, 7)
		again, _ := draw(Filters{}, 9, 7)
		other, _ := draw(Filters{}, 9, 8)
		if pool != 36 || len(first) != 9 || !slices.Equal(first, again) || slices.Equal(first, other) {
			t.Errorf("%d: %v, %v, %v", pool, first, again, other)
		}
		drawn := map[string]int{}
		draws := 240.0
		if d.Engine == db.Postgres {
			draws = 0 // the order is drawn by this package, on either engine alike
		}
		for seed := range uint64(draws) {
			ids, _ := draw(Filters{}, 9, seed)
			if len(slices.Compact(slices.Sorted(slices.Values(ids)))) != 9 {
				t.Fatal("one is drawn twice")
			}
			for _, id := range ids {
				drawn[id]++
			}
		}
		if draws > 0 && len(drawn) != 36 {
			t.Errorf("only %d of 36 are ever drawn", len(drawn))
		}
		for id, n := range drawn { // a quarter of the draws each
			if sigma := math.Sqrt(draws * 0.25 * 0.75); math.Abs(float64(n)-draws*0.25) > 5*sigma {
				t.Errorf("%s is drawn %d times", id, n)
			}
		}
		stopped := 0
		if _, err := store.Draw(t.Context(), home, &Filters{}, 9, 1, func(r *Drawn) bool {
			stopped++
			step := r.Step()
			i := slices.IndexFunc(rows, func(row *capture.Row) bool { return row.ID == r.ID })
			if string(step.Messages) != string(rows[i].Messages) || string(step.Response) != string(rows[i].Response) || step.Tools != nil || r.RequestID != rows[i].Request ||
				r.ExpiresAt != rows[i].Expires || r.At != rows[i].At || string(r.Chain) != string(rows[i].Chain) {
				t.Errorf("%+v", r)
			}
			return stopped < 3
		}); err != nil || stopped != 3 {
			t.Error(stopped, err)
		}
	})
}

func TestSinceReadsEverythingOnceInOrder(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		store, rows := NewStore(d), insertSampleRows(t, d, 40)
		for _, f := range []Filters{{}, {Tag: "x"}, {Start: rows[10].At}, {End: rows[30].At}, {Start: rows[10].At, End: rows[30].At, Tag: "x"}} {
			var want []string
			for i, r := range rows {
				if i%10 != 9 && i > 2 && (f.Tag == "" || r.Tag == f.Tag) && r.At >= f.Start && (f.End == 0 || r.At < f.End) {
					want = append(want, r.ID)
				}
			}
			var got []string
			for after := rows[2].At; ; {
				some, err := store.Since(t.Context(), home, &f, after, 7)
				if err != nil {
					t.Fatal(err)
				}
				if len(some) == 0 || len(got) > len(rows) {
					break
				}
				for _, r := range some {
					got = append(got, r.ID)
				}
				after = some[len(some)-1].At
			}
			if !slices.Equal(got, want) {
				t.Errorf("%+v: %v, want %v", f, got, want)
			}
		}
		if newest, err := store.Newest(t.Context(), home); err != nil || newest != rows[39].At {
			t.Error(newest, err)
		}
		if newest, err := store.Newest(t.Context(), "ws_none"); err != nil || newest != 0 {
			t.Error(newest, err)
		}
	})
}

func TestAnExchangeIsFoundByItsRequestAndARunByItsSteps(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		rows := insertSampleRows(t, d, 20)
		ingester, store := newIngester(t, d), NewStore(d)
		h := NewHandler(store, ingester, live.NewSettings())
		at := clock.Now() - 1000
		var run []*capture.Row
		for i := range maxSteps + 1 {
			for trace, most := range map[string]int{"run": 3, "long": maxSteps + 1, "full": maxSteps} {
				if i < most {
					at++
					r := rowAt(t, at, fmt.Sprintf(`[{"role":"user","content":"%s %d"}]`, trace, i), `{"role":"assistant","content":"done"}`)
					r.Trace, r.Request, r.Tools = trace, fmt.Sprintf("req_%s_%d", trace, i), []byte(`[{"type":"function"}]`)
					run = append(run, r)
				}
			}
		}
		if err := insertRows(t.Context(), ingester, run); err != nil {
			t.Fatal(err)
		}
		step, trace, err := h.Request(t.Context(), home, "req_4")
		if err != nil || trace != "" || string(step.Messages) != string(rows[4].Messages) || string(step.Response) != string(rows[4].Response) || step.Tools != nil {
			t.Errorf("%+v %q %v", step, trace, err)
		}
		if step, trace, err = h.Request(t.Context(), home, "req_run_1"); err != nil || trace != "run" || string(step.Tools) != `[{"type":"function"}]` {
			t.Errorf("%+v %q %v", step, trace, err)
		}
		for _, name := range []string{"req_none", "req_9", "req_other", ""} { // no such, over, another's
			if _, _, err := h.Request(t.Context(), home, name); fault.From(err).Status != 404 {
				t.Errorf("%s: %v", name, err)
			}
		}
		steps, err := h.Steps(t.Context(), home, "run")
		if err != nil || len(steps) != 3 {
			t.Fatal(steps, err)
		}
		for i, s := range steps {
			if string(s.Messages) != fmt.Sprintf(`[{"role":"user","content":"run %d"}]`, i) {
				t.Errorf("%d: %s", i, s.Messages)
			}
		}
		if steps, err = h.Steps(t.Context(), home, "full"); err != nil || len(steps) != maxSteps {
			t.Error(len(steps), err)
		}
		if _, err = h.Steps(t.Context(), home, "long"); fault.From(err).Status != 400 {
			t.Error(err)
		}
		for ws, trace := range map[tenant.ID]string{"ws_other": "run", home: "none"} {
			if _, err = h.Steps(t.Context(), ws, trace); fault.From(err).Status != 404 {
				t.Errorf("%s %s: %v", ws, trace, err)
			}
		}
		read, err := store.Read(t.Context(), home, rows[4].ID)
		if err != nil || string(read.Response) != string(rows[4].Response) {
			t.Errorf("%+v %v", read, err)
		}
		var f *fault.Fault
		if _, err := store.Read(t.Context(), "ws_other", rows[4].ID); !errors.As(err, &f) || f.Status != 404 {
			t.Error(err)
		}
	})
}

func TestFiltersSelectARequestAndARunOfWhichEveryStepMatches(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		store, now := NewStore(d), clock.Now()
		var rows []*capture.Row
		for i, of := range []struct{ request, trace, tag string }{
			{"req_x", "", "x"},
			{"req_y", "", "y"},
			{"req_1", "run_x", "x"},
			{"req_2", "run_x", "x"},
			{"req_3", "run_xy", "x"},
			{"req_4", "run_xy", "y"},
			{"req_gone", "", "x"},
		} {
			r := rowAt(t, now-100+clock.Time(i), fmt.Sprintf(`[{"role":"user","content":"%d"}]`, i), `{"role":"assistant","content":"yes"}`)
			r.Request, r.Trace, r.Tag = of.request, of.trace, of.tag
			if of.request == "req_gone" {
				r.Expires = now - 1
			}
			rows = append(rows, r)
		}
		if err := insertRows(t.Context(), newIngester(t, d), rows); err != nil {
			t.Fatal(err)
		}
		fresh := false
		for _, c := range []struct {
			filters        Filters
			request, trace string
			want           bool
		}{
			{Filters{}, "req_x", "", true},
			{Filters{Tag: "x"}, "req_x", "", true},
			{Filters{Tag: "x"}, "req_y", "", false},
			{Filters{Tag: "x"}, "req_gone", "", false},
			{Filters{Tag: "x"}, "req_none", "", false},
			{Filters{Tag: "x"}, "", "run_x", true},
			{Filters{Tag: "x"}, "", "run_xy", false},
			{Filters{Tag: "y"}, "", "run_xy", false},
			{Filters{FinishReason: "stop", CacheHit: &fresh}, "", "run_xy", true},
			{Filters{Tag: "x", Model: "p/m", FinishReason: "length"}, "req_x", "", false},
			{Filters{Start: now - 100, End: now - 99}, "req_x", "", true},
			{Filters{Start: now - 99}, "req_x", "", false},
			{Filters{End: now - 97}, "", "run_x", false},
		} {
			got, err := store.Selects(t.Context(), home, &c.filters, c.request, c.trace)
			if err != nil || got != c.want {
				t.Errorf("%+v of %s%s: %v %v", c.filters, c.request, c.trace, got, err)
			}
		}
		if got, err := store.Selects(t.Context(), "ws_other", &Filters{}, "req_x", ""); err != nil || got {
			t.Errorf("another workspace: %v %v", got, err)
		}
	})
}
