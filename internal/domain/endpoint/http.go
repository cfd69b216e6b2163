package endpoint

import (
	"context"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
	"sovereign/internal/text/redact"
)

type handler struct{ s *Store }

func (h *handler) routes() []api.Route {
	return []api.Route{
		api.Post("/dedicated-endpoints", api.Admin, h.create,
			"Serve a model on engines of its own. What an hour with all replicas costs is set aside from the wallet",
			api.Creates, api.Flat, api.Spends),
		api.Get("/dedicated-endpoints", api.Reader, h.list, "List dedicated endpoints, the newest first", api.Flat),
		api.Get("/dedicated-endpoints/engines", api.Reader, h.offers,
			"List what dedicated endpoints can be made of: engines, what they serve, and what an hour of a GPU costs", api.Flat),
		api.Get("/dedicated-endpoints/{id}", api.Reader, h.get, "Read a dedicated endpoint", api.Flat),
		api.Post("/dedicated-endpoints/{id}/start", api.Admin, h.start,
			"Start an endpoint that has stopped or failed, at the present price", api.Flat, api.Spends),
		api.Post("/dedicated-endpoints/{id}/stop", api.Admin, h.stop,
			"Stop an endpoint when it has answered what it is asked now", api.Flat),
		api.Delete(
			"/dedicated-endpoints/{id}", api.Admin, h.delete, "Delete an endpoint and end its engines", api.Flat,
		),
	}
}

func (h *handler) create(ctx context.Context, c tenant.Caller, in Request) (Endpoint, error) {
	in.Name = redact.String(in.Name)
	return h.s.Create(ctx, c.Workspace, c.Actor(), in)
}

func (h *handler) list(ctx context.Context, c tenant.Caller, in api.Page) ([]Endpoint, error) {
	return h.s.List(ctx, c.Workspace, in.Limit, in.Offset)
}

type one struct {
	ID string `path:"id"`
}

func (h *handler) get(ctx context.Context, c tenant.Caller, in one) (Endpoint, error) {
	return h.s.Get(ctx, c.Workspace, in.ID)
}

func (h *handler) start(ctx context.Context, c tenant.Caller, in one) (Endpoint, error) {
	return h.s.Start(ctx, c.Workspace, c.Actor(), in.ID)
}

func (h *handler) stop(ctx context.Context, c tenant.Caller, in one) (Endpoint, error) {
	return h.s.Stop(ctx, c.Workspace, c.Actor(), in.ID)
}

func (h *handler) delete(ctx context.Context, c tenant.Caller, in one) (api.Deleted, error) {
	err := h.s.Delete(ctx, c.Workspace, c.Actor(), in.ID)
	return api.Deleted{ID: in.ID, Object: object, Deleted: err == nil}, err
}

// An operator sees the endpoints of all workspaces, and can stop any of them.
type operator struct{ s *Store }

func (o *operator) routes() []api.Route {
	return []api.Route{
		api.Get("/dedicated-endpoints", api.Operator, o.list,
			"List the dedicated endpoints of all workspaces, the newest first"),
		api.Post("/dedicated-endpoints/{id}/stop", api.Operator, o.stop, "Stop any dedicated endpoint"),
	}
}

// Owned is an endpoint with its workspace.
type Owned struct {
	Workspace tenant.ID `json:"workspace_id"`
	Endpoint
}

// SchemaName is the type's name in the OpenAPI document.
func (Owned) SchemaName() string { return "OwnedDedicatedEndpoint" }

func (o *operator) list(ctx context.Context, _ tenant.Caller, in api.Page) (api.List[Owned], error) {
	all, err := o.s.ListAll(ctx, in.Limit, in.Offset)
	return api.List[Owned]{Object: "list", Data: all}, err
}

func (o *operator) stop(ctx context.Context, c tenant.Caller, in one) (Endpoint, error) {
	ws, err := o.s.workspaceOf(ctx, in.ID)
	if err != nil {
		return Endpoint{}, err
	}
	return o.s.Stop(ctx, ws, c.Actor(), in.ID)
}
