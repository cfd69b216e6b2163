package meter

import (
	"time"

	"sovereign/internal/base/money"
)

// A Reached is a budget that could not cover a request.
type Reached struct {
	ID     string // of the key or the workspace
	Key    bool
	Budget money.Nano
	Period string // day or month
	Renews time.Time
}

// mostReached bounds the budgets that wait for being asked for: each is there once in its period.
const mostReached = 10_000

// reached notes a budget that could not cover a request, once in its period. The account is locked.
func (u *use) reached(m *Meter, o *OverBudget) {
	told := &u.toldDay
	if o.Period == "month" {
		told = &u.toldMonth
	}
	if told.Equal(o.Renews) {
		return
	}
	*told = o.Renews
	m.reachedMu.Lock()
	defer m.reachedMu.Unlock()
	if len(m.reachedNow) < mostReached {
		m.reachedNow = append(m.reachedNow, Reached{u.id, u.whose == "key", o.Budget, o.Period, o.Renews})
	}
}

// Reached returns the budgets that could not cover a request since it was last called, each once in its period.
func (m *Meter) Reached() []Reached {
	m.reachedMu.Lock()
	defer m.reachedMu.Unlock()
	all := m.reachedNow
	m.reachedNow = nil
	return all
}
