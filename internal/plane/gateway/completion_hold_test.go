package gateway

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/live"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/infer"
	"sovereign/internal/plane/meter"
)

// reserve sets money of the home workspace aside.
func (b *bench) reserve(id string, amount money.Nano) {
	b.t.Helper()
	if _, ok := b.funds.Reserve(home, id, amount); !ok {
		b.t.Fatal("the wallet cannot cover the hold")
	}
}

// paidBy returns a request of the product that a named hold pays for.
func paidBy(hold string) *infer.Request {
	q := internalTo("m")
	q.Hold = hold
	return q
}

// oneRequest is more than what is held for one of them: a short prompt, and 50 tokens of output.
const oneRequest = money.Nano(1_000*1_000 + 50*4_000)

func TestANamedHoldPaysForInternalRequestsAndTheWalletDoesNot(t *testing.T) {
	b := newBench(t)
	b.answer = whole(good) // costs 10 × 1000 + 5 × 4000
	b.reserve("rs_1", oneRequest)
	a, err := b.Complete(t.Context(), paidBy("rs_1"))
	if err != nil {
		t.Fatal(err)
	}
	if e := b.settled(); e.Hold != "rs_1" || e.Charged != 30_000 || a.Cost != 30_000 {
		t.Errorf("%+v", e)
	}
	if left := b.funds.Left(home, "rs_1"); left != oneRequest-30_000 || b.funds.Free(home) != credit-oneRequest {
		t.Errorf("$%s are left in the hold, $%s are free in the wallet", left, b.funds.Free(home))
	}
	b.funds.End(home, "rs_1")
	if m := b.funds.Balance(home); m != (funds.Balance{Balance: credit - 30_000, Spent: 30_000}) {
		t.Errorf("%+v", m)
	}
}

func TestANamedHoldThatCannotCoverARequestIsReported(t *testing.T) {
	b := newBench(t)
	b.answer = whole(good)
	b.reserve("rs_small", 1000)
	b.reserve("rs_ended", credit/4)
	b.funds.End(home, "rs_ended")
	for hold, want := range map[string]infer.HoldSpent{
		"rs_small":   {Hold: "rs_small", Free: 1000},
		"rs_ended":   {Hold: "rs_ended", Ended: true},
		"rs_unknown": {Hold: "rs_unknown", Ended: true},
	} {
		_, err := b.Complete(t.Context(), paidBy(hold))
		var spent *infer.HoldSpent
		if !errors.As(err, &spent) || *spent != want || fault.From(err).Kind != fault.InsufficientBalance {
			t.Errorf("%s: %v", hold, err)
		}
	}
	b.free()
	if len(b.sent) != 0 || b.funds.Free(home) != credit-1000 {
		t.Errorf("%d were sent, $%s are free", len(b.sent), b.funds.Free(home))
	}
}

// A provider that reports more than it can have used, or more than was held, costs the operator; never the wallet.
func TestAnOverageOfANamedHoldLeavesTheWalletAlone(t *testing.T) {
	b := newBench(t)
	b.answer = whole(strings.Replace(good, `"completion_tokens":5`, `"completion_tokens":900`, 1))
	b.reserve("rs_1", oneRequest+70_000)
	if _, err := b.Complete(t.Context(), paidBy("rs_1")); err != nil {
		t.Fatal(err)
	}
	b.funds.End(home, "rs_1")
	e, m := b.settled(), b.funds.Balance(home)
	if e.Charged > oneRequest+70_000 || e.Cost != 10_000+900*4_000 || m.Balance != credit-e.Charged || m.Held != 0 {
		t.Errorf("%+v; the wallet has %+v", e, m)
	}
}

// As the hold runs out, what fits is served, and not a nano more is spent.
func TestConcurrentRequestsSpendNoMoreThanTheirNamedHold(t *testing.T) {
	b := newBench(t)
	b.answer = whole(good)
	const budget = 5*oneRequest + 1
	b.reserve("rs_1", budget)
	var answered, refused atomic.Int64
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			for range 20 {
				_, err := b.Complete(t.Context(), paidBy("rs_1"))
				var spent *infer.HoldSpent
				switch {
				case err == nil:
					answered.Add(1)
				case errors.As(err, &spent) && !spent.Ended && spent.Free < oneRequest:
					refused.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	spent, _ := b.funds.SpentOf(home, "rs_1")
	if spent != money.Nano(answered.Load())*30_000 || spent > budget || refused.Load() == 0 {
		t.Errorf("$%s of $%s were spent on %d answers; %d were refused", spent, budget, answered.Load(), refused.Load())
	}
	b.funds.End(home, "rs_1")
	if m := b.funds.Balance(home); m.Held != 0 || m.Balance != credit-spent {
		t.Errorf("%+v", m)
	}
}

// Setting money aside is no way around a budget: what a hold pays for counts like every request of the product.
func TestABudgetBindsWhatANamedHoldPaysFor(t *testing.T) {
	b := newBench(t)
	b.answer = whole(good)
	e := newEntrance(t, b)
	b.reserve("rs_1", credit/2)
	b.Meter.Add("ws_1", b.Meter.Begin("ws_1", time.Now()), meter.Spent{})
	e.limits.Put("ws_1", &live.Limits{BudgetPerMonth: credit / 4})
	if _, err := b.Complete(t.Context(), paidBy("rs_1")); err != nil {
		t.Fatal(err)
	}
	e.limits.Put("ws_1", &live.Limits{BudgetPerMonth: 30_000}) // it has spent as much
	if _, err := b.Complete(t.Context(), paidBy("rs_1")); fault.From(err).Kind != fault.BudgetExceeded {
		t.Error(err)
	}
	if left := b.funds.Left(home, "rs_1"); left != credit/2-30_000 {
		t.Errorf("$%s are left", left)
	}
}
