package funds_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/plane/funds"
)

// Whatever a workspace pays and abandons when, what it is excused from in any 24 hours is within its allowance.
func TestNoDaysExcusesExceedTheAllowance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type event struct {
			at            clock.Time
			paid, excused money.Nano
		}
		f := funds.New()
		f.Credit("ws_a", math.MaxInt64)
		allowance := funds.Allowance{
			Share: rapid.Int64Range(0, 1_000_000).Draw(t, "share"), Least: money.Nano(rapid.Int64Range(0, 50).Draw(t, "least")),
		}
		f.Allow(allowance)
		at := clock.Of(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		var all []event
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			at = at.Add(time.Duration(rapid.IntRange(0, 5*3600).Draw(t, "pause")) * time.Second)
			cost := money.Nano(rapid.Int64Range(1, 40).Draw(t, "cost"))
			hold, _, ok := f.Hold("ws_a", cost)
			if !ok {
				t.Fatal("the wallet has no money")
			}
			one := event{at: at}
			if rapid.Bool().Draw(t, "abandoned") && hold.Excuse(cost, at) {
				hold.Settle(0, at)
				one.excused = cost
			} else {
				hold.Settle(cost, at)
				one.paid = cost
			}
			all = append(all, one)
			var paid, excused money.Nano // in the last 24 hours; what was paid may be an hour older
			for _, e := range all {
				if e.at > at.Add(-24*time.Hour) {
					excused += e.excused
				}
				if e.at > at.Add(-25*time.Hour) {
					paid += e.paid
				}
			}
			if limit := max(allowance.Least, money.Nano(int64(paid)*allowance.Share/1_000_000)); one.excused > 0 && excused > limit {
				t.Fatalf("$%s were excused in a day, with $%s paid: the limit is $%s", excused, paid, limit)
			}
		}
	})
}

func TestAnAllowanceIsNotSpentTwiceAtOnce(t *testing.T) {
	f := funds.New()
	f.Credit("ws_a", 1000)
	f.Allow(funds.Allowance{Least: 100})
	now := clock.Now()
	excused := money.Nano(0)
	for range 5 { // all decided before any is settled
		hold, _, _ := f.Hold("ws_a", 40)
		if hold.Excuse(40, now) {
			excused += 40
		}
		defer hold.Release()
	}
	if excused != 80 {
		t.Errorf("%d were excused of an allowance of 100", excused)
	}
}

func TestRestoredSumsCountLikeOnesThatWereSettledHere(t *testing.T) {
	f := funds.New()
	f.Credit("ws_a", 1000)
	f.Allow(funds.Allowance{Share: 100_000})
	now := clock.Now()
	f.Restore("ws_a", []funds.Recent{
		{At: now, Paid: 600, Excused: 30},
		{At: now.Add(-20 * time.Hour), Paid: 400, Excused: 50},
		{At: now.Add(-48 * time.Hour), Paid: 100_000, Excused: 10},
	})
	if b := f.Balance("ws_a"); b.Excused != 80 || b.Allowance != 100 || b.Balance != 1000 {
		t.Errorf("%+v", b)
	}
	hold, _, _ := f.Hold("ws_a", 40)
	defer hold.Release()
	if hold.Excuse(21, now) || !hold.Excuse(20, now) {
		t.Error("20 are left of the allowance")
	}
}
