package alias

import (
	"context"

	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/store/api"
	"sovereign/internal/store/audit"
	"sovereign/internal/text/redact"
)

// A Handler serves the operations of keys on their workspace's aliases.
type Handler struct {
	store  *Store
	models func() live.Models // in force
}

// NewHandler manages the aliases of s. They are checked against the models in force.
func NewHandler(s *Store, models func() live.Models) *Handler {
	return &Handler{store: s, models: models}
}

// Routes are the operations for keys.
func (h *Handler) Routes() []api.Route {
	return []api.Route{
		api.Put("/aliases", api.Admin, h.put, "Create or repoint an alias"),
		api.Get("/aliases", api.Reader, h.list, "List aliases"),
		api.Get("/aliases/{name}", api.Reader, h.get, "Read an alias"),
		api.Delete("/aliases/{name}", api.Admin, h.delete, "Delete an alias"),
		api.Get("/aliases/{name}/history", api.Reader, h.history, "Every change of an alias, before and after"),
	}
}

// A putAlias is the whole alias: what is omitted or null is its default.
type putAlias struct {
	Name           string `json:"name" doc:"3 to 64 letters, digits, dots, dashes or underscores; not the id of a catalog model"`
	TargetModel    string `json:"target_model" doc:"A catalog model, or a trained model of the workspace; not a dedicated endpoint"`
	Description    string `json:"description,omitempty" nullable:"true" doc:"Free text of at most 500 characters"`
	CanaryModel    string `json:"canary_model,omitempty" nullable:"true" doc:"The candidate: a catalog model of the target's kind"`
	CanaryPercent  int    `json:"canary_percent,omitempty" nullable:"true" doc:"0 to 100, 0 by default: 0 is a roll-back, 100 a cut-over; above 0 it needs a canary_model"`
	FallbackModels Models `json:"fallback_models,omitempty" doc:"At most 8 catalog models of the target's kind, each once, in the order to try them"`
	GateRequest
}

func (h *Handler) put(ctx context.Context, caller tenant.Caller, in putAlias) (Alias, error) {
	gate, err := in.settings()
	if err != nil {
		return Alias{}, err
	}
	a := Alias{
		Name: in.Name, TargetModel: in.TargetModel, Description: redact.String(in.Description),
		CanaryModel: in.CanaryModel, CanaryPercent: in.CanaryPercent, FallbackModels: in.FallbackModels,
		GateSettings: gate,
	}
	if err := a.Check(h.models(), caller.Workspace); err != nil {
		return Alias{}, err
	}
	return h.store.Put(ctx, caller.Workspace, caller.Actor(), a)
}

func (h *Handler) list(ctx context.Context, caller tenant.Caller, in api.Page) (api.List[Alias], error) {
	all, err := h.store.List(ctx, caller.Workspace, in.More(), in.Offset)
	return api.NewList(in, all), err
}

type named struct {
	Name string `path:"name"`
}

func (h *Handler) get(ctx context.Context, caller tenant.Caller, in named) (Alias, error) {
	return h.store.Get(ctx, caller.Workspace, in.Name)
}

func (h *Handler) delete(ctx context.Context, caller tenant.Caller, in named) (api.Deleted, error) {
	return api.Deleted{
		ID: in.Name, Object: object, Deleted: true,
	}, h.store.Delete(ctx, caller.Workspace, caller.Actor(), in.Name)
}

type historyQuery struct {
	Name string `path:"name"`
	api.Page
}

func (h *Handler) history(ctx context.Context, caller tenant.Caller, in historyQuery) (api.List[audit.Entry], error) {
	entries, err := h.store.History(ctx, caller.Workspace, in.Name, in.More(), in.Offset)
	return api.NewList(in.Page, entries), err
}
