package adoption

import (
	"context"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
	"sovereign/internal/store/module"
)

// Module serves the adoptions of s.
func Module(s *Store) module.Module {
	h := &handler{s}
	return module.Module{Name: "adoptions", Routes: []api.Route{
		api.Post("/model-versions/{id}/adopt", api.Admin, h.adopt, "Have an alias use a trained model, as its canary. "+
			"412 without a proof that it is no worse than the model which the alias stands for", api.Flat),
	}}
}

type handler struct{ s *Store }

type adopting struct {
	ID   string `path:"id"`
	Body Request
}

func (h *handler) adopt(ctx context.Context, c tenant.Caller, in adopting) (Adoption, error) {
	return h.s.Adopt(ctx, c.Workspace, c.Actor(), in.ID, in.Body)
}
