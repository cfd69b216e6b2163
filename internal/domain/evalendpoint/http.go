package evalendpoint

import (
	"context"

	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
	"sovereign/internal/text/redact"
)

type handler struct{ store *Store }

func (h *handler) routes() []api.Route {
	return []api.Route{
		api.Post(
			"/endpoints", api.Admin, h.put,
			"Register an OpenAI-compatible server for evals, or change the one of that name",
		),
		api.Get("/endpoints", api.Reader, h.list, "List eval endpoints"),
		api.Get("/endpoints/{id}", api.Reader, h.get, "Read an eval endpoint"),
		api.Delete("/endpoints/{id}", api.Admin, h.delete, "Delete an eval endpoint; evals keep their results"),
	}
}

// A putEndpoint is an endpoint to keep.
type putEndpoint struct {
	Name    string       `json:"name" doc:"1 to 64 characters that can be seen; an endpoint that has this name is changed"`
	BaseURL string       `json:"base_url" doc:"A public http or https URL; /chat/completions is added to it"`
	Model   string       `json:"model" doc:"What the server calls its model: 1 to 256 characters"`
	APIKey  *secret.Text `json:"api_key,omitempty" doc:"Sent as a bearer token, and never shown again; leave it out to keep the one that there is, or if the server needs none. A new base_url needs it again."`
}

func (h *handler) put(ctx context.Context, caller tenant.Caller, in putEndpoint) (EvalEndpoint, error) {
	n := New(in)
	n.Name, n.Model = redact.String(n.Name), redact.String(n.Model)
	return h.store.Put(ctx, caller.Workspace, caller.Actor(), n)
}

func (h *handler) list(ctx context.Context, caller tenant.Caller, in api.Page) (api.List[EvalEndpoint], error) {
	all, err := h.store.List(ctx, caller.Workspace, in.More(), in.Offset)
	return api.NewList(in, all), err
}

type atEndpoint struct {
	ID string `path:"id"`
}

func (h *handler) get(ctx context.Context, caller tenant.Caller, in atEndpoint) (EvalEndpoint, error) {
	return h.store.Get(ctx, caller.Workspace, in.ID)
}

func (h *handler) delete(ctx context.Context, caller tenant.Caller, in atEndpoint) (api.Deleted, error) {
	err := h.store.Delete(ctx, caller.Workspace, caller.Actor(), in.ID)
	return api.Deleted{ID: in.ID, Object: object, Deleted: err == nil}, err
}
