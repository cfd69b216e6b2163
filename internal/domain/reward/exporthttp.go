package reward

import (
	"context"
	"io"
	"strconv"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
)

const (
	countHeader   = "X-Service-Export-Count"
	scannedHeader = "X-Service-Export-Scanned"
	cappedHeader  = "X-Service-Export-Capped"
)

func (s *Store) exportRoutes() []api.Route {
	h := &handler{s}
	return []api.Route{
		api.Get("/reward/sessions/{id}/export", api.Reader, h.export,
			"Download what a reward session has scored, one JSON object on a line, in the order of scoring",
			api.Produces(api.JSONL), api.Long,
			api.ResponseHeader(countHeader, "How many lines there are"),
			api.ResponseHeader(scannedHeader, "How many scored items were read"),
			api.ResponseHeader(cappedHeader, "true when the scan was cut off: after limit items, or after 100,000 pairs. "+
				"Narrow it with step")),
	}
}

type exportOf struct {
	ID string `path:"id"`
	ExportRequest
}

func (h *handler) export(ctx context.Context, caller tenant.Caller, in exportOf) (api.Stream, error) {
	e, err := h.store.Export(ctx, caller.Workspace, in.ID, in.ExportRequest)
	if err != nil {
		return api.Stream{}, err
	}
	return api.Stream{
		ContentType: api.JSONL, Filename: in.ID + "-" + e.format + ".jsonl",
		Write: func(w io.Writer) error { return e.Write(ctx, w) },
		Headers: map[string]string{
			countHeader: strconv.Itoa(e.Count), scannedHeader: strconv.Itoa(e.Scanned),
			cappedHeader: strconv.FormatBool(e.Capped),
		},
	}, nil
}
