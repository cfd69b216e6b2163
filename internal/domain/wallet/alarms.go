package wallet

import (
	"context"
	"fmt"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/module"
)

// Alarms warns of a wallet that is low. One that was never topped up is a step of the setup instead.
func (s *Store) Alarms(ctx context.Context, ws tenant.ID) ([]module.Notice, error) {
	low, err := s.Low(ctx, ws)
	if err != nil {
		return nil, err
	}
	has, err := s.Show(ctx, ws)
	free := has.Balance - has.Held
	if err != nil || free >= low {
		return nil, err
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
