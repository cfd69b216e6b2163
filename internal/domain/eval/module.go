package eval

import (
	"sovereign/internal/store/job"
	"sovereign/internal/store/module"
)

// Module serves the evals of s, and runs them.
func Module(s *Store) module.Module {
	h := &handler{s}
	return module.Module{
		Name: "evals", Routes: h.routes(), Jobs: map[string]job.Work{object: s.work}, Sweep: s.sweep,
	}
}
