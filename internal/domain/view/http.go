package view

import (
	"context"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
	"sovereign/internal/store/module"
)

// Module serves the views of s.
func Module(s *Store) module.Module {
	return module.Module{Name: "views", Routes: (&handler{s}).routes()}
}

type handler struct{ store *Store }

func (h *handler) routes() []api.Route {
	return []api.Route{
		api.Get("/views", api.SessionMember, h.list, "List saved views: one's own and those that are shared"),
		api.Post("/views", api.SessionMember, h.create, "Save a view", api.Creates),
		api.Get("/views/{id}", api.SessionMember, h.get, "Read a saved view"),
		api.Patch("/views/{id}", api.SessionMember, h.update, "Change a saved view"),
		api.Delete("/views/{id}", api.SessionMember, h.delete, "Delete a saved view"),
	}
}

type listQuery struct {
	Name string `query:"page" maxLength:"64" doc:"Views of this page alone"`
	api.Page
}

func (h *handler) list(ctx context.Context, caller tenant.Caller, in listQuery) (api.List[View], error) {
	all, err := h.store.List(ctx, caller, in.Name, in.More(), in.Offset)
	return api.NewList(in.Page, all), err
}

func (h *handler) create(ctx context.Context, caller tenant.Caller, in NewView) (View, error) {
	return h.store.Create(ctx, caller, in)
}

type one struct {
	ID string `path:"id"`
}

func (h *handler) get(ctx context.Context, caller tenant.Caller, in one) (View, error) {
	return h.store.Get(ctx, caller, in.ID)
}

type change struct {
	ID   string `path:"id"`
	Body Change
}

func (h *handler) update(ctx context.Context, caller tenant.Caller, in change) (View, error) {
	return h.store.Update(ctx, caller, in.ID, in.Body)
}

func (h *handler) delete(ctx context.Context, caller tenant.Caller, in one) (api.Deleted, error) {
	return api.Deleted{ID: in.ID, Object: object, Deleted: true}, h.store.Delete(ctx, caller, in.ID)
}
