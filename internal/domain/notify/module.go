package notify

import (
	"log/slog"

	"sovereign/internal/plane/meter"
	"sovereign/internal/store/module"
)

// Deps is what notify needs.
type Deps struct {
	Store   *Store
	Mail    Mail
	Site    string                 // where people reach this server; empty for unknown
	Budgets func() []meter.Reached // budgets that were reached since the last call
	Serving func() error           // refuses while another server may own the data
	Log     *slog.Logger
}

// Module serves channels, and delivers notices to them.
func Module(d Deps) module.Module {
	h, l := &handler{d.Store}, newLoop(d)
	return module.Module{
		Name: "notifications", Routes: h.routes(), Sweep: d.Store.Sweep,
		Background: []module.Loop{
			{Name: "deliver notices", Run: l.Run, Once: true},
			{Name: "tell of reached budgets", Run: l.watchBudgets},
		},
	}
}
