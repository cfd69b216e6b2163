package logbook

import (
	"context"
	"io"
	"strconv"
	"time"

	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/store/api"
)

// A Handler serves the log endpoints.
type Handler struct {
	store    *Store
	ingester *Ingester
	settings *live.AllSettings
}

// NewHandler returns a handler that reads s, as far as the settings permit. Before a read, c ingests what is still in
// the spool.
func NewHandler(s *Store, c *Ingester, settings *live.AllSettings) *Handler {
	return &Handler{store: s, ingester: c, settings: settings}
}

// Routes returns the operations for API keys, and those of the dashboard.
func (h *Handler) Routes() []api.Route {
	return append(h.dashboard(), []api.Route{
		api.Get("/logs", api.Reader, h.list, "List logged exchanges, newest first"),
		api.Get("/logs/export", api.Reader, h.export,
			"Download logged exchanges as chat examples, one JSON object on a line, conversations folded",
			api.Produces(api.JSONL), api.Long,
			api.ResponseHeader(countHeader, "How many examples there are"),
			api.ResponseHeader(scannedHeader, "How many exchanges were looked at"),
			api.ResponseHeader(cappedHeader, "true when there were more than "+strconv.Itoa(MaxExport))),
		api.Get("/logs/{id}", api.Reader, h.get, "Read a logged exchange"),
		api.Get("/segments", api.Reader, h.segments, "List the families of system prompts, the largest first"),
		api.Get("/traces", api.Reader, h.traces, "List the runs of agents, the last active first"),
		api.Get("/traces/{trace_id}", api.Reader, h.trace, "Read a run with its steps, in order"),
	}...)
}

const (
	countHeader   = "X-Service-Export-Count"
	scannedHeader = "X-Service-Export-Scanned"
	cappedHeader  = "X-Service-Export-Capped"
)

// Open refuses while logging is disabled, and ingests what is in the spool, so that answered requests are visible.
func (h *Handler) Open(ctx context.Context, ws tenant.ID) error {
	if !h.enabled(ws) {
		return errDisabled()
	}
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = h.ingester.Ingest(soon) // what is not ingested now is ingested later; the read itself reports a failure
	return nil
}

func (h *Handler) enabled(ws tenant.ID) bool { return h.settings.Of(ws).LogDays > 0 }

type listQuery struct {
	Filters
	api.Page
}

// A List is a page of rows.
type List struct {
	api.List[Row]
	Total  int64 `json:"total" doc:"How many rows match"`
	Limit  int   `json:"limit"`
	Offset int   `json:"offset"`
}

func (h *Handler) list(ctx context.Context, caller tenant.Caller, in listQuery) (List, error) {
	if err := h.Open(ctx, caller.Workspace); err != nil {
		return List{}, err
	}
	if err := in.check(); err != nil {
		return List{}, err
	}
	rows, total, err := h.store.List(ctx, caller.Workspace, &in.Filters, in.Limit, in.Offset)
	return List{
		List:  api.List[Row]{Object: "list", Data: rows, HasMore: int64(in.Offset)+int64(len(rows)) < total},
		Total: total, Limit: in.Limit, Offset: in.Offset,
	}, err
}

type one struct {
	ID string `path:"id"`
}

func (h *Handler) get(ctx context.Context, caller tenant.Caller, in one) (Row, error) {
	if err := h.Open(ctx, caller.Workspace); err != nil {
		return Row{}, err
	}
	return h.store.Get(ctx, caller.Workspace, in.ID)
}

func (h *Handler) segments(ctx context.Context, caller tenant.Caller, in api.Page) (api.List[Segment], error) {
	if err := h.Open(ctx, caller.Workspace); err != nil {
		return api.List[Segment]{}, err
	}
	all, err := h.store.Segments(ctx, caller.Workspace, in.More(), in.Offset)
	return api.NewList(in, all), err
}

func (h *Handler) traces(ctx context.Context, caller tenant.Caller, in api.Page) (api.List[Trace], error) {
	if err := h.Open(ctx, caller.Workspace); err != nil {
		return api.List[Trace]{}, err
	}
	all, err := h.store.Traces(ctx, caller.Workspace, in.More(), in.Offset)
	return api.NewList(in, all), err
}

type traceQuery struct {
	TraceID string `path:"trace_id"`
	api.Page
}

// A Run is a trace with its steps.
type Run struct {
	Trace
	Data    []Row `json:"data" nullable:"false" doc:"The steps, the first first"`
	HasMore bool  `json:"has_more"`
}

func (h *Handler) trace(ctx context.Context, caller tenant.Caller, in traceQuery) (Run, error) {
	if err := h.Open(ctx, caller.Workspace); err != nil {
		return Run{}, err
	}
	run, steps, err := h.store.Trace(ctx, caller.Workspace, in.TraceID, in.Limit, in.Offset)
	return Run{Trace: run, Data: steps, HasMore: int64(in.Offset)+int64(len(steps)) < run.Steps}, err
}

func (h *Handler) export(ctx context.Context, caller tenant.Caller, in Filters) (api.Stream, error) {
	if err := h.Open(ctx, caller.Workspace); err != nil {
		return api.Stream{}, err
	}
	if err := in.check(); err != nil {
		return api.Stream{}, err
	}
	export, err := h.store.Export(ctx, caller.Workspace, &in)
	if err != nil {
		return api.Stream{}, err
	}
	return api.Stream{
		ContentType: api.JSONL, Filename: "logs.jsonl", Write: func(w io.Writer) error { return export.Write(ctx, w) },
		Headers: map[string]string{
			countHeader: strconv.Itoa(export.Count), scannedHeader: strconv.Itoa(export.Scanned),
			cappedHeader: strconv.FormatBool(export.Capped),
		},
	}, nil
}
