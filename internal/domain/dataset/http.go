package dataset

import (
	"context"
	"io"
	"strconv"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
	"sovereign/internal/text/redact"
)

// A Handler serves the operations of keys on their workspace's datasets.
type Handler struct{ store *Store }

// NewHandler manages the datasets of s.
func NewHandler(s *Store) *Handler { return &Handler{s} }

const countHeader = "X-Service-Export-Count"

// Routes are the operations for keys.
func (h *Handler) Routes() []api.Route {
	return []api.Route{
		api.PostAwaited(
			"/datasets/from_logs", api.Admin, h.start, h.finish,
			"Freeze logged exchanges into a dataset, and a holdout of it if wanted", api.Creates, api.Long,
		),
		api.Get("/datasets", api.Reader, h.list, "List datasets"),
		api.Get("/datasets/{id}", api.Reader, h.get, "Read a dataset"),
		api.Get("/datasets/{id}/export", api.Reader, h.export, "Download the examples of a dataset, one JSON object on a line", api.Produces(api.JSONL), api.Long,
			api.ResponseHeader(countHeader, "How many examples there are")),
		api.Delete("/datasets/{id}", api.Admin, h.delete, "Delete a dataset; its holdout stays"),
	}
}

type newDataset struct {
	Name    string  `json:"name" doc:"1 to 64 characters that can be seen; not the name of another dataset"`
	Holdout float64 `json:"holdout_pct,omitempty" nullable:"true" doc:"0 to 50, 0 by default: about how much of the examples goes to a dataset of its own, named as this one with -eval after it"`
	Filters Filters `json:"filters,omitempty" doc:"Which exchanges, as in the list of logs"`
}

// A ticket names a dataset that is being built.
type ticket struct {
	ID string `json:"id"`
}

func (h *Handler) start(ctx context.Context, caller tenant.Caller, in newDataset) (ticket, error) {
	if err := h.store.open(ctx, caller.Workspace); err != nil {
		return ticket{}, err
	}
	recipe := Recipe{Name: redact.String(in.Name), Holdout: in.Holdout, Filters: in.Filters.Clean()}
	if err := recipe.Check(); err != nil {
		return ticket{}, err
	}
	id, err := h.store.Start(ctx, caller.Workspace, caller.Actor(), recipe)
	return ticket{ID: id}, err
}

func (h *Handler) finish(ctx context.Context, caller tenant.Caller, in ticket) (Dataset, error) {
	return h.store.Await(ctx, caller.Workspace, in.ID)
}

func (h *Handler) list(ctx context.Context, caller tenant.Caller, in api.Page) (api.List[Dataset], error) {
	all, err := h.store.List(ctx, caller.Workspace, in.More(), in.Offset)
	return api.NewList(in, all), err
}

type one struct {
	ID string `path:"id"`
}

func (h *Handler) get(ctx context.Context, caller tenant.Caller, in one) (Dataset, error) {
	return h.store.Get(ctx, caller.Workspace, in.ID)
}

func (h *Handler) export(ctx context.Context, caller tenant.Caller, in one) (api.Stream, error) {
	d, err := h.store.Get(ctx, caller.Workspace, in.ID)
	if err != nil {
		return api.Stream{}, err
	}
	return api.Stream{
		ContentType: api.JSONL, Filename: d.ID + ".jsonl",
		Headers: map[string]string{countHeader: strconv.FormatInt(d.Rows, 10)},
		Write:   func(w io.Writer) error { return h.store.Export(ctx, caller.Workspace, &d, w) },
	}, nil
}

func (h *Handler) delete(ctx context.Context, caller tenant.Caller, in one) (api.Deleted, error) {
	return api.Deleted{
		ID: in.ID, Object: object, Deleted: true,
	}, h.store.Delete(ctx, caller.Workspace, caller.Actor(), in.ID)
}
