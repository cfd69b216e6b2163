package funds_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/funds"
)

// A wallet is the model of a workspace's money, with each amount separate.
type wallet struct {
	credited, posted, unposted money.Nano
	holds                      []*held
}

type held struct {
	hold   *funds.Hold
	amount money.Nano
	ended  bool
}

func (w *wallet) held() (sum money.Nano) {
	for _, h := range w.holds {
		if !h.ended {
			sum += h.amount
		}
	}
	return sum
}

func (w *wallet) free() money.Nano { return w.credited - w.posted - w.unposted - w.held() }

var spaces = []tenant.ID{"ws_a", "ws_b", "ws_c"}

// Random interleavings of all operations are compared with a model.
func TestNoInterleavingCreatesOrLosesMoney(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := funds.New()
		wallets := map[tenant.ID]*wallet{}
		for _, ws := range spaces {
			wallets[ws] = &wallet{}
		}
		pick := func(t *rapid.T) (tenant.ID, *wallet) {
			ws := rapid.SampledFrom(spaces).Draw(t, "workspace")
			return ws, wallets[ws]
		}
		anyHold := func(t *rapid.T) (*wallet, *held) {
			_, w := pick(t)
			if len(w.holds) == 0 {
				return w, nil
			}
			return w, w.holds[rapid.IntRange(0, len(w.holds)-1).Draw(t, "hold")]
		}
		end := func(t *rapid.T, settle func(*held) money.Nano) {
			w, h := anyHold(t)
			if h == nil {
				return
			}
			charged := settle(h)
			if !h.ended {
				h.ended = true
				w.unposted += min(max(charged, 0), h.amount)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"Hold": func(t *rapid.T) {
				ws, w := pick(t)
				amount := money.Nano(rapid.Int64Range(-2, 120).Draw(t, "amount"))
				before := w.free()
				hold, free, ok := f.Hold(ws, amount)
				if want := amount >= 0 && amount <= before; ok != want || ok != (hold != funds.Hold{}) {
					t.Fatalf("a hold of %d of %d free: %v", amount, before, ok)
				}
				if ok {
					w.holds = append(w.holds, &held{hold: &hold, amount: amount})
				}
				if free != w.free() {
					t.Fatalf("%d is said to be free, %d is", free, w.free())
				}
			},
			"Cover": func(t *rapid.T) {
				w, h := anyHold(t)
				if h == nil {
					return
				}
				cost := money.Nano(rapid.Int64Range(0, 300).Draw(t, "cost"))
				if cost > h.amount && !h.ended {
					h.amount = min(cost, h.amount+w.free())
				}
				if got := h.hold.Cover(cost); !h.ended && got != min(cost, h.amount) {
					t.Fatalf("%d of a cost of %d is covered, want %d", got, cost, min(cost, h.amount))
				}
			},
			"Settle": func(t *rapid.T) {
				end(t, func(h *held) money.Nano {
					charged := money.Nano(rapid.Int64Range(-2, 200).Draw(t, "charged"))
					h.hold.Settle(charged, 0)
					return charged
				})
			},
			"Release": func(t *rapid.T) {
				end(t, func(h *held) money.Nano {
					h.hold.Release()
					return 0
				})
			},
			"Posted": func(t *rapid.T) {
				ws, w := pick(t)
				settled := money.Nano(rapid.Int64Range(0, int64(w.unposted)).Draw(t, "settled"))
				posted := money.Nano(rapid.Int64Range(0, int64(settled)).Draw(t, "posted"))
				w.unposted -= settled
				w.posted += posted
				f.Posted(ws, "", settled, posted)
			},
			"Credit": func(t *rapid.T) {
				ws, w := pick(t)
				w.credited += money.Nano(rapid.Int64Range(0, 200).Draw(t, "more"))
				f.Credit(ws, w.credited)
			},
			"Fill": func(*rapid.T) {
				var all []funds.Account
				for _, ws := range spaces {
					if w := wallets[ws]; w.credited > 0 { // the ledger has no row of a wallet that nothing came into
						all = append(all, funds.Account{Workspace: ws, Credited: w.credited, Spent: w.posted})
					}
				}
				f.Fill(all)
			},
			"": func(t *rapid.T) {
				var all money.Nano
				for ws, w := range wallets {
					b := f.Balance(ws)
					want := funds.Balance{Balance: w.credited - w.posted - w.unposted, Held: w.held(), Spent: w.posted + w.unposted}
					if b != want {
						t.Fatalf("%s has %+v, want %+v", ws, b, want)
					}
					if b.Balance < 0 || b.Held < 0 || b.Held > b.Balance || b.Balance+b.Spent != w.credited {
						t.Fatalf("%s has %+v of %d", ws, b, w.credited)
					}
					all += b.Held
				}
				if f.Held() != all {
					t.Fatalf("%d is held in all, want %d", f.Held(), all)
				}
			},
		})
	})
}

func TestExactlyTheHoldsThatFitAreGranted(t *testing.T) {
	const callers, fit, worst = 1000, 10, money.Nano(777)
	f := funds.New()
	f.Credit("ws", fit*worst+worst-1)
	var given atomic.Int64
	var group sync.WaitGroup
	start := make(chan struct{})
	holds := make(chan *funds.Hold, callers)
	for range callers {
		group.Go(func() {
			<-start
			if hold, free, ok := f.Hold("ws", worst); ok {
				given.Add(1)
				holds <- &hold
			} else if free < 0 || free >= worst {
				t.Errorf("refused with %d free", free)
			}
		})
	}
	close(start)
	group.Wait()
	close(holds)
	if b := f.Balance("ws"); given.Load() != fit || b.Held != fit*worst {
		t.Fatalf("%d holds were given: %+v", given.Load(), b)
	}
	for hold := range holds {
		for range 3 { // a hold ends once, however often it is ended
			group.Go(func() { hold.Settle(worst, 0) })
			group.Go(hold.Release)
		}
	}
	group.Wait()
	if b := f.Balance("ws"); b.Held != 0 || b.Balance < 0 || b.Spent%worst != 0 || b.Spent > fit*worst || b.Balance+b.Spent != fit*worst+worst-1 {
		t.Errorf("%+v", b)
	}
}

// Requests of a few workspaces run and are posted concurrently.
func TestConcurrentRequestsNeverOverspend(t *testing.T) {
	f := funds.New()
	const workers, each, came = 16, 400, money.Nano(3000)
	for _, ws := range spaces {
		f.Credit(ws, came)
	}
	var spent [3]atomic.Int64
	done := make(chan struct{})
	var watch, group sync.WaitGroup
	watch.Go(func() {
		for {
			for _, ws := range spaces {
				if b := f.Balance(ws); b.Balance < 0 || b.Held < 0 || b.Held > b.Balance || b.Balance+b.Spent != came {
					t.Errorf("%s has %+v", ws, b)
				}
			}
			if f.Held() < 0 {
				t.Error("less than nothing is held")
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for w := range workers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			for range each {
				i := random.IntN(len(spaces))
				hold, _, ok := f.Hold(spaces[i], money.Nano(random.IntN(50)))
				if !ok {
					continue
				}
				switch random.IntN(3) {
				case 0:
					hold.Release()
				default:
					charged := hold.Cover(money.Nano(random.IntN(60)))
					hold.Settle(charged, 0)
					spent[i].Add(int64(charged))
					f.Posted(spaces[i], "", charged, charged)
				}
				hold.Release()
			}
		})
	}
	group.Wait()
	close(done)
	watch.Wait()
	for i, ws := range spaces {
		if b, want := f.Balance(ws), money.Nano(spent[i].Load()); b.Held != 0 || b.Spent != want || b.Balance != came-want {
			t.Errorf("%s has %+v, and %d was charged", ws, b, want)
		}
	}
}

func TestFillEmptiesAccountsThatTheLedgerDoesNotHave(t *testing.T) {
	f := funds.New()
	if _, free, ok := f.Hold("ws_new", 1); ok || free != 0 {
		t.Errorf("a workspace without a wallet has %d free", free)
	}
	if _, _, ok := f.Hold("ws_new", 0); !ok {
		t.Error("what costs nothing is refused")
	}
	f.Credit("ws_gone", 100)
	f.Posted("ws_gone", "", 0, 30)
	f.Fill([]funds.Account{{Workspace: "ws_here", Credited: 7, Spent: 2}})
	if b := f.Balance("ws_gone"); b != (funds.Balance{}) {
		t.Errorf("a wallet that left the ledger has %+v", b)
	}
	if b := f.Balance("ws_here"); b != (funds.Balance{Balance: 5, Spent: 2}) {
		t.Errorf("%+v", b)
	}
}

func TestConcurrentFirstUsesCreateOneAccount(t *testing.T) {
	f := funds.New()
	const rounds, each = 300, 8
	for round := range rounds {
		ws := tenant.ID(fmt.Sprint("ws_", round))
		var group sync.WaitGroup
		start := make(chan struct{})
		for range each {
			group.Go(func() {
				<-start
				f.Posted(ws, "", 0, 1)
			})
		}
		close(start)
		group.Wait()
		if b := f.Balance(ws); b.Spent != each {
			t.Fatalf("%d of %d postings are known", b.Spent, each)
		}
	}
}

func TestAHoldThatHasEndedReservesNothing(t *testing.T) {
	f := funds.New()
	f.Credit("ws", 100)
	hold, _, _ := f.Hold("ws", 10)
	hold.Release()
	hold.Cover(50)
	if b := f.Balance("ws"); b != (funds.Balance{Balance: 100}) {
		t.Errorf("%+v", b)
	}
	hold.Settle(10, 0)
	if b := f.Balance("ws"); b != (funds.Balance{Balance: 100}) {
		t.Errorf("%+v", b)
	}
}

func TestTheSumOfAllHoldsSaturates(t *testing.T) {
	f := funds.New()
	for _, ws := range spaces[:2] {
		f.Credit(ws, math.MaxInt64)
		if _, _, ok := f.Hold(ws, math.MaxInt64); !ok {
			t.Fatal("refused")
		}
	}
	if f.Held() != math.MaxInt64 {
		t.Errorf("%d is held", f.Held())
	}
}

func BenchmarkHoldAndSettleOfOneWallet(b *testing.B) {
	f := funds.New()
	f.Credit("ws", math.MaxInt64)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			hold, _, _ := f.Hold("ws", 1000)
			hold.Settle(hold.Cover(1), 0)
		}
	})
}

func BenchmarkHoldAndSettleOfManyWallets(b *testing.B) {
	f := funds.New()
	all := make([]tenant.ID, 10_000)
	for i := range all {
		all[i] = tenant.ID(fmt.Sprint("ws_", i))
		f.Credit(all[i], math.MaxInt64)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := rand.IntN(len(all)); pb.Next(); i++ {
			hold, _, _ := f.Hold(all[i%len(all)], 1000)
			hold.Settle(hold.Cover(1), 0)
		}
	})
}
