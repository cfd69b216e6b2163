package app

import (
	"context"
	"fmt"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/calibration"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/draft"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/label"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/domain/monitor"
	"sovereign/internal/live"
	"sovereign/internal/store/api"
	"sovereign/internal/store/job"
	"sovereign/internal/store/module"
)

// judgeRoutes wires labels, criteria, and the background work of judges.
func (h *house) judgeRoutes(logged *logbook.Store, logs *logbook.Handler) []api.Route {
	h.jobs = job.NewRunner(job.Config{DB: h.db, Log: h.log, Slots: 16, PerWorkspace: 4})
	h.judges = judging.NewClient(h.db, h.gateway)
	criteria := criterion.NewStore(h.db)
	h.calibrations = calibration.NewStore(h.db, h.vault, criteria, h.judges)
	monitors := monitor.NewStore(h.db, logged, logs.Open, h.judges)
	drafts := draft.NewStore(draft.Config{
		DB: h.db, Criteria: criteria, Judges: h.judges, Logs: logged, Open: logs.Open, Models: chatModels{h},
	})
	criteria.Attach(h.calibrations.Dependent(), monitors.Dependent())
	improvement, suggestion := drafts.Estimators()
	h.modules = []module.Module{
		label.Module(label.NewStore(h.db, logs, h.calibrations)),
		judging.Module(h.judges),
		criterion.Module(criteria, chatModels{h}, map[string]judging.Estimator{
			"calibration": h.calibrations.Estimator(), "scan": monitors.Estimator(), "improvement": improvement, "suggestion": suggestion,
		}),
		calibration.Module(h.calibrations),
		monitor.Module(monitors, h.gate, h.log),
		draft.Module(drafts),
	}
	var routes []api.Route
	for _, m := range h.modules {
		routes = append(routes, m.Routes...)
		for kind, work := range m.Jobs {
			h.jobs.Handle(kind, work)
		}
	}
	return routes
}

// chatModels are the models that a workspace can judge with.
type chatModels struct{ h *house }

// Chats refuses a model that is not a chat model of the catalog which the workspace may call.
func (c chatModels) Chats(ws tenant.ID, field, model string) error {
	m, err := c.h.catalog().Serves(model, c.h.keys.Of(ws))
	switch {
	case err != nil:
		return fault.Invalid(field, "cannot be called: "+fault.From(err).Message)
	case m.Kind != live.Chat:
		return fault.Invalid(field, fmt.Sprintf("is for %s, not for chat", m.Kind))
	}
	return nil
}

// calibrated reports whether a workspace has a judge that was measured.
func (h *house) calibrated(ctx context.Context, ws tenant.ID) (bool, error) {
	return h.calibrations.Calibrated(ctx, ws)
}
