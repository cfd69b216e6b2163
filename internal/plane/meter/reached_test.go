package meter

import (
	"testing"
	"time"

	"sovereign/internal/base/money"
	"sovereign/internal/live"
)

func TestABudgetIsReachedOnceInItsPeriod(t *testing.T) {
	m := newMeter(&live.Limits{BudgetPerDay: 10}, &live.Limits{BudgetPerMonth: 15})
	now := time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC)
	m.Begin("key_1", now)
	m.Begin("ws_1", now)
	try := func(at time.Time, amount int64) {
		t.Helper()
		p, err := m.Enter(caller, at)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Leave()
		if p.Reserve(at, 0, money.Nano(amount)) == nil {
			p.Settle(caller, at, 0, money.Nano(amount))
		}
	}
	if try(now, 10); len(m.Reached()) != 0 {
		t.Error("a budget that covers everything is reached")
	}
	for range 3 {
		try(now, 1)
	}
	got := m.Reached()
	if len(got) != 1 || got[0] != (Reached{"key_1", true, 10, "day", time.Date(2026, 11, 19, 0, 0, 0, 0, time.UTC)}) {
		t.Errorf("%+v", got)
	}
	if len(m.Reached()) != 0 {
		t.Error("it is told twice")
	}
	tomorrow := now.AddDate(0, 0, 1)
	try(tomorrow, 6) // the day covers it, the month does not
	got = m.Reached()
	if len(got) != 1 || got[0] != (Reached{"ws_1", false, 15, "month", time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)}) {
		t.Errorf("%+v", got)
	}
	try(tomorrow, 11)
	if got = m.Reached(); len(got) != 1 || got[0].ID != "key_1" {
		t.Errorf("the next day: %+v", got)
	}
}
