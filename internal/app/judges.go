package app

import (
	"fmt"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/label"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/live"
	"sovereign/internal/store/module"
)

// judging is the modules that grade: people, judges, and the work that judges do in the background.
func (d *domains) judging(i *instance, logged *logbook.Store, logs *logbook.Handler) []module.Module {
	criteria := criterion.NewStore(i.storage.db, i.storage.vault)
	d.bench = criterion.NewBench(i.storage.db, i.plane.gateway)
	monitor := criterion.NewGuard(criteria, logged, d.bench, logs.Open, i.gate, i.log)
	handler := criterion.NewHandler(criterion.Config{
		Store: criteria, Bench: d.bench, Logs: logged, Open: logs.Open, Models: chatModels{i}, Runner: d.jobs,
	})
	return []module.Module{
		label.Module(label.NewStore(i.storage.db, logs, criteria)),
		{
			Name: "criteria", Routes: handler.Routes(), Sweep: criteria.Sweep, Start: criteria.Renew,
			Background: []module.Loop{{Name: "monitor traffic", Run: monitor.Run, CallsModels: true}},
			Setup: []module.Step{{
				ID:     "calibrate_judge",
				Action: "make a judge, grade what models said, and calibrate it: POST /v1/criteria, POST /v1/labels, POST /v1/criteria/{id}/calibrations",
				Done:   criteria.Calibrated,
			}},
		},
	}
}

// chatModels are those that a workspace can judge with.
type chatModels struct{ i *instance }

// Chats refuses what is no chat model of the catalog that the workspace may call.
func (c chatModels) Chats(ws tenant.ID, field, model string) error {
	m, err := c.i.models.catalog().Serves(model, c.i.state.keys.Of(ws))
	switch {
	case err != nil:
		return fault.Invalid(field, "cannot be called: "+fault.From(err).Message)
	case m.Kind != live.Chat:
		return fault.Invalid(field, fmt.Sprintf("is for %s, not for chat", m.Kind))
	}
	return nil
}
