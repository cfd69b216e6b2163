package app

import (
	"context"
	"fmt"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/label"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/live"
	"sovereign/internal/store/api"
)

// judgeRoutes furnishes what grades: people, judges, and the work that judges do in the background.
func (h *house) judgeRoutes(logged *logbook.Store, logs *logbook.Handler) []api.Route {
	h.criteria = criterion.NewStore(h.db, h.vault)
	h.bench = criterion.NewBench(h.db, h.gateway)
	h.guardians = criterion.NewGuard(h.criteria, logged, h.bench, logs.Open, h.gate, h.log)
	routes := label.NewHandler(label.NewStore(h.db, logs, h.criteria)).Routes()
	return append(routes, criterion.NewHandler(criterion.Config{
		Store: h.criteria, Bench: h.bench, Logs: logged, Open: logs.Open, Models: chatModels{h}, Runner: h.jobs,
	}).Routes()...)
}

// chatModels are those that a workspace can judge with.
type chatModels struct{ h *house }

// Chats refuses what is no chat model of the catalog that the workspace may call.
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
	return h.criteria.Calibrated(ctx, ws)
}
