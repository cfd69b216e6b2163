package criterion

import (
	"fmt"
	"sync/atomic"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
)

// Spending is what every operation takes that starts spending.
type Spending struct {
	MaxCostUSD *money.Nano `json:"max_cost_usd,omitempty" minimum:"0" doc:"Start nothing that would cost more, as far as one can tell before, and stop where it would all the same"`
}

// Effort is how a calibration goes about it.
type Effort struct {
	Spending
	Fresh bool `json:"fresh,omitempty" doc:"Ask again what the judge answered in earlier runs, and pay for it: models change"`
}

// covers refuses what would cost more than the caller is ready to pay.
func (s Spending) covers(estimate money.Nano) error {
	if s.MaxCostUSD != nil && estimate > *s.MaxCostUSD {
		return fault.Invalid("max_cost_usd", fmt.Sprintf("is less than this would cost, about $%s", estimate))
	}
	return nil
}

// A purse is what a run may spend, and has.
type purse struct {
	most  *money.Nano
	spent atomic.Int64
}

// open refuses to spend more.
func (p *purse) open() error {
	if p.most != nil && money.Nano(p.spent.Load()) >= *p.most {
		return fault.Precondition.New("max_cost_usd is spent: what was answered is kept, and another run goes on from it")
	}
	return nil
}
