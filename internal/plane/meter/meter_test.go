package meter

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
)

var caller = &tenant.Caller{Workspace: "ws_1", Key: "key_1"}

func newMeter(key, workspace *live.Limits) *Meter {
	limits := live.NewLimits()
	limits.Put("key_1", key)
	limits.Put("ws_1", workspace)
	return New(limits)
}

func refused(t *testing.T, err error) *fault.Fault {
	t.Helper()
	f, _ := errors.AsType[*fault.Fault](err)
	if f == nil || f.Kind != fault.RateLimitExceeded || f.RetryAfter <= 0 {
		t.Fatalf("want a refusal with a time to retry, got %v", err)
	}
	return f
}

// No sixty seconds hold more than the limit, and a caller that waits as long as it is told to is not refused.
func TestNoMinuteHoldsMoreThanTheLimitAndTheWaitIsTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.Int64Range(1, 5).Draw(t, "most")
		m := newMeter(&live.Limits{RequestsPerMinute: most}, nil)
		now := m.started.Add(time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "start")))
		var admitted []time.Time
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			now = now.Add(time.Duration(rapid.Int64Range(0, 20e9).Draw(t, "pause")))
			_, err := m.Enter(caller, now)
			if err != nil {
				now = now.Add(fault.From(err).RetryAfter)
				if _, err = m.Enter(caller, now); err != nil {
					t.Fatalf("refused after the wait: %v", err)
				}
			}
			admitted = append(admitted, now)
		}
		for i := range admitted {
			n := int64(0)
			for _, at := range admitted[i:] {
				if at.Sub(admitted[i]) < time.Minute {
					n++
				}
			}
			if n > most {
				t.Fatalf("%d in a minute, of %d", n, most)
			}
		}
	})
}

func TestARefusalCountsForNothing(t *testing.T) {
	m := newMeter(&live.Limits{RequestsPerMinute: 5}, &live.Limits{RequestsPerMinute: 1})
	now := m.started
	if _, err := m.Enter(caller, now); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		_, err := m.Enter(caller, now)
		if f := refused(t, err); !strings.Contains(f.Message, "workspace") {
			t.Error(f)
		}
	}
	if sum := m.find("key_1").requests.sum; sum != 1 {
		t.Errorf("the key's refused requests count: %d", sum)
	}
}

func TestRequestsAtOnceAreBoundedAndLeaveOnce(t *testing.T) {
	m := newMeter(nil, &live.Limits{Concurrency: 2})
	first, err1 := m.Enter(caller, m.started)
	_, err2 := m.Enter(&tenant.Caller{Workspace: "ws_1", Key: "key_2"}, m.started) // another key of the workspace
	_, err := m.Enter(caller, m.started)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	_ = refused(t, err)
	first.Leave()
	first.Leave()
	if _, err := m.Enter(caller, m.started); err != nil {
		t.Error(err)
	}
	_, err = m.Enter(caller, m.started)
	_ = refused(t, err)
}

func TestTokensCountAsReservedAndThenAsUsed(t *testing.T) {
	m := newMeter(&live.Limits{TokensPerMinute: 1000}, nil)
	now := m.started
	enter := func() Pass {
		p, err := m.Enter(caller, now)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	one := enter()
	if err := one.Reserve(now, 800, 0); err != nil {
		t.Fatal(err)
	}
	two := enter()
	_ = refused(t, two.Reserve(now, 300, 0))
	one.Settle(caller, now, 600, 0)
	if err := two.Reserve(now, 300, 0); err != nil {
		t.Errorf("200 were given back: %v", err)
	}
	two.Settle(caller, now, 5000, 0) // the estimate was wrong
	three := enter()
	f := refused(t, three.Reserve(now, 1, 0))
	if f.RetryAfter > 61*time.Second || f.RetryAfter < time.Minute {
		t.Errorf("retry after %v", f.RetryAfter)
	}
	if now = now.Add(f.RetryAfter); three.Reserve(now, 1000, 0) != nil {
		t.Error("refused after a minute")
	}
	four := enter()
	_ = refused(t, four.Reserve(now.Add(time.Hour), 1001, 0)) // more than the whole limit, at any time
}

// Whatever runs at once, what is spent and held never exceeds a budget while holds cover the costs.
func TestConcurrentRequestsDoNotOverspendABudget(t *testing.T) {
	const budget, cost = money.Dollar, money.Dollar / 10
	m := newMeter(&live.Limits{BudgetPerDay: budget}, nil)
	m.Begin("key_1", m.started)
	var group sync.WaitGroup
	var mu sync.Mutex
	spent := money.Nano(0)
	for range 16 {
		group.Go(func() {
			for range 50 {
				p, err := m.Enter(caller, m.started)
				if err == nil {
					err = p.Reserve(m.started, 0, cost)
				}
				charged := money.Nano(0)
				if over := (*OverBudget)(nil); err == nil {
					charged = cost
				} else if !errors.As(err, &over) || over.Period != "day" || over.Whose != "key" {
					t.Error(err)
				}
				p.Settle(caller, m.started, 0, charged)
				p.Leave()
				mu.Lock()
				spent += charged
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if spent != budget {
		t.Errorf("$%s were spent of $%s", spent, budget)
	}
	if a := m.find("key_1"); a.held != 0 || a.running != 0 || a.day.spent != budget {
		t.Errorf("%+v", a)
	}
}

func TestBudgetsBeginAnewWithTheUTCDayAndMonth(t *testing.T) {
	m := newMeter(nil, &live.Limits{BudgetPerDay: 10, BudgetPerMonth: 25})
	at := time.Date(2027, 2, 27, 23, 59, 59, 0, time.FixedZone("west", -3600)) // the 28th in UTC
	since := m.Begin("ws_1", at)
	m.Add("ws_1", since, Spent{Day: 4, Month: 12})
	spend := func(amount money.Nano) error {
		p, err := m.Enter(caller, at)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Leave()
		err = p.Reserve(at, 0, amount)
		if err == nil {
			p.Settle(caller, at, 0, amount)
		}
		return err
	}
	over := func(err error, period string, free money.Nano, renews string) {
		t.Helper()
		o := (*OverBudget)(nil)
		if !errors.As(err, &o) || o.Period != period || o.Free != free || o.Renews.Format(time.RFC3339) != renews {
			t.Errorf("want over the budget of the %s with %d free until %s, got %v", period, free, renews, err)
		}
	}
	over(spend(7), "day", 6, "2027-03-01T00:00:00Z")
	if err := spend(6); err != nil {
		t.Fatal(err)
	}
	over(spend(1), "day", 0, "2027-03-01T00:00:00Z")
	if err := spend(0); err != nil {
		t.Errorf("what costs nothing: %v", err)
	}
	at = at.Add(24 * time.Hour) // March the first
	for range 2 {
		if err := spend(10); err != nil {
			t.Fatal(err)
		}
		at = at.Add(24 * time.Hour)
	}
	over(spend(6), "month", 5, "2027-04-01T00:00:00Z")
}

// A budget that is set while a request runs counts what that request costs.
func TestABudgetCountsRequestsThatBeganBeforeIt(t *testing.T) {
	m := newMeter(nil, nil)
	p, err := m.Enter(caller, m.started)
	if err != nil {
		t.Fatal(err)
	}
	m.Add("key_1", m.Begin("key_1", m.started), Spent{Day: 1, Month: 1})
	m.limits.Put("key_1", &live.Limits{BudgetPerDay: 10})
	p.Settle(caller, m.started, 5, 9)
	next, _ := m.Enter(caller, m.started)
	if free := next.Free(m.started); free != 0 {
		t.Errorf("%d are free", free)
	}
}

func TestWithoutLimitsNothingIsCountedAndNothingRefused(t *testing.T) {
	for _, m := range []*Meter{nil, newMeter(nil, nil)} {
		p, err := m.Enter(caller, time.Now())
		if err != nil || p.Reserve(time.Now(), 1<<60, 1<<60) != nil || !p.AllowModel("any") || p.TokenLimit() != 0 || m.Expired(caller, time.Now()) {
			t.Error(err)
		}
		p.Settle(caller, time.Now(), 1, 1)
		p.Leave()
		header := http.Header{}
		if p.Show(header, time.Now()); len(header) > 0 || m != nil && m.find("key_1") != nil {
			t.Error(header)
		}
	}
}

func TestTheHeadersShowTheLimitThatLeavesLess(t *testing.T) {
	m := newMeter(&live.Limits{RequestsPerMinute: 10, TokensPerMinute: 500}, &live.Limits{RequestsPerMinute: 3})
	now := m.started.Add(500 * time.Millisecond)
	p, err := m.Enter(caller, now)
	if err != nil || p.Reserve(now, 120, 0) != nil {
		t.Fatal(err)
	}
	header := http.Header{}
	p.Show(header, now)
	for name, want := range map[string]string{
		"x-ratelimit-limit-requests": "3", "x-ratelimit-remaining-requests": "2", "x-ratelimit-reset-requests": "60.5s",
		"x-ratelimit-limit-tokens": "500", "x-ratelimit-remaining-tokens": "380", "x-ratelimit-reset-tokens": "0s",
	} {
		if got := header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestAResetIsInSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Minute: "60s", 59500 * time.Millisecond: "59.5s", 1050 * time.Millisecond: "1.05s", 7 * time.Millisecond: "0.007s",
		1009*time.Millisecond + 600*time.Microsecond: "1.01s", 120 * time.Millisecond: "0.12s",
	} {
		if got := string(appendSeconds(nil, d)); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

// The product's own requests keep the budgets and the models of their workspace, and no other limits.
func TestInternalRequestsKeepBudgetsAndModels(t *testing.T) {
	m := newMeter(nil, &live.Limits{RequestsPerMinute: 1, Concurrency: 1, TokensPerMinute: 1, BudgetPerMonth: 5, Models: live.ModelNames{"m"}})
	m.Begin("ws_1", m.started)
	for range 3 {
		p := m.Internal(&tenant.Caller{Workspace: "ws_1", Key: "cal_1"})
		if err := p.Reserve(m.started, 0, 3); err != nil {
			t.Fatal(err)
		}
		if over := (*OverBudget)(nil); !errors.As(p.Reserve(m.started, 0, 3), &over) || p.AllowModel("n") || !p.AllowModel("m") {
			t.Error("the budget or the models do not count")
		}
		p.Settle(caller, m.started, 100, 0)
	}
	pass, err := m.Enter(caller, m.started)
	if err == nil {
		err = pass.Reserve(m.started, 1, 0)
	}
	if err != nil {
		t.Errorf("their tokens count against callers: %v", err)
	}
}

func TestExpiryIsTheKeysOrTheWorkspaces(t *testing.T) {
	at := time.Now()
	for _, limits := range [][2]*live.Limits{{{ExpiresAt: clock.Of(at)}, nil}, {nil, {ExpiresAt: clock.Of(at)}}} {
		m := newMeter(limits[0], limits[1])
		if !m.Expired(caller, at) || m.Expired(caller, at.Add(-time.Millisecond)) || m.Expired(&tenant.Caller{Workspace: "ws_2"}, at) {
			t.Error(limits)
		}
	}
}
