package logbook

import "sovereign/internal/store/module"

// Module serves the logs of h, and moves spooled rows to the log database with i.
func Module(h *Handler, i *Ingester) module.Module {
	return module.Module{Name: "logs", Routes: h.Routes(), Background: []module.Loop{{Name: "ingest logs", Run: i.Run}}}
}
