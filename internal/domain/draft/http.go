package draft

import (
	"context"

	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judging"
	"sovereign/internal/store/api"
)

type handler struct{ store *Store }

func (h *handler) routes() []api.Route {
	return []api.Route{
		api.Post("/criteria/suggestions", api.Admin, h.suggest, "Draft criteria from logs and critiques", api.Accepts,
			api.Spends, api.Long),
		api.Get("/suggestions", api.Reader, h.suggestions, "List suggestions"),
		api.Get("/suggestions/{run_id}", api.Reader, h.suggestion, "Read a suggestion"),
		api.Post("/suggestions/{run_id}/cancel", api.Admin, h.cancelSuggestion, "Cancel a suggestion"),

		api.Post("/criteria/{id}/improvements", api.Admin, h.improve,
			"Draft a better rubric from what the judge got wrong in the tuning half", api.Accepts, api.Spends),
		api.Get("/criteria/{id}/improvements", api.Reader, h.improvements, "List improvements"),
		api.Get("/criteria/{id}/improvements/{run_id}", api.Reader, h.improvement, "Read an improvement"),
		api.Post("/criteria/{id}/improvements/{run_id}/adopt", api.Admin, h.adopt,
			"Make a draft the rubric: a new version of the judge"),
		api.Post("/criteria/{id}/improvements/{run_id}/cancel", api.Admin, h.cancelImprovement,
			"Cancel an improvement"),
	}
}

type page struct {
	ID string `path:"id"`
	api.Page
}

type run struct {
	ID    string `path:"id"`
	RunID string `path:"run_id"`
}

type suggestionID struct {
	RunID string `path:"run_id"`
}

// suggesting is the body of a request for a suggestion.
type suggesting struct {
	Request
	judging.Spending
}

func (h *handler) suggest(ctx context.Context, caller tenant.Caller, in suggesting) (Suggested, error) {
	if err := h.store.checkSuggestion(ctx, caller.Workspace, &in.Request); err != nil {
		return Suggested{}, err
	}
	return h.store.Suggest(ctx, caller.Workspace, caller.Actor(), in.withDefaults(), in.Spending)
}

func (h *handler) suggestions(ctx context.Context, caller tenant.Caller, in api.Page) (api.List[Suggested], error) {
	all, err := h.store.AllSuggested(ctx, caller.Workspace, in.More(), in.Offset)
	return api.NewList(in, all), err
}

func (h *handler) suggestion(ctx context.Context, caller tenant.Caller, in suggestionID) (Suggested, error) {
	return h.store.Suggested(ctx, caller.Workspace, in.RunID)
}

func (h *handler) cancelSuggestion(ctx context.Context, caller tenant.Caller, in suggestionID) (Suggested, error) {
	return judging.Cancel(ctx, h.store.DB, caller, in.RunID, func() (Suggested, error) {
		return h.suggestion(ctx, caller, in)
	})
}

type improving struct {
	ID   string `path:"id"`
	Body *rewriting
}

// rewriting is the body of a request for an improvement.
type rewriting struct {
	Model string `json:"model,omitempty" doc:"That drafts; the judge's own by default"`
	judging.Spending
}

func (h *handler) improve(ctx context.Context, caller tenant.Caller, in improving) (Improvement, error) {
	var how rewriting
	if in.Body != nil {
		how = *in.Body
	}
	if how.Model != "" {
		if err := h.store.Models.Chats(caller.Workspace, "model", how.Model); err != nil {
			return Improvement{}, err
		}
	}
	return h.store.Improve(ctx, caller.Workspace, caller.Actor(), in.ID, Request{Model: how.Model}, how.Spending)
}

func (h *handler) improvements(ctx context.Context, caller tenant.Caller, in page) (api.List[Improvement], error) {
	all, err := h.store.Improvements(ctx, caller.Workspace, in.ID, in.More(), in.Offset)
	return api.NewList(in.Page, all), err
}

func (h *handler) improvement(ctx context.Context, caller tenant.Caller, in run) (Improvement, error) {
	return h.store.Improvement(ctx, caller.Workspace, in.ID, in.RunID)
}

func (h *handler) adopt(ctx context.Context, caller tenant.Caller, in run) (criterion.Criterion, error) {
	return h.store.Adopt(ctx, caller.Workspace, caller.Actor(), in.ID, in.RunID)
}

func (h *handler) cancelImprovement(ctx context.Context, caller tenant.Caller, in run) (Improvement, error) {
	return judging.Cancel(ctx, h.store.DB, caller, in.RunID, func() (Improvement, error) {
		return h.improvement(ctx, caller, in)
	})
}
