package eval

import (
	"context"
	"io"

	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/label"
	"sovereign/internal/store/api"
)

type handler struct{ store *Store }

func (h *handler) routes() []api.Route {
	return []api.Route{
		api.Post("/evals", api.Admin, h.create, "Compare models on the same cases", api.Accepts, api.Spends, api.Long),
		api.Post("/evals/estimates", api.Admin, h.estimate, "Estimate what an eval would cost; it starts nothing",
			api.Long),
		api.Get("/evals", api.Reader, h.list, "List evals"),
		api.Get("/evals/{id}", api.Reader, h.get, "Read an eval: its progress, and what it has found"),
		api.Post("/evals/{id}/cancel", api.Admin, h.cancel, "Cancel an eval; what was answered is kept"),
		api.Get("/evals/{id}/gate", api.Reader, h.gate, "May a candidate be deployed? 200, or 412 with the same checks "+
			"beside the error; as text/plain a short report"),
		api.Get("/evals/{id}/cases", api.Reader, h.cases,
			"List the cases that are done: what was asked, answered and said"),
		api.Get("/evals/{id}/cases/export", api.Reader, h.export,
			"Download the cases that are done, one JSON object on a line", api.Produces(api.JSONL), api.Long),
		api.Post("/evals/{id}/cases/{case_id}/labels", api.Admin, h.label, "Grade a model's answer to a case",
			api.Creates),
	}
}

func (h *handler) create(ctx context.Context, caller tenant.Caller, in NewEval) (Eval, error) {
	return h.store.Create(ctx, caller.Workspace, caller.Actor(), in)
}

type estimating struct {
	Plan
	Body NewEval
}

func (h *handler) estimate(ctx context.Context, caller tenant.Caller, in estimating) (Estimate, error) {
	e, err := h.store.Estimate(ctx, caller.Workspace, in.Body)
	if err == nil {
		e.Needed, err = in.needed(ctx, h.store.DB.In(caller.Workspace), &in.Body)
	}
	return e, err
}

func (h *handler) list(ctx context.Context, caller tenant.Caller, in api.Page) (api.List[Eval], error) {
	all, err := h.store.List(ctx, caller.Workspace, in.More(), in.Offset)
	return api.NewList(in, all), err
}

type one struct {
	ID string `path:"id"`
}

func (h *handler) get(ctx context.Context, caller tenant.Caller, in one) (Eval, error) {
	return h.store.Get(ctx, caller.Workspace, in.ID)
}

func (h *handler) cancel(ctx context.Context, caller tenant.Caller, in one) (Eval, error) {
	return judging.Cancel(ctx, h.store.DB, caller, in.ID, func() (Eval, error) { return h.get(ctx, caller, in) })
}

type gateQuery struct {
	ID        string `path:"id"`
	Candidate string `query:"candidate" doc:"Which; may be left out where there is one"`
	Thresholds
}

func (h *handler) gate(ctx context.Context, caller tenant.Caller, in gateQuery) (Gate, error) {
	return h.store.Gate(ctx, h.store.DB.In(caller.Workspace), in.ID, in.Candidate, &in.Thresholds)
}

type casesQuery struct {
	ID string `path:"id"`
	CaseFilter
	api.Page
}

func (h *handler) cases(ctx context.Context, caller tenant.Caller, in casesQuery) (api.List[Case], error) {
	all, cut, err := h.store.Cases(ctx, caller.Workspace, in.ID, &in.CaseFilter, in.More(), in.Offset)
	list := api.NewList(in.Page, all)
	list.HasMore = list.HasMore || cut
	return list, err
}

func (h *handler) export(ctx context.Context, caller tenant.Caller, in one) (api.Stream, error) {
	if _, err := find(ctx, h.store.DB.In(caller.Workspace), in.ID); err != nil {
		return api.Stream{}, err
	}
	return api.Stream{
		ContentType: api.JSONL, Filename: in.ID + ".jsonl",
		Write: func(w io.Writer) error { return h.store.Export(ctx, caller.Workspace, in.ID, w) },
	}, nil
}

type labelling struct {
	ID     string `path:"id"`
	CaseID string `path:"case_id"`
	Body   CaseLabel
}

func (h *handler) label(ctx context.Context, caller tenant.Caller, in labelling) (label.Label, error) {
	return h.store.Label(ctx, caller.Workspace, caller.Actor(), in.ID, in.CaseID, in.Body)
}
