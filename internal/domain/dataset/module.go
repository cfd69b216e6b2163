package dataset

import "sovereign/internal/store/module"

// Module serves the datasets of s, and does the jobs that build them.
func Module(s *Store) module.Module {
	return module.Module{
		Name: "datasets", Routes: NewHandler(s).Routes(), Jobs: s.Jobs(), Sweep: s.Sweep,
		Setup: []module.Step{{
			ID:     "make_dataset",
			Action: "freeze logged exchanges into a dataset: POST /v1/datasets/from_logs",
			Done:   s.Any,
		}},
	}
}
