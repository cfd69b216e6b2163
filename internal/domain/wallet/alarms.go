package wallet

import (
	"context"
	"fmt"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/module"
)

// lowBalance is the free money below which a wallet is low.
const lowBalance = 5 * money.Dollar

// Alarms warns of a wallet that is low. One that was never topped up is a step of the setup instead.
func (s *Store) Alarms(ctx context.Context, ws tenant.ID) ([]module.Notice, error) {
	has := s.funds.Balance(ws)
	free := has.Balance - has.Held
	if free >= lowBalance {
		return nil, nil
	}
	if funded, err := s.Funded(ctx, ws); err != nil || !funded {
		return nil, err
	}
	return []module.Notice{{
		Kind: "wallet.low", Title: "The wallet is low",
		Detail: fmt.Sprintf("%s USD are free, and requests that would cost more are refused", free),
		Link:   module.Link{Page: "wallet"},
	}}, nil
}
