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

// pgx may keep the read timeout of an operation that was cancelled as it ended, and give it to the next one.
func TestAConnectionIsNotUsedAgainAfterACancellation(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		if d.Engine != db.Postgres {
			t.Skip("SQLite has no connection that could be left in the middle of an answer")
		}
		d.Pool().SetMaxOpenConns(1)
		server := func(ctx context.Context, leave func()) (pid int) {
			t.Helper()
			conn, err := d.Pool().Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if err := conn.QueryRowContext(ctx, `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
				t.Fatal(err)
			}
			leave() // after the answer, before the connection is returned
			return pid
		}
		first, second := server(t.Context(), func() {}), server(t.Context(), func() {})
		if first != second {
			t.Errorf("a connection was not used again, though nothing was cancelled")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancelled := server(ctx, cancel)
		if after := server(t.Context(), func() {}); after == cancelled {
			t.Error("a connection was used again after an operation on it was cancelled")
		}
	})
}
