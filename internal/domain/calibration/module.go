package calibration

import (
	"context"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judging"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
	"sovereign/internal/store/module"
)

// Module serves the calibrations of s, and does their jobs.
func Module(s *Store) module.Module {
	h := &handler{s}
	return module.Module{
		Name: "calibrations", Routes: h.routes(), Jobs: map[string]job.Work{Kind: s.work}, Start: s.VoidOtherEditions,
		Alarms: s.Alarms,
		Setup: []module.Step{{
			ID: "calibrate_judge",
			Action: "make a judge, grade what models said, and calibrate it: POST /v1/criteria, POST /v1/labels, " +
				"POST /v1/criteria/{id}/calibrations",
			Done: s.Calibrated,
		}},
	}
}

// Dependent voids certificates when their criterion changes.
func (s *Store) Dependent() criterion.Dependent {
	return criterion.Dependent{
		Running: running,
		Changed: func(ctx context.Context, in db.Scoped, criterionID, reason string) error {
			return void(ctx, in, criterionID, voidedByVersion, reason)
		},
		Deleted: func(ctx context.Context, in db.Scoped, criterionID string) error {
			return void(ctx, in, criterionID, voidedByDeletion, "the criterion was deleted")
		},
		Discard: s.discard,
	}
}

// Estimator estimates the cost of a calibration.
func (s *Store) Estimator() judging.Estimator {
	return func(ctx context.Context, ws tenant.ID, r *judging.EstimateRequest) (int64, money.Nano, error) {
		cost, labels, err := s.Estimate(ctx, ws, r.CriterionID, r.Fresh)
		return labels, cost, err
	}
}
