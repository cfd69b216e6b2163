package draft

import (
	"context"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judging"
	"sovereign/internal/store/job"
	"sovereign/internal/store/module"
)

// Module serves the drafts of s, and does their jobs.
func Module(s *Store) module.Module {
	h := &handler{s}
	return module.Module{Name: "drafts", Routes: h.routes(), Jobs: map[string]job.Work{
		improvements.Name: s.work(s.improving()),
		suggestions.Name:  s.work(s.suggesting()),
	}}
}

// Estimators estimate the cost of either kind of draft.
func (s *Store) Estimators() (improvement, suggestion judging.Estimator) {
	return s.estimateImprovement, s.estimateSuggestion
}

func (s *Store) estimateImprovement(ctx context.Context, ws tenant.ID, r *judging.EstimateRequest,
) (calls int64, cost money.Nano, err error) {
	c, err := criterion.Find(ctx, s.DB.In(ws), r.CriterionID)
	if err != nil {
		return 0, 0, err
	}
	model := r.Model
	if model == "" {
		model = c.JudgeModel
	}
	ask, err := s.improvementPrompt(ctx, ws, c.ID, model)
	if err != nil {
		return 0, 0, err
	}
	cost, err = s.estimate(ws, model, ask)
	return 1, cost, err
}

func (s *Store) estimateSuggestion(ctx context.Context, ws tenant.ID, r *judging.EstimateRequest,
) (calls int64, cost money.Nano, err error) {
	d := Request{Model: r.Model, Size: min(r.SampleSize, maxSize)}.withDefaults()
	if r.Filters != nil {
		d.Filters = *r.Filters
	}
	if err := s.checkSuggestion(ctx, ws, &d); err != nil {
		return 0, 0, err
	}
	ask, err := s.suggestionPrompt(ctx, ws, d, 1, false)
	if err != nil {
		return 0, 0, err
	}
	cost, err = s.estimate(ws, d.Model, ask)
	return 1, cost, err
}
