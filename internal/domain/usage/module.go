package usage

import (
	"context"
	"errors"

	"sovereign/internal/store/module"
)

// Module serves the series of h, and closes the days that are over.
func Module(h *Handler) module.Module {
	sweep := func(ctx context.Context) error {
		return errors.Join(h.store.CloseDays(ctx), h.store.deleteOldBudgets(ctx))
	}
	return module.Module{Name: "usage", Routes: h.Routes(), Sweep: sweep}
}
