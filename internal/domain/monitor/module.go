package monitor

import (
	"context"
	"log/slog"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judging"
	"sovereign/internal/store/job"
	"sovereign/internal/store/module"
)

// Module serves the scans and monitors of s, and does their work. serving refuses while another server may own the
// data.
func Module(s *Store, serving func() error, log *slog.Logger) module.Module {
	h := &handler{s}
	return module.Module{
		Name: "monitors", Routes: h.routes(), Jobs: map[string]job.Work{scans.Name: s.scan}, Sweep: s.sweep,
		Background: []module.Loop{{Name: "monitors", Run: NewLoop(s, serving, log).Run, Once: true, CallsModels: true}},
	}
}

// Dependent deletes what a judge found in traffic when its criterion is deleted.
func (s *Store) Dependent() criterion.Dependent {
	return criterion.Dependent{Deleted: deleteMonitor, Discard: s.discard}
}

// Estimator estimates the cost of a scan.
func (s *Store) Estimator() judging.Estimator {
	return func(ctx context.Context, ws tenant.ID, r *judging.EstimateRequest) (int64, money.Nano, error) {
		c, err := criterion.Find(ctx, s.db.In(ws), r.CriterionID)
		if err != nil {
			return 0, 0, err
		}
		if err := s.open(ctx, ws); err != nil {
			return 0, 0, err
		}
		d, err := s.draw(ctx, ws, c, Sample{Size: r.SampleSize, Filters: r.Filters}.withDefaults(), 1, false)
		if err != nil {
			return 0, 0, err
		}
		return d.total, d.estimate, nil
	}
}
