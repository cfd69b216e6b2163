package modelversion

import (
	"context"
	"io"
	"path"

	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/train"
	"sovereign/internal/store/api"
	"sovereign/internal/store/module"
)

// Module serves the versions of s.
func Module(s *Store) module.Module {
	h := &handler{s}
	return module.Module{Name: "model versions", Routes: h.routes()}
}

type handler struct{ s *Store }

func (h *handler) routes() []api.Route {
	return []api.Route{
		api.Get("/model-versions", api.Admin, h.list, "List trained models, the newest first"),
		api.Get("/model-versions/{id}", api.Admin, h.get,
			"Read a trained model: what it was made of, signed. `sovereign verify` checks it offline"),
		api.Get("/model-versions/{id}/lineage", api.Admin, h.lineage, "What a trained model was made of, as a graph"),
		api.Get("/model-versions/{id}/files", api.Admin, h.files, "List the files of a trained model"),
		api.Get("/model-versions/{id}/files/{name...}", api.Admin, h.file, "Download a file of a trained model",
			api.Long, api.Produces("application/octet-stream")),
		api.Delete("/model-versions/{id}", api.Admin, h.delete, "Delete a trained model and its files"),
	}
}

func (h *handler) list(ctx context.Context, c tenant.Caller, in api.Page) (api.List[Version], error) {
	rows, err := h.s.List(ctx, c.Workspace, in.More(), in.Offset)
	return api.NewList(in, rows), err
}

type one struct {
	ID string `path:"id"`
}

func (h *handler) get(ctx context.Context, c tenant.Caller, in one) (Version, error) {
	return h.s.Get(ctx, c.Workspace, in.ID)
}

func (h *handler) lineage(ctx context.Context, c tenant.Caller, in one) (Lineage, error) {
	return h.s.Lineage(ctx, c.Workspace, in.ID)
}

func (h *handler) files(ctx context.Context, c tenant.Caller, in one) (api.List[train.Member], error) {
	all, err := h.s.Files(ctx, c.Workspace, in.ID)
	return api.List[train.Member]{Object: "list", Data: all}, err
}

type named struct {
	ID   string `path:"id"`
	Name string `path:"name"`
}

func (h *handler) file(ctx context.Context, c tenant.Caller, in named) (api.Stream, error) {
	from, err := h.s.Open(ctx, c.Workspace, in.ID, in.Name)
	if err != nil {
		return api.Stream{}, err
	}
	return api.Stream{
		ContentType: "application/octet-stream", Filename: path.Base(in.Name), Write: func(w io.Writer) error {
			defer func() { _ = from.Close() }() // it was read
			_, err := io.Copy(w, from)
			return err
		},
	}, nil
}

func (h *handler) delete(ctx context.Context, c tenant.Caller, in one) (api.Deleted, error) {
	err := h.s.Delete(ctx, c.Workspace, c.Actor(), in.ID)
	return api.Deleted{ID: in.ID, Object: object, Deleted: err == nil}, err
}
