package db_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// slow counts to 20,000, which takes some milliseconds.
const slow = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) SELECT COUNT(*) FROM n`

// A query that is cancelled may cost its connection. Others that wait for one must not be given that.
func TestQueriesThatAreCancelledFailNoOthers(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		all := d.Across("test")
		for range 20 {
			var group sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			for range 100 {
				group.Go(func() { _, _ = db.One[int64](ctx, all, slow) })
			}
			time.AfterFunc(3*time.Millisecond, cancel)
			for range 20 {
				group.Go(func() {
					if _, err := db.One[int64](t.Context(), all, slow); err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			cancel()
		}
	})
}
