package usage

import (
	"fmt"
	"sync"
	"testing"

	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
	"sovereign/internal/plane/journal"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// Several servers post to the same rows at once, while days are closed: no sum loses a charge or has one twice. The
// bound of tags is one for all, but for the postings that are under way when it is reached.
func TestConcurrentPostersKeepSumsExact(t *testing.T) {
	dbtest.EachMigrated(t, func(t *testing.T, folder string, url secret.Text) {
		first := dbtest.Open(t, folder, url)
		all := []*db.DB{first}
		for range 2 {
			if first.Engine == db.Postgres {
				all = append(all, dbtest.Open(t, folder, url))
			}
		}
		dbtest.AddWorkspaces(t, first, dbtest.Mine)
		const rounds, each = 12, 60
		var group sync.WaitGroup
		for n, d := range all {
			group.Go(func() {
				days := newDays()
				if d.Engine == db.Postgres {
					days = days.Of(fmt.Sprint("journal-", n))
				}
				for round := range rounds {
					var charges []*journal.Charge
					for i := range each { // of an open day and of one that is being closed
						tag := fmt.Sprintf("tag-%d-%d-%d", n, round, i)
						charges = append(charges, chargeOf(dbtest.Mine, today, "m", "k", tag, 2), chargeOf(dbtest.Mine, today-3, "m", "k", "", 2))
					}
					write(t, d, days, charges...)
				}
			})
		}
		group.Go(func() {
			store := newStore(first)
			for range 5 {
				if err := store.CloseDays(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
		group.Wait()
		want := int64(len(all) * rounds * each)
		points, err := newStore(first).Series(t.Context(), dbtest.Mine, Filter{From: today - 5, To: today}, "none")
		if err != nil || len(points) != 2 {
			t.Fatalf("%v %v", points, err)
		}
		for _, p := range points {
			if p.Requests != want || p.Cost != money.Nano(2*want) || p.Charged != money.Nano(want) {
				t.Errorf("day %d: %+v, want %d requests", p.Day, p.Used, want)
			}
		}
		tags := dbtest.Count(t, first, "(SELECT DISTINCT tag FROM usage_days WHERE day = $1 AND tag <> $2) AS t", today, OtherTag)
		if most := MaxTags + len(all)*each; tags > most || tags < min(MaxTags, int(want)) {
			t.Errorf("%d tags are counted by themselves, of %d", tags, want)
		}
		if first.Engine != db.Postgres {
			return
		}
		spent, err := db.One[int64](t.Context(), first.In(dbtest.Mine),
			`SELECT CAST(SUM(spent) AS BIGINT) FROM budget_days WHERE workspace_id = $1 AND day = $2`, today)
		if err != nil || spent != want {
			t.Errorf("budgets count %d of %d: %v", spent, want, err)
		}
	})
}
