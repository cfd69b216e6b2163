package job

import (
	"context"
	"testing"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
)

func TestTheLatestJobsAndThoseThatFailedAreListed(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		first := m.queue(t, mine, 1)
		m.serve(t, Config{}, func(context.Context, *Run, int64) error { return fault.Invalid("x", "is wrong") })
		m.await(t, mine, first, Failed)
		m.queue(t, theirs, 1)
		in := m.db.In(mine)
		all, err := Latest(t.Context(), in, 10)
		if err != nil || len(all) != 1 || all[0].ID != first || all[0].Kind != kind || all[0].Status != Failed {
			t.Errorf("%+v, %v", all, err)
		}
		failed, err := FailedSince(t.Context(), in, *all[0].FinishedAt, 10)
		if err != nil || len(failed) != 1 || failed[0].Error == nil {
			t.Errorf("%+v, %v", failed, err)
		}
		if later, err := FailedSince(t.Context(), in, clock.Now(), 10); err != nil || len(later) != 0 {
			t.Errorf("%+v, %v", later, err)
		}
	})
}
