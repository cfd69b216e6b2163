package billing

import (
	"context"
	"log/slog"
	"time"

	"sovereign/internal/base/limit"
	"sovereign/internal/store/module"
)

// Deps is what billing needs.
type Deps struct {
	Store  *Store
	Config Config
	Drain  func(context.Context) error // posts what was settled to the ledger
	Log    *slog.Logger
}

// Module serves top-ups and statements, and takes Stripe's events.
func Module(d Deps) module.Module {
	h := &handler{
		store: d.Store, client: newClient(d.Config), drain: d.Drain, log: d.Log, now: time.Now,
		hooks: limit.NewBudget(maxHooks),
	}
	return module.Module{Name: "billing", Routes: h.routes(), Sweep: d.Store.Sweep}
}
