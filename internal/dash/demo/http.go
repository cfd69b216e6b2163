package demo

import (
	"context"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
	"sovereign/internal/store/job"
	"sovereign/internal/store/module"
)

// Module serves demos, fills them and deletes them.
func Module(s *Store) module.Module {
	h := &handler{s}
	return module.Module{
		Name: "demo", Routes: h.routes(), Sweep: s.Sweep,
		Jobs: map[string]job.Work{filling: s.fill, deleting: s.erase},
	}
}

type handler struct{ store *Store }

func (h *handler) routes() []api.Route {
	return []api.Route{
		api.Post("/demo", api.SignedIn, h.create,
			"Make a demo: a workspace of simulated traffic. A person who has one gets that one", api.Accepts),
		api.Get("/demo", api.SessionMember, h.get, "Read how far a demo is filled"),
		api.Post("/demo/cancel", api.SessionOwner, h.cancel, "Stop filling a demo; what was made stays"),
		api.Delete("/demo", api.SessionOwner, h.delete,
			"Delete a demo with everything in it; its ledger and its audit trail stay"),
	}
}

func (h *handler) create(ctx context.Context, caller tenant.Caller, _ api.None) (Demo, error) {
	return h.store.Create(ctx, caller.Actor(), caller.User)
}

func (h *handler) get(ctx context.Context, caller tenant.Caller, _ api.None) (Demo, error) {
	return h.store.Get(ctx, caller.Workspace)
}

func (h *handler) cancel(ctx context.Context, caller tenant.Caller, _ api.None) (Demo, error) {
	return h.store.Cancel(ctx, caller.Workspace, caller.Actor())
}

func (h *handler) delete(ctx context.Context, caller tenant.Caller, _ api.None) (api.Deleted, error) {
	err := h.store.Delete(ctx, caller.Workspace, caller.Actor())
	return api.Deleted{ID: string(caller.Workspace), Object: "demo", Deleted: err == nil}, err
}
