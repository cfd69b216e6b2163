package criterion

import (
	"sovereign/internal/domain/judging"
	"sovereign/internal/store/module"
)

// Module serves the criteria of s. estimators estimate the cost of each kind of work.
func Module(s *Store, models Models, estimators map[string]judging.Estimator) module.Module {
	h := &handler{store: s, models: models, estimators: estimators}
	return module.Module{Name: "criteria", Routes: h.routes(), Sweep: s.Sweep}
}
