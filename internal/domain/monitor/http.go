package monitor

import (
	"context"

	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judging"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/api"
)

type handler struct{ store *Store }

func (h *handler) routes() []api.Route {
	return []api.Route{
		api.Post("/criteria/{id}/scans", api.Admin, h.startScan, "Judge a random sample of logs", api.Accepts,
			api.Spends, api.Long),
		api.Get("/criteria/{id}/scans", api.Reader, h.scans, "List scans"),
		api.Get("/criteria/{id}/scans/{run_id}", api.Reader, h.scan,
			"Read a scan: its progress, and the rates that it found"),
		api.Get("/criteria/{id}/scans/{run_id}/rows", api.Reader, h.scanRows,
			"List what the judge said of each exchange"),
		api.Post("/criteria/{id}/scans/{run_id}/cancel", api.Admin, h.cancelScan, "Cancel a scan"),

		api.Put("/criteria/{id}/monitoring", api.Admin, h.set,
			"Let a judge watch the traffic that is logged, or no longer", api.Spends),
		api.Delete("/criteria/{id}/monitoring", api.Admin, h.disable,
			"Let a judge watch no longer; unlike a change, this is never refused for coming too often"),
		api.Get("/criteria/{id}/monitoring", api.Reader, h.get, "Read what a judge that watches has found"),
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

type scanning struct {
	ID   string `path:"id"`
	Body struct {
		Sample
		judging.Spending
	}
}

func (h *handler) startScan(ctx context.Context, caller tenant.Caller, in scanning) (Scan, error) {
	if err := h.store.open(ctx, caller.Workspace); err != nil {
		return Scan{}, err
	}
	return h.store.StartScan(ctx, caller.Workspace, caller.Actor(), in.ID, in.Body.withDefaults(), in.Body.Spending)
}

func (h *handler) scans(ctx context.Context, caller tenant.Caller, in page) (api.List[Scan], error) {
	all, err := h.store.Scans(ctx, caller.Workspace, in.ID, in.More(), in.Offset)
	return api.NewList(in.Page, all), err
}

func (h *handler) scan(ctx context.Context, caller tenant.Caller, in run) (Scan, error) {
	return h.store.Scan(ctx, caller.Workspace, in.ID, in.RunID)
}

type rowsQuery struct {
	ID      string        `path:"id"`
	RunID   string        `path:"run_id"`
	Verdict judge.Verdict `query:"verdict" enum:"pass,fail" doc:"Those with one verdict"`
	api.Page
}

func (h *handler) scanRows(ctx context.Context, caller tenant.Caller, in rowsQuery) (api.List[Judged], error) {
	all, err := h.store.ScanRows(ctx, caller.Workspace, in.ID, in.RunID, in.Verdict, in.More(), in.Offset)
	return api.NewList(in.Page, all), err
}

func (h *handler) cancelScan(ctx context.Context, caller tenant.Caller, in run) (Scan, error) {
	return judging.Cancel(ctx, h.store.db, caller, in.RunID, func() (Scan, error) { return h.scan(ctx, caller, in) })
}

type setting struct {
	ID   string `path:"id"`
	Body criterion.MonitorSettings
}

func (h *handler) set(ctx context.Context, caller tenant.Caller, in setting) (Monitor, error) {
	if in.Body.Enabled {
		if err := h.store.open(ctx, caller.Workspace); err != nil {
			return Monitor{}, err
		}
	}
	return h.store.Set(ctx, caller.Workspace, caller.Actor(), in.ID, in.Body)
}

func (h *handler) disable(ctx context.Context, caller tenant.Caller, in one) (Monitor, error) {
	now, err := h.store.Get(ctx, caller.Workspace, in.ID)
	if err != nil || !now.Enabled {
		return now, err
	}
	now.Enabled = false
	return h.store.Set(ctx, caller.Workspace, caller.Actor(), in.ID, now.MonitorSettings)
}

func (h *handler) get(ctx context.Context, caller tenant.Caller, in one) (Monitor, error) {
	return h.store.Get(ctx, caller.Workspace, in.ID)
}
