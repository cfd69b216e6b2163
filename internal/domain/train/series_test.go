package train

import (
	"slices"
	"testing"
	"time"

	"sovereign/internal/base/money"
	"sovereign/internal/store/db/dbtest"
)

func TestASeriesHasEachStepOnceAndAttemptsAfterTheCheckpointReplaceItsEnd(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		h.create("ftjob_1", money.Dollar)
		tell := func(l *Lease, losses map[int64]float64) {
			t.Helper()
			var told []Report
			for step, loss := range losses {
				told = append(told, Report{Level: "info", Type: "metrics", Step: step, Data: map[string]float64{"loss": loss}})
			}
			slices.SortFunc(told, func(a, b Report) int { return int(a.Step - b.Step) })
			for i := range told {
				told[i].Number = int64(i + 1)
			}
			if _, err := h.Record(t.Context(), h.worker, l.hand(), told); err != nil {
				t.Fatal(err)
			}
		}
		first := h.take()
		tell(first, map[int64]float64{1: 5, 2: 4, 3: 9, 4: 9})
		h.pass(2 * time.Hour)
		h.tick()
		tell(h.take(), map[int64]float64{3: 3, 4: 2})
		got, err := h.Series(t.Context(), dbtest.Mine, "ftjob_1", 10)
		if err != nil || len(got.Metrics) != 1 || got.Seq == 0 {
			t.Fatalf("%+v %v", got, err)
		}
		want := []Point{{1, 5, 5, 5}, {2, 4, 4, 4}, {3, 3, 3, 3}, {4, 2, 2, 2}}
		if !slices.Equal(got.Metrics[0].Points, want) {
			t.Errorf("%+v", got.Metrics[0].Points)
		}
		if len(got.Said) == 0 || got.Said[0].Type != "message" {
			t.Errorf("the messages are %+v", got.Said)
		}
		if theirs, err := h.Series(t.Context(), dbtest.Theirs, "ftjob_1", 10); err != nil || len(theirs.Metrics)+len(theirs.Said) != 0 {
			t.Errorf("another workspace reads %+v %v", theirs, err)
		}
	})
}

func TestAThinnedSeriesKeepsItsEndAndItsExtremes(t *testing.T) {
	t.Parallel()
	var all []Point
	for i := range int64(1001) {
		y := float64(i % 10)
		all = append(all, Point{i + 1, y, y, y})
	}
	got := thin(all, 100)
	if len(got) != 100 || got[99].Step != 1001 {
		t.Fatalf("%d points, the last %+v", len(got), got[len(got)-1])
	}
	for _, p := range got {
		if p.Low != 0 || p.High < 8 || p.Mean < 3 || p.Mean > 6 {
			t.Errorf("%+v", p)
		}
	}
	if same := thin(all, 2000); len(same) != 1001 {
		t.Errorf("%d points of %d", len(same), len(all))
	}
}
