package logbook

import (
	"context"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/module"
)

// Module serves the logs of h, and moves spooled rows to the log database with i.
func Module(h *Handler, i *Ingester) module.Module {
	return module.Module{
		Name: "logs", Routes: h.Routes(), Background: []module.Loop{{Name: "ingest logs", Run: i.Run}},
		Setup: []module.Step{{
			ID:     "turn_on_logging",
			Action: "ask the operator to log chat traffic: sovereign admin logging on",
			Done:   func(_ context.Context, ws tenant.ID) (bool, error) { return h.enabled(ws), nil },
		}},
	}
}
