package usage

import "sovereign/internal/store/module"

// Module serves the series of h, and closes the days that are over.
func Module(h *Handler) module.Module {
	return module.Module{Name: "usage", Routes: h.Routes(), Sweep: h.store.CloseDays}
}
