package e2e

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sovereign/internal/base/secret"
	"sovereign/internal/store/db/dbtest"
)

// The database goes away, or is slow, while requests run.
func TestDrillWithoutTheDatabaseNothingIsSpentUnheldAndNothingIsLost(t *testing.T) {
	t.Parallel()
	pg, err := dbtest.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pg.Remove() }()
	if err := pg.Start(); err != nil {
		t.Fatal(err)
	}
	provider := startProvider(t)
	p := newInstance(t, secret.New(pg.URL()))
	config := mockConfig(t, provider, map[string]string{"whole": fmt.Sprintf("mock?latency=2ms&in=10&out=%d", drillOutput)})
	s := p.serve(t, "--config", config)
	known, c := newTally(), s.caller()
	ctx, cancel := context.WithCancel(context.Background())
	var refused, answered atomic.Int64
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for ctx.Err() == nil {
				a, err := c.post(context.Background(), "/v1/chat/completions", chat("mock/whole", "outage", `"max_tokens":20`), nil)
				known.note(a, err)
				switch {
				case err != nil:
					t.Error(err)
				case a.status == 503 && a.header.Get("Retry-After") != "":
					refused.Add(1)
					time.Sleep(5 * time.Millisecond)
				case a.status == 200:
					answered.Add(1)
				default:
					t.Errorf("%d %s", a.status, a.body)
				}
			}
		})
	}
	eventually(t, "requests are answered", func() bool { return answered.Load() > 0 })
	slowDatabase(t, pg.URL(), time.Duration(drills(500, 2000))*time.Millisecond)
	before := answered.Load()
	if err := pg.Stop(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "requests are refused without the database", func() bool { return refused.Load() > 0 })
	time.Sleep(time.Duration(drills(1, 60)) * time.Second)
	if err := pg.Start(); err != nil {
		t.Fatal(err)
	}
	back, during := time.Now(), answered.Load()
	eventually(t, "served again", func() bool { return answered.Load() > during })
	if took := time.Since(back); measured() && took > 5*time.Second {
		t.Errorf("served again %v after the database was back", took)
	}
	t.Logf("%d answered before and while it was slow, %d refused without it; serving again %v after it was back", before, refused.Load(), time.Since(back))
	during = answered.Load()
	eventually(t, "served on", func() bool { return answered.Load() > during+4 })
	cancel()
	group.Wait()
	known.compare(t, p, "after the outage")
}

// slowDatabase makes every posting wait for a while.
func slowDatabase(t *testing.T, url string, by time.Duration) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), fmt.Sprintf("BEGIN; LOCK TABLE usage_rows IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(%f); COMMIT", by.Seconds())); err != nil {
		t.Fatal(err)
	}
}
