package funds

import (
	"math/bits"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
)

// An Allowance is what a workspace may abandon in a day without paying: a share of what it has paid in that day, and at
// least a fixed amount. A request is abandoned when its caller leaves before a whole answer comes, which happens by
// accident. Beyond the allowance it is charged.
type Allowance struct {
	Share int64 // millionths of what was paid
	Least money.Nano
}

// of returns the allowance of a workspace that has paid this much.
func (a *Allowance) of(paid money.Nano) money.Nano {
	high, low := bits.Mul64(uint64(max(paid, 0)), uint64(a.Share))
	share, _ := bits.Div64(high, low, 1_000_000) // Share is at most a million, so it fits
	return max(a.Least, money.Nano(share))
}

// Allow puts an allowance in force.
func (f *Funds) Allow(a Allowance) { f.allowance.Store(&a) }

// Excuse takes a cost from the workspace's allowance. It returns false, and takes nothing, when the allowance of the
// last 24 hours is used up.
func (h *Hold) Excuse(cost money.Nano, at clock.Time) bool {
	a := h.account
	a.mu.Lock()
	defer a.mu.Unlock()
	paid, excused := a.recent.sums(at)
	if cost > h.funds.allowance.Load().of(paid)-excused {
		return false
	}
	a.recent.add(at, 0, cost)
	return true
}

// hours is how many hours are summed: the last 24, and the current one.
const hours = 25

// recent sums what a workspace has paid, and what it was excused from, by the hour. It is allocated with the first
// amount.
type recent struct{ ring *[hours]hourSums }

type hourSums struct {
	hour          int64 // since 1970
	paid, excused money.Nano
}

func hourOf(at clock.Time) int64 { return int64(at) / time.Hour.Microseconds() }

// add adds amounts to the hour of a time. An amount that is older than the ring is dropped.
func (r *recent) add(at clock.Time, paid, excused money.Nano) {
	if paid == 0 && excused == 0 {
		return
	}
	if r.ring == nil {
		r.ring = new([hours]hourSums)
	}
	hour := hourOf(at)
	switch s := &r.ring[hour%hours]; {
	case s.hour == hour:
		s.paid += paid
		s.excused += excused
	case s.hour < hour:
		*s = hourSums{hour, paid, excused}
	}
}

// sums returns what was added in the current hour and in the 24 before it.
func (r *recent) sums(at clock.Time) (paid, excused money.Nano) {
	if r.ring == nil {
		return 0, 0
	}
	now := hourOf(at)
	for i := range r.ring {
		if s := &r.ring[i]; s.hour > now-hours && s.hour <= now {
			paid += s.paid
			excused += s.excused
		}
	}
	return paid, excused
}

// A Recent is what a workspace has paid, and what it was excused from, in the hour of a time.
type Recent struct {
	At            clock.Time
	Paid, Excused money.Nano
}

// Restore adds sums of the last day that an earlier process has settled.
func (f *Funds) Restore(ws tenant.ID, all []Recent) {
	a := f.account(ws)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range all {
		a.recent.add(one.At, one.Paid, one.Excused)
	}
}
