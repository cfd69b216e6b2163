package till_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sovereign/internal/base/money"
	"sovereign/internal/live"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/till"
)

// request runs one request as the gateway does: a deferred Drop, deliveries, and a settlement that is owed when it
// fails. It returns the usage that the caller got.
func (s *fixture) request(request string, random *rand.Rand) (used live.Usage, charged bool) {
	tab, err := s.Open(context.Background(), journal.Charge{Request: request, Workspace: ws}, money.Nano(random.IntN(40)))
	if err != nil {
		return used, false
	}
	defer tab.Drop()
	tab.SetModel(model, model.Price, false)
	for range random.IntN(3) {
		used.Output += int64(1 + random.IntN(10))
		_ = tab.RecordUsage(used)
	}
	delivered := tab.Journaled()
	switch random.IntN(4) {
	case 0: // the caller leaves, or the handler panics: the last recorded usage counts
		return live.Usage{Output: -1}, delivered
	default:
		used.Output += int64(random.IntN(10))
		if tab.Settle(till.Settlement{Outcome: "finished", Usage: used}) != nil {
			if !delivered {
				return used, false
			}
			tab.Owe(till.Settlement{Outcome: "left", Usage: used, Counted: true})
		}
		return used, true
	}
}

func TestConcurrentRequestsOnAFailingDiskAreEachChargedOnce(t *testing.T) {
	const came = 15_000
	s := newFixture(t, came)
	s.flaky.Store(true)
	const workers, each = 12, 200
	type outcome struct {
		used    live.Usage
		charged bool
	}
	var mu sync.Mutex
	got := map[string]outcome{}
	ctx, stop := context.WithCancel(t.Context())
	var background, group sync.WaitGroup
	background.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(20 * time.Microsecond) {
			_ = s.journal.Sync()
			s.Collect()
			if b := s.funds.Balance(ws); b.Balance < 0 || b.Held < 0 || b.Held > b.Balance || b.Balance+b.Spent != came {
				t.Errorf("%+v", b)
			}
		}
	})
	for w := range workers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 2))
			for i := range each {
				request := fmt.Sprintf("req_%d_%d", w, i)
				used, charged := s.request(request, random)
				mu.Lock()
				got[request] = outcome{used, charged}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	stop()
	background.Wait()
	s.flaky.Store(false)
	if owed := s.Collect(); owed != 0 {
		t.Fatalf("%d are owed", owed)
	}
	settled := s.settled(t)
	var charged, cost money.Nano
	for request, o := range got {
		c, there := settled[request]
		if there != o.charged || there && o.used.Output >= 0 && c.Usage != o.used {
			t.Errorf("%s: settled %v with %+v, want %v with %+v", request, there, c.Usage, o.charged, o.used)
		}
		charged, cost = charged+c.Charged, cost+c.Cost
	}
	s.want(t, came-charged, 0, charged)
	if len(settled) == 0 || money.Nano(s.over.Load()) != cost-charged {
		t.Errorf("%d settlements; %d of overage are heard of, want %d", len(settled), s.over.Load(), cost-charged)
	}
}

// Whatever requests do in whatever order, as long as each ends once: the wallet, its named hold, the journal and the
// overage callback agree.
func TestWalletJournalAndOverageAgreeAfterAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const came, budget = 300, 120
		s := newFixture(t, came)
		if _, ok := s.funds.Reserve(ws, "rs_1", budget); !ok {
			t.Fatal("refused")
		}
		ended := false
		running := map[string]*till.Tab{}
		made := 0
		pick := func(t *rapid.T) (string, *till.Tab) {
			for name, tab := range running {
				return name, tab
			}
			t.Skip("nothing runs")
			return "", nil
		}
		used := func(t *rapid.T) live.Usage { return tokens(rapid.Int64Range(0, 150).Draw(t, "used")) }
		t.Repeat(map[string]func(*rapid.T){
			"open": func(t *rapid.T) {
				made++
				name := fmt.Sprint("req_", made)
				hold := rapid.SampledFrom([]string{"", "rs_1"}).Draw(t, "named")
				tab, err := s.Open(context.Background(), journal.Charge{Request: name, Workspace: ws, Hold: hold}, money.Nano(rapid.Int64Range(0, 100).Draw(t, "hold")))
				var short *till.InsufficientFunds
				if errors.As(err, &short) && short.Ended != (ended && hold != "") {
					t.Fatalf("ended %v, and the refusal of a request of %q says %v", ended, hold, short.Ended)
				}
				if err == nil {
					tab.SetModel(model, model.Price, false)
					running[name] = &tab
				}
			},
			"deliver": func(t *rapid.T) { _, tab := pick(t); _ = tab.RecordUsage(used(t)) },
			"settle": func(t *rapid.T) {
				name, tab := pick(t)
				if tab.Settle(till.Settlement{Outcome: "finished", Usage: used(t)}) == nil {
					delete(running, name)
				}
			},
			"owe": func(t *rapid.T) {
				name, tab := pick(t)
				tab.Owe(till.Settlement{Outcome: "left", Usage: used(t), Counted: true})
				delete(running, name)
			},
			"drop":    func(t *rapid.T) { name, tab := pick(t); tab.Drop(); delete(running, name) },
			"end":     func(*rapid.T) { s.funds.End(ws, "rs_1"); ended = true },
			"collect": func(*rapid.T) { s.Collect() },
			"break":   func(*rapid.T) { s.broken.Store(true) },
			"mend":    func(*rapid.T) { s.broken.Store(false); _ = s.journal.Sync() },
			"": func(t *rapid.T) {
				if b := s.funds.Balance(ws); b.Balance < 0 || b.Held < 0 || b.Held > b.Balance || b.Balance+b.Spent != came {
					t.Fatalf("%+v", b)
				}
			},
		})
		s.broken.Store(false)
		for _, tab := range running {
			tab.Drop()
		}
		if owed := s.Collect(); owed != 0 {
			t.Fatalf("%d are owed", owed)
		}
		var charged, cost, named money.Nano
		for _, c := range s.settled(t) {
			if charged, cost = charged+c.Charged, cost+c.Cost; c.Hold != "" {
				named += c.Charged
			}
		}
		if spent, known := s.funds.SpentOf(ws, "rs_1"); named > budget || known && spent != named || !known && (named > 0 || !ended) {
			t.Fatalf("the journal charges %d of %d to the hold, which has spent %d, known %v", named, budget, spent, known)
		}
		s.funds.End(ws, "rs_1")
		if b := s.funds.Balance(ws); b.Held != 0 || b.Spent != charged || money.Nano(s.over.Load()) != cost-charged {
			t.Fatalf("%+v; the journal charges %d of %d, an overage of %d is heard of", b, charged, cost, s.over.Load())
		}
	})
}
