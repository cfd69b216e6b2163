package dataset

import (
	"context"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/module"
)

// Module serves the datasets of s, and does the jobs that build them. open refuses a workspace whose logs cannot be
// read now.
func Module(s *Store, open func(context.Context, tenant.ID) error) module.Module {
	return module.Module{Name: "datasets", Routes: NewHandler(s, open).Routes(), Jobs: s.Jobs(), Sweep: s.Sweep}
}
