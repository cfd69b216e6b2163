package alias_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/domain/alias"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

func TestARepointIsInForceWhenPutReturns(t *testing.T) {
	const repoints, readers = 100, 2
	eachStorage(t, func(t *testing.T, r fixture) {
		model := func(n int) string { return "sim/" + strconv.Itoa(n) }
		r.put(t, mine, alias.Alias{Name: "support", TargetModel: model(0)})
		var returned, reads atomic.Int64
		stop := make(chan struct{})
		var group sync.WaitGroup
		for range readers {
			group.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					last := returned.Load()
					seen, err := strconv.ParseInt(strings.TrimPrefix(r.target(mine, "support"), "sim/"), 10, 64)
					if err != nil || seen < last {
						t.Errorf("repoint %d has returned, and the target is %d, %v", last, seen, err)
						return
					}
					reads.Add(1)
				}
			})
		}
		for n := 1; n <= repoints; n++ {
			r.put(t, mine, alias.Alias{Name: "support", TargetModel: model(n)})
			returned.Store(int64(n))
		}
		close(stop)
		group.Wait()
		t.Logf("%d repoints, %d reads", repoints, reads.Load())
	})
}

// A pipeline that repeats a Put which timed out must not be told that it is in force while it is not.
func TestARepeatedPutWaitsForTheFirstToBeInForce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := newFixture(t, d)
		a := alias.Alias{Name: "support", TargetModel: "sim/chat"}
		for try := range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // enough to commit on a busy machine
			_, err := r.Put(ctx, mine, ann, a)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || r.target(mine, "support") != "" {
				t.Fatalf("try %d, which nobody published, answers %v", try, err)
			}
		}
		if err := r.feed.Fill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, entries := r.target(mine, "support"), r.history(t, mine, "support"); got != "sim/chat" || len(entries) != 1 {
			t.Errorf("routes to %q after %v", got, entries)
		}
	})
}

// Writers at once: each is in force or overtaken when it returns, none is lost from the trail, and the trail is one
// chain that ends with what is in force.
func TestRepointsAtOnceAreOneChainInTheAudit(t *testing.T) {
	const writers, repoints = 4, 10
	eachStorage(t, func(t *testing.T, r fixture) {
		var group sync.WaitGroup
		for w := range writers {
			group.Go(func() {
				for n := range repoints {
					if _, err := r.Put(t.Context(), mine, ann, alias.Alias{Name: "support", TargetModel: fmt.Sprintf("sim/%d-%d", w, n)}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		entries := r.history(t, mine, "support")
		if len(entries) != writers*repoints {
			t.Fatalf("%d entries", len(entries))
		}
		kept, err := r.Get(t.Context(), mine, "support")
		if err != nil {
			t.Fatal(err)
		}
		after := text(t, kept)
		for _, e := range entries {
			if string(e.After) != after {
				t.Errorf("want %s, got %s", after, e.After)
			}
			after = string(e.Before)
		}
		if after != "null" {
			t.Errorf("before the first was %s", after)
		}
		if got := r.target(mine, "support"); got != kept.TargetModel {
			t.Errorf("kept is %s, in force %s", kept.TargetModel, got)
		}
	})
}
