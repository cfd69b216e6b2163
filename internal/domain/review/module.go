package review

import (
	"sovereign/internal/store/job"
	"sovereign/internal/store/module"
)

// Module serves the queues of s, and fills them.
func Module(s *Store) module.Module {
	h := &handler{s}
	return module.Module{
		Name: "review queues", Routes: h.routes(), Jobs: map[string]job.Work{kind: s.work}, Sweep: s.sweep,
		Waits: s.Waits,
	}
}
