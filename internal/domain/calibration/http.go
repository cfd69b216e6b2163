package calibration

import (
	"context"

	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/judging"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/api"
)

type handler struct{ store *Store }

func (h *handler) routes() []api.Route {
	return []api.Route{
		api.Post("/criteria/{id}/calibrations", api.Admin, h.start,
			"Judge every label of a criterion, and sign what that says of the judge", api.Accepts, api.Spends),
		api.Get("/criteria/{id}/calibrations", api.Reader, h.list, "List calibrations"),
		api.Get("/criteria/{id}/calibrations/{run_id}", api.Reader, h.get,
			"Read a calibration: its progress, and what it measured"),
		api.Get("/criteria/{id}/calibrations/{run_id}/rows", api.Reader, h.rows,
			"List what the judge said of each label"),
		api.Post("/criteria/{id}/calibrations/{run_id}/cancel", api.Admin, h.cancel,
			"Cancel a calibration; what was answered is kept"),
		api.Get("/criteria/{id}/certificate", api.Reader, h.certificate,
			"Read a judge's last certificate with its signature; the keys are at /.well-known/jwks.json"),
		api.Get("/certificates/{id}", api.Reader, h.certificateByID, "Read a certificate by its own id, of any age"),
		api.Get("/criteria/{id}/adjudication", api.Reader, h.report,
			"Read the last calibration again, against what was adjudicated since; no judge is asked"),
	}
}

type one struct {
	ID string `path:"id"`
}

type page struct {
	ID string `path:"id"`
	api.Page
}

type run struct {
	ID    string `path:"id"`
	RunID string `path:"run_id"`
}

type starting struct {
	ID   string `path:"id"`
	Body *Options
}

func (h *handler) start(ctx context.Context, caller tenant.Caller, in starting) (Calibration, error) {
	var o Options
	if in.Body != nil {
		o = *in.Body
	}
	return h.store.Start(ctx, caller.Workspace, caller.Actor(), in.ID, o)
}

func (h *handler) list(ctx context.Context, caller tenant.Caller, in page) (api.List[Calibration], error) {
	all, err := h.store.List(ctx, caller.Workspace, in.ID, in.More(), in.Offset)
	return api.NewList(in.Page, all), err
}

func (h *handler) get(ctx context.Context, caller tenant.Caller, in run) (Calibration, error) {
	return h.store.Get(ctx, caller.Workspace, in.ID, in.RunID)
}

func (h *handler) cancel(ctx context.Context, caller tenant.Caller, in run) (Calibration, error) {
	return judging.Cancel(ctx, h.store.db, caller, in.RunID, func() (Calibration, error) {
		return h.get(ctx, caller, in)
	})
}

type rowsQuery struct {
	ID      string        `path:"id"`
	RunID   string        `path:"run_id"`
	Verdict judge.Verdict `query:"verdict" enum:"pass,fail" doc:"Those with one verdict of the judge's"`
	Failed  *bool         `query:"failed" doc:"Those without a verdict, or those with one"`
	api.Page
}

func (h *handler) rows(ctx context.Context, caller tenant.Caller, in rowsQuery) (api.List[JudgedLabel], error) {
	all, err := h.store.Rows(ctx, caller.Workspace, in.ID, in.RunID, in.Verdict, in.Failed, in.More(), in.Offset)
	return api.NewList(in.Page, all), err
}

func (h *handler) certificate(ctx context.Context, caller tenant.Caller, in one) (Certificate, error) {
	return h.store.Certificate(ctx, caller.Workspace, in.ID)
}

func (h *handler) certificateByID(ctx context.Context, caller tenant.Caller, in one) (Certificate, error) {
	return h.store.CertificateByID(ctx, caller.Workspace, in.ID)
}

func (h *handler) report(ctx context.Context, caller tenant.Caller, in one) (Report, error) {
	return h.store.Report(ctx, caller.Workspace, in.ID)
}
