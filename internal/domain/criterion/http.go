package criterion

import (
	"context"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/judging"
	"sovereign/internal/store/api"
	"sovereign/internal/store/audit"
)

type handler struct {
	store      *Store
	models     Models
	estimators map[string]judging.Estimator
}

func (h *handler) routes() []api.Route {
	return []api.Route{
		api.Post("/criteria", api.Admin, h.create, "Make a judge", api.Creates),
		api.Get("/criteria", api.Reader, h.list, "List judges"),
		api.Get("/criteria/{id}", api.Reader, h.get, "Read a judge"),
		api.Patch("/criteria/{id}", api.Admin, h.update,
			"Change a judge; what changes what it is told is a new version, and voids its certificate"),
		api.Delete("/criteria/{id}", api.Admin, h.delete, "Delete a judge; its labels stay", api.Long),
		api.Get("/criteria/{id}/history", api.Reader, h.history, "Every change of a judge, before and after"),
		api.Post("/criteria/estimates", api.Admin, h.estimate,
			"What a calibration, a scan, an improvement or a suggestion would cost; it starts nothing", api.Long),
	}
}

type one struct {
	ID string `path:"id"`
}

type page struct {
	ID string `path:"id"`
	api.Page
}

func (h *handler) create(ctx context.Context, caller tenant.Caller, in Definition) (Criterion, error) {
	return h.store.Create(ctx, caller.Workspace, caller.Actor(), &in, h.models)
}

func (h *handler) list(ctx context.Context, caller tenant.Caller, in api.Page) (api.List[Criterion], error) {
	all, err := h.store.List(ctx, caller.Workspace, in.More(), in.Offset)
	return api.NewList(in, all), err
}

func (h *handler) get(ctx context.Context, caller tenant.Caller, in one) (Criterion, error) {
	return h.store.Get(ctx, caller.Workspace, in.ID)
}

type change struct {
	ID   string `path:"id"`
	Body Definition
}

func (h *handler) update(ctx context.Context, caller tenant.Caller, in change) (Criterion, error) {
	return h.store.Update(ctx, caller.Workspace, caller.Actor(), in.ID, &in.Body, h.models)
}

func (h *handler) delete(ctx context.Context, caller tenant.Caller, in one) (api.Deleted, error) {
	return api.Deleted{ID: in.ID, Object: object, Deleted: true}, h.store.Delete(ctx, caller.Workspace, caller.Actor(),
		in.ID)
}

func (h *handler) history(ctx context.Context, caller tenant.Caller, in page) (api.List[audit.Entry], error) {
	all, err := h.store.History(ctx, caller.Workspace, in.ID, in.More(), in.Offset)
	return api.NewList(in.Page, all), err
}

// suggestion is the one kind of work that is for no criterion.
const suggestion = "suggestion"

func (h *handler) estimate(ctx context.Context, caller tenant.Caller, in judging.EstimateRequest,
) (judging.Estimate, error) {
	e := judging.Estimate{Object: "estimate", Kind: in.Kind, Calls: 1}
	if in.Kind != suggestion && in.CriterionID == "" {
		return e, fault.Invalid("criterion_id", "is required")
	}
	var err error
	e.Calls, e.CostUSD, err = h.estimators[in.Kind](ctx, caller.Workspace, &in)
	return e, err
}
