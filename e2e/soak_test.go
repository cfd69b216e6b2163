package e2e

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	goroutines = regexp.MustCompile(`(?m)^go_goroutines (\d+)`)
	heap       = regexp.MustCompile(`(?m)^go_memstats_heap_alloc_bytes (\S+)`)
)

// gauge reads a server's goroutines and heap, after a garbage collection.
func (s *process) gauge(t *testing.T, at string) (routines int, bytes float64) {
	t.Helper()
	get := func(path string) string {
		response, err := http.Get("http://" + at + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		text, _ := io.ReadAll(response.Body)
		return string(text)
	}
	get("/debug/pprof/heap?gc=1")
	text := get("/metrics")
	routines, _ = strconv.Atoi(goroutines.FindStringSubmatch(text)[1])
	bytes, _ = strconv.ParseFloat(heap.FindStringSubmatch(text)[1], 64)
	return routines, bytes
}

// Ten minutes at full load, with every outcome, end with as many goroutines and as much memory as they began with.
func TestDrillSoakEndsAsItBegan(t *testing.T) {
	long := time.Duration(drills(1, 600)) * time.Second
	at := freeAddress(t)
	s, _ := serveMock(t, map[string]string{
		"whole": "mock?in=10&out=6", "stream": "mock?chunks=20&in=10&out=20", "none": "mock?chunks=20&usage=none", "dies": "mock?chunks=9&die_after=4",
		"fails": "mock?status=500", "slow": "mock?chunks=200&chunk_delay=5ms",
	}, "--operations-listen", at, "--limits-retries", "0")
	s.mustAdmin(t, nil, "wallet", "topup", "--workspace", "default", "--amount-usd", "100000", "--json")
	key := s.key()
	load := func(long time.Duration) (requests int64) {
		ctx, cancel := context.WithTimeout(context.Background(), long)
		defer cancel()
		var count atomic.Int64
		var group sync.WaitGroup
		for worker := range 24 {
			group.Go(func() {
				c := s.callerWith(key)
				defer c.client.CloseIdleConnections()
				random := rand.New(rand.NewPCG(uint64(worker), 1))
				for ctx.Err() == nil {
					names := []string{"whole", "whole", "stream", "stream", "none", "dies", "fails", "slow"}
					name := names[random.IntN(len(names))]
					body := chat("mock/"+name, "soak", `"max_tokens":300`)
					if name != "whole" && name != "fails" {
						body = chat("mock/"+name, "soak", `"max_tokens":300`, `"stream":true`)
					}
					leave := 1 + random.IntN(200)
					_, _ = c.post(ctx, "/v1/chat/completions", body, func(events []string) bool { return name == "slow" && len(events) > leave })
					count.Add(1)
				}
			})
		}
		group.Wait()
		return count.Load()
	}
	idle := func() (int, float64) {
		eventually(t, "no hold is left", func() bool { return s.wallet(t, "default").Held == 0 })
		time.Sleep(time.Second)
		return s.gauge(t, at)
	}
	load(time.Duration(drills(1, 3)) * time.Second) // pools and tables reach their size
	routines, bytes := idle()
	memory := resident(t, s.Process.Pid)
	requests := load(long)
	after, bytesAfter := idle()
	t.Logf("%d requests in %s: goroutines %d to %d, heap %.1f to %.1f MB, resident %d to %d MB", requests, long, routines, after, bytes/1e6, bytesAfter/1e6, memory>>20, resident(t, s.Process.Pid)>>20)
	if after > routines+routines/10+10 {
		t.Errorf("goroutines: %d, and %d afterwards", routines, after)
	}
	if bytesAfter > bytes*1.25+8e6 {
		t.Errorf("heap: %.1f MB, and %.1f MB afterwards", bytes/1e6, bytesAfter/1e6)
	}
	s.verifyLedger(t)
}
