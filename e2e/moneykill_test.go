package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"sovereign/internal/base/money"
)

// A tally is what the callers of a server know of their requests' cost.
type tally struct {
	mu       sync.Mutex
	finished map[string]money.Nano // by request: told to the end, with its usage
	begun    map[string]money.Nano // at most: seen to begin, and not to end
	unknown  money.Nano            // at most, of requests of which nothing was seen
	sent     int
}

const drillOutput = 6

func newTally() *tally {
	return &tally{finished: map[string]money.Nano{}, begun: map[string]money.Nano{}}
}

// Every request of the drill is reported to use the same.
const drillCost = 10*inputPrice + drillOutput*outputPrice

func (ta *tally) note(a *answer, err error) {
	ta.mu.Lock()
	defer ta.mu.Unlock()
	ta.sent++
	switch {
	case a == nil:
		ta.unknown += drillCost
	case a.status != 200:
	case a.done && err == nil:
		ta.finished[a.id()] = drillCost
	default:
		ta.begun[a.id()] = drillCost
	}
}

// The server is killed at random moments under load, and started again: every answer that a caller got to the end is
// charged, exactly and once; one that broke off at most what it would have cost; and no hold outlives its process.
func TestDrillKillUnderLoadChargesEveryFinishedAnswerOnce(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
		provider := startProvider(t)
		config := mockConfig(t, provider, map[string]string{
			"whole":  fmt.Sprintf("mock?latency=2ms&in=10&out=%d", drillOutput),
			"stream": fmt.Sprintf("mock?chunks=%d&chunk_delay=15ms&in=10&out=%d", drillOutput, drillOutput),
		})
		s := p.serve(t, "--config", config)
		key := s.key()
		known := newTally()
		rounds := drills(5, 200)
		for round := range rounds {
			c := s.callerWith(key)
			ctx, cancel := context.WithCancel(context.Background())
			var group sync.WaitGroup
			for worker := range 8 {
				group.Go(func() {
					for i := 0; ctx.Err() == nil; i++ {
						body := chat("mock/whole", "drill", `"max_tokens":20`)
						if worker%2 == 0 {
							body = chat("mock/stream", "drill", `"max_tokens":20`, `"stream":true`)
						}
						if a, err := c.post(context.Background(), "/v1/chat/completions", body, nil); err == nil || !refusedConnection(err) {
							known.note(a, err)
						}
					}
				})
			}
			time.Sleep(time.Duration(20+round*37%230) * time.Millisecond)
			s.kill()
			cancel()
			group.Wait()
			s = p.serve(t, "--config", config)
			known.compare(t, p, fmt.Sprintf("round %d", round))
			if t.Failed() {
				t.Fatalf("the server said:\n%s", s.log)
			}
		}
		t.Logf("%d kills, %d requests, %d finished, %d broke off", rounds, known.sent, len(known.finished), len(known.begun))
	})
}

func refusedConnection(err error) bool { return strings.Contains(err.Error(), "connection refused") }

func (ta *tally) compare(t *testing.T, p instance, when string) {
	t.Helper()
	ta.mu.Lock()
	defer ta.mu.Unlock()
	p.verifyLedger(t)
	rows := p.usage(t, "default")
	var least, most, sum money.Nano
	for id, cost := range ta.finished {
		least += cost
		if row, there := rows[id]; !there || row.Charged != cost || row.Outcome != "finished" {
			t.Errorf("%s: %s was answered to the end and is charged %v %+v", when, id, there, row)
		}
	}
	most = least + ta.unknown
	for id, cost := range ta.begun {
		most += cost
		if row := rows[id]; row.Charged > cost {
			t.Errorf("%s: %s broke off and is charged $%s", when, id, row.Charged)
		}
	}
	for _, row := range rows {
		sum += row.Charged
	}
	b := p.wallet(t, "default")
	if b.Held != 0 || b.Spent != sum || b.Spent < least || b.Spent > most || b.Balance+b.Spent != 25_000_000_000 {
		t.Errorf("%s: the wallet is %+v; the rows sum to %s; callers know of %s to %s", when, b, sum, least, most)
	}
}
