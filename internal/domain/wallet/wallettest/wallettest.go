// Package wallettest reads wallets in tests.
package wallettest

import (
	"context"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/wallet"
	"sovereign/internal/plane/funds"
)

// T is what it needs of a test.
type T interface {
	Helper()
	Context() context.Context
	Fatal(...any)
}

// Shown returns the money of a workspace as it is shown.
func Shown(t T, s *wallet.Store, ws tenant.ID) funds.Balance {
	t.Helper()
	b, err := s.Show(t.Context(), ws)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Free returns what is shown as free.
func Free(t T, s *wallet.Store, ws tenant.ID) money.Nano {
	t.Helper()
	b := Shown(t, s, ws)
	return b.Balance - b.Held
}
