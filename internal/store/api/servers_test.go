package api_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// eachPair runs test with the databases of two servers: on PostgreSQL one that is opened twice.
func eachPair(t *testing.T, test func(t *testing.T, one, other *db.DB)) {
	t.Helper()
	dbtest.EachMigrated(t, func(t *testing.T, folder string, url secret.Text) {
		one := dbtest.Open(t, folder, url)
		if one.Engine == db.SQLite {
			t.Log("one server: the tests of the abuse guard and of Idempotency-Keys are of it")
			return
		}
		test(t, one, dbtest.Open(t, folder, url))
	})
}

func TestTheAbuseGuardCountsAtAllServersTogether(t *testing.T) {
	eachPair(t, func(t *testing.T, one, other *db.DB) {
		route := api.Post("/a", api.Admin, echo, "x", api.Spends)
		servers := []*frame{newFrame(t, one, nil, route), newFrame(t, other, nil, route)}
		var granted, refused atomic.Int64
		var group sync.WaitGroup
		for i := range 24 {
			group.Go(func() {
				switch got := servers[i%2].ask(t, "POST", "/v1/a", `{}`); got.status { // a refused body counts as well
				case 429:
					refused.Add(1)
					if wait, err := strconv.Atoi(got.header.Get("Retry-After")); err != nil || wait < 1 || wait > 60 {
						t.Errorf("Retry-After %q", got.header.Get("Retry-After"))
					}
				default:
					granted.Add(1)
				}
			})
		}
		group.Wait()
		if granted.Load() != 20 || refused.Load() != 4 {
			t.Errorf("%d were let through, %d refused", granted.Load(), refused.Load())
		}
	})
}

func TestAnIdempotencyKeyAtTwoServersAtOnceHasOneEffectAndOneAnswer(t *testing.T) {
	eachPair(t, func(t *testing.T, one, other *db.DB) {
		var calls atomic.Int64
		route := func(d *db.DB) api.Route {
			return api.Post("/things", api.Admin, func(ctx context.Context, _ tenant.Caller, in thing) (thing, error) {
				in.Count = int(calls.Add(1))
				_, err := d.Tx(ctx, func(tx *db.Tx) error {
					_, err := db.Exec(ctx, tx.Across("test"),
						`INSERT INTO users (id, email, created_at) VALUES ($1, $1, 1)`, strconv.Itoa(in.Count))
					return err
				})
				return in, err
			}, "x", api.Creates)
		}
		servers := []*frame{newFrame(t, one, nil, route(one)), newFrame(t, other, nil, route(other))}
		for round := range 5 {
			answers := make([]reply, 6)
			var group sync.WaitGroup
			for i := range answers {
				group.Go(func() {
					answers[i] = servers[i%2].ask(t, "POST", "/v1/things", `{"name":"abc"}`, "Idempotency-Key", strconv.Itoa(round))
				})
			}
			group.Wait()
			for i, a := range answers {
				if a.status != 201 || a.body != answers[0].body {
					t.Errorf("answer %d: %d %s, not %s", i, a.status, a.body, answers[0].body)
				}
			}
			if n := dbtest.Count(t, one, "users"); n != round+1 {
				t.Errorf("%d effects of %d keys", n, round+1)
			}
		}
	})
}
