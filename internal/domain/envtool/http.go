package envtool

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
	"sovereign/internal/store/module"
	"sovereign/internal/text/redact"
)

// Module serves the tools of s.
func Module(s *Store) module.Module {
	return module.Module{Name: "environment tools", Routes: (&handler{s}).routes()}
}

type handler struct{ s *Store }

func (h *handler) routes() []api.Route {
	return []api.Route{
		api.Post("/environment/tools", api.Admin, h.create, "Register a tool that a model may call while it is trained",
			api.Creates, api.Flat, api.ShowsSecret),
		api.Get("/environment/tools", api.Admin, h.list, "List environment tools, the newest first", api.Flat),
		api.Get("/environment/tools/{id}", api.Admin, h.get, "Read an environment tool", api.Flat),
		api.Delete(
			"/environment/tools/{id}", api.Admin, h.delete, "Delete an environment tool and its secret", api.Flat,
		),
		api.Post("/environment/tools/{id}/test", api.Admin, h.test, "Call an environment tool once, as a run would",
			api.Flat, api.Outside),
	}
}

func (h *handler) create(ctx context.Context, c tenant.Caller, in Request) (Tool, error) {
	in.Name, in.Description = redact.String(in.Name), redact.String(in.Description)
	return h.s.Create(ctx, c.Workspace, c.Actor(), in)
}

func (h *handler) list(ctx context.Context, c tenant.Caller, in api.Page) ([]Tool, error) {
	return h.s.List(ctx, c.Workspace, in.Limit, in.Offset)
}

type one struct {
	ID string `path:"id"`
}

func (h *handler) get(ctx context.Context, c tenant.Caller, in one) (Tool, error) {
	return h.s.Get(ctx, h.s.db.In(c.Workspace), in.ID)
}

func (h *handler) delete(ctx context.Context, c tenant.Caller, in one) (api.Deleted, error) {
	err := h.s.Delete(ctx, c.Workspace, c.Actor(), in.ID)
	return api.Deleted{ID: in.ID, Object: object, Deleted: err == nil}, err
}

type trial struct {
	ID   string `path:"id"`
	Body struct {
		Arguments jsontext.Value `json:"arguments,omitempty" doc:"An object, as the parameters describe it"`
	}
}

func (h *handler) test(ctx context.Context, c tenant.Caller, in trial) (Result, error) {
	if len(in.Body.Arguments) == 0 {
		in.Body.Arguments = jsontext.Value("{}")
	}
	return h.s.Call(ctx, c.Workspace, in.ID, Call{Arguments: in.Body.Arguments, RunID: "test", RolloutID: "test"})
}
