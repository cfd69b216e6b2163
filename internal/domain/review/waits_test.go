package review

import (
	"testing"

	"sovereign/internal/base/tenant"
	"sovereign/internal/grade/judge"
)

func TestWhatWaitsForAPersonIsInTheirOwnQueuesAlone(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		q := f.queue(t, 1, 2, expert)
		waits := func(who tenant.Caller, want int64) {
			t.Helper()
			all, err := f.Waits(t.Context(), who)
			if err != nil {
				t.Fatal(err)
			}
			var got int64
			for _, one := range all {
				got += one.Count
				if one.Subject != q.ID || one.Link.Page != "review/"+q.ID {
					t.Errorf("%+v", one)
				}
			}
			if got != want || want == 0 && len(all) > 0 {
				t.Errorf("%d items of %d queues wait for %s, want %d", got, len(all), who.User, want)
			}
		}
		waits(expert, 2)
		waits(owner, 2)
		waits(member, 0)
		waits(stranger, 0)
		f.grade(t, expert, f.claim(t, expert, q.ID), judge.Pass)
		waits(expert, 1)
		f.grade(t, expert, f.claim(t, expert, q.ID), judge.Fail)
		waits(expert, 0)
		waits(owner, 0)
	})
}
