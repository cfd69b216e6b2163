package canary

import (
	"log/slog"

	"sovereign/internal/store/module"
)

// Module serves the gates of s, and does their work. serving refuses while another server may own the data.
func Module(s *Store, serving func() error, log *slog.Logger) module.Module {
	h := &handler{s}
	return module.Module{
		Name: "gates", Routes: h.routes(), Sweep: s.sweep, Alarms: s.Alarms,
		Background: []module.Loop{{Name: "gates", Run: NewLoop(s, serving, log).Run, Once: true, CallsModels: true}},
	}
}
