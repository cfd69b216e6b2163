package criterion

import (
	"context"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/api"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/job"
)

// A Config is what the operations on criteria stand on.
type Config struct {
	Store  *Store
	Bench  *Bench
	Logs   Logs
	Open   func(context.Context, tenant.ID) error // refuses whoever may not read logs now
	Models Models
	Runner *job.Runner
}

// A Handler answers what keys may ask about their workspace's judges.
type Handler struct{ Config }

// NewHandler manages criteria, and gives the runner their work to do.
func NewHandler(c Config) *Handler {
	h := &Handler{Config: c}
	c.Runner.Handle(calibrates, c.Store.calibrate(c.Bench))
	c.Runner.Handle(scans.kind, c.Store.scan(c.Logs, c.Open, c.Bench))
	c.Runner.Handle(improvements.kind, c.Store.drafts(improvements, c.Bench, h.composeImprovement, readImprovement))
	c.Runner.Handle(suggestions.kind, c.Store.drafts(suggestions, c.Bench, h.composeSuggestion, readSuggestion))
	return h
}

// Routes are the operations for keys.
func (h *Handler) Routes() []api.Route {
	return []api.Route{
		api.Post("/criteria", api.Admin, h.create, "Make a judge", api.Creates),
		api.Get("/criteria", api.Reader, h.list, "List judges"),
		api.Get("/criteria/{id}", api.Reader, h.get, "Read a judge"),
		api.Patch("/criteria/{id}", api.Admin, h.update, "Change a judge; what changes what it is told is a new version, and voids its certificate"),
		api.Delete("/criteria/{id}", api.Admin, h.delete, "Delete a judge; its labels stay", api.Long),
		api.Get("/criteria/{id}/history", api.Reader, h.history, "Every change of a judge, before and after"),
		api.Post("/criteria/estimates", api.Admin, h.estimate, "What a calibration, a scan, an improvement or a suggestion would cost; it starts nothing", api.Long),

		api.Post("/criteria/{id}/calibrations", api.Admin, h.calibrate, "Judge every label of a criterion, and sign what that says of the judge", api.Accepts, api.Spends),
		api.Get("/criteria/{id}/calibrations", api.Reader, h.calibrations, "List calibrations"),
		api.Get("/criteria/{id}/calibrations/{run_id}", api.Reader, h.calibration, "Read a calibration: its progress, and what it measured"),
		api.Get("/criteria/{id}/calibrations/{run_id}/rows", api.Reader, h.calibrationRows, "List what the judge said of each label"),
		api.Post("/criteria/{id}/calibrations/{run_id}/cancel", api.Admin, h.cancelCalibration, "Cancel a calibration; what was answered is kept"),
		api.Get("/criteria/{id}/certificate", api.Reader, h.certificate, "Read a judge's last certificate with its signature; the keys are at /.well-known/jwks.json"),
		api.Get("/certificates/{id}", api.Reader, h.readCertificate, "Read a certificate by its own id, of any age"),
		api.Get("/criteria/{id}/adjudication", api.Reader, h.adjudication, "Read the last calibration again, against what was adjudicated since; no judge is asked"),

		api.Post("/criteria/{id}/scans", api.Admin, h.scan, "Judge a random sample of logs", api.Accepts, api.Spends, api.Long),
		api.Get("/criteria/{id}/scans", api.Reader, h.scans, "List scans"),
		api.Get("/criteria/{id}/scans/{run_id}", api.Reader, h.readScan, "Read a scan: its progress, and the rates that it found"),
		api.Get("/criteria/{id}/scans/{run_id}/rows", api.Reader, h.scanRows, "List what the judge said of each exchange"),
		api.Post("/criteria/{id}/scans/{run_id}/cancel", api.Admin, h.cancelScan, "Cancel a scan"),

		api.Post("/criteria/suggestions", api.Admin, h.suggest, "Draft criteria from logs and critiques", api.Accepts, api.Spends, api.Long),
		api.Get("/suggestions", api.Reader, h.suggestions, "List suggestions"),
		api.Get("/suggestions/{run_id}", api.Reader, h.suggestion, "Read a suggestion"),
		api.Post("/suggestions/{run_id}/cancel", api.Admin, h.cancelSuggestion, "Cancel a suggestion"),

		api.Post("/criteria/{id}/improvements", api.Admin, h.improve, "Draft a better rubric from what the judge got wrong in the tuning half", api.Accepts, api.Spends),
		api.Get("/criteria/{id}/improvements", api.Reader, h.improvements, "List improvements"),
		api.Get("/criteria/{id}/improvements/{run_id}", api.Reader, h.improvement, "Read an improvement"),
		api.Post("/criteria/{id}/improvements/{run_id}/adopt", api.Admin, h.adopt, "Make a draft the rubric: a new version of the judge"),
		api.Post("/criteria/{id}/improvements/{run_id}/cancel", api.Admin, h.cancelImprovement, "Cancel an improvement"),

		api.Put("/criteria/{id}/monitoring", api.Admin, h.watch, "Let a judge watch the traffic that is logged, or no longer", api.Spends),
		api.Delete("/criteria/{id}/monitoring", api.Admin, h.unwatch, "Let a judge watch no longer; unlike a change, this is never refused for coming too often"),
		api.Get("/criteria/{id}/monitoring", api.Reader, h.monitor, "Read what a judge that watches has found"),
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

func (h *Handler) create(ctx context.Context, caller tenant.Caller, in Definition) (Criterion, error) {
	return h.Store.Create(ctx, caller.Workspace, caller.Actor(), &in, h.Models)
}

func (h *Handler) list(ctx context.Context, caller tenant.Caller, in api.Page) (api.List[Criterion], error) {
	all, err := h.Store.List(ctx, caller.Workspace, in.More(), in.Offset)
	return api.NewList(in, all), err
}

func (h *Handler) get(ctx context.Context, caller tenant.Caller, in one) (Criterion, error) {
	return h.Store.Get(ctx, caller.Workspace, in.ID)
}

type change struct {
	ID   string `path:"id"`
	Body Definition
}

func (h *Handler) update(ctx context.Context, caller tenant.Caller, in change) (Criterion, error) {
	return h.Store.Update(ctx, caller.Workspace, caller.Actor(), in.ID, &in.Body, h.Models)
}

func (h *Handler) delete(ctx context.Context, caller tenant.Caller, in one) (api.Deleted, error) {
	return api.Deleted{ID: in.ID, Object: object, Deleted: true}, h.Store.Delete(ctx, caller.Workspace, caller.Actor(), in.ID)
}

func (h *Handler) history(ctx context.Context, caller tenant.Caller, in page) (api.List[audit.Entry], error) {
	all, err := h.Store.History(ctx, caller.Workspace, in.ID, in.More(), in.Offset)
	return api.NewList(in.Page, all), err
}

type effort struct {
	ID   string `path:"id"`
	Body *Effort
}

func (h *Handler) calibrate(ctx context.Context, caller tenant.Caller, in effort) (Calibration, error) {
	var how Effort
	set(&how, in.Body)
	made, err := h.Store.Calibrate(ctx, caller.Workspace, caller.Actor(), in.ID, how, h.Bench)
	return made, err
}

func (h *Handler) calibrations(ctx context.Context, caller tenant.Caller, in page) (api.List[Calibration], error) {
	all, err := h.Store.Calibrations(ctx, caller.Workspace, in.ID, in.More(), in.Offset)
	return api.NewList(in.Page, all), err
}

func (h *Handler) calibration(ctx context.Context, caller tenant.Caller, in run) (Calibration, error) {
	return h.Store.Calibration(ctx, caller.Workspace, in.ID, in.RunID)
}

func (h *Handler) cancelCalibration(ctx context.Context, caller tenant.Caller, in run) (Calibration, error) {
	return cancelled(ctx, h, caller, in, h.calibration)
}

// cancelled ends a run, and reads it.
func cancelled[T any](ctx context.Context, h *Handler, caller tenant.Caller, in run, read func(context.Context, tenant.Caller, run) (T, error)) (T, error) {
	if found, err := read(ctx, caller, in); err != nil {
		return found, err
	}
	if _, err := h.Runner.Cancel(ctx, caller.Workspace, caller.Actor(), in.RunID); err != nil {
		var none T
		return none, err
	}
	return read(ctx, caller, in)
}

func (h *Handler) certificate(ctx context.Context, caller tenant.Caller, in one) (Certificate, error) {
	return h.Store.Certificate(ctx, caller.Workspace, in.ID)
}

func (h *Handler) readCertificate(ctx context.Context, caller tenant.Caller, in one) (Certificate, error) {
	return h.Store.ByID(ctx, caller.Workspace, in.ID)
}

type calibrationRowsQuery struct {
	ID      string        `path:"id"`
	RunID   string        `path:"run_id"`
	Verdict judge.Verdict `query:"verdict" enum:"pass,fail" doc:"Those with one verdict of the judge's"`
	Failed  *bool         `query:"failed" doc:"Those without a verdict, or those with one"`
	api.Page
}

func (h *Handler) calibrationRows(ctx context.Context, caller tenant.Caller, in calibrationRowsQuery) (api.List[JudgedLabel], error) {
	all, err := h.Store.Rows(ctx, caller.Workspace, in.ID, in.RunID, in.Verdict, in.Failed, in.More(), in.Offset)
	return api.NewList(in.Page, all), err
}

func (h *Handler) adjudication(ctx context.Context, caller tenant.Caller, in one) (Report, error) {
	return h.Store.Adjudication(ctx, caller.Workspace, in.ID)
}

type scanning struct {
	ID   string `path:"id"`
	Body struct {
		Sample
		Spending
	}
}

// whole is a sample of a size.
func (s Sample) whole() Sample {
	if s.Size == 0 {
		s.Size = 200
	}
	return s
}

func (h *Handler) scan(ctx context.Context, caller tenant.Caller, in scanning) (Scan, error) {
	if err := h.Open(ctx, caller.Workspace); err != nil {
		return Scan{}, err
	}
	made, err := h.Store.Scan(ctx, caller.Workspace, caller.Actor(), in.ID, in.Body.whole(), in.Body.Spending, h.Logs, h.Bench)
	return made, err
}

func (h *Handler) scans(ctx context.Context, caller tenant.Caller, in page) (api.List[Scan], error) {
	return listed(ctx, h, caller, scans, in.ID, in.Page, (*keptInquiry).scan)
}

// listed is a page of inquiries.
func listed[T any](ctx context.Context, h *Handler, caller tenant.Caller, kind inquiry, criterionID string, p api.Page, as func(*keptInquiry) (T, error)) (api.List[T], error) {
	rows, err := kind.list(ctx, h.Store.db.In(caller.Workspace), criterionID, p.More(), p.Offset)
	if err != nil {
		return api.List[T]{}, err
	}
	all := make([]T, len(rows))
	for i := range rows {
		if all[i], err = as(&rows[i]); err != nil {
			return api.List[T]{}, err
		}
	}
	return api.NewList(p, all), nil
}

func (h *Handler) readScan(ctx context.Context, caller tenant.Caller, in run) (Scan, error) {
	return h.Store.readScan(ctx, caller.Workspace, in.ID, in.RunID)
}

// inquired is one inquiry.
func inquired[T any](ctx context.Context, h *Handler, caller tenant.Caller, kind inquiry, in run, as func(*keptInquiry) (T, error)) (T, error) {
	k, err := kind.find(ctx, h.Store.db.In(caller.Workspace), in.ID, in.RunID)
	if err != nil {
		var none T
		return none, err
	}
	return as(k)
}

type rowsQuery struct {
	ID      string        `path:"id"`
	RunID   string        `path:"run_id"`
	Verdict judge.Verdict `query:"verdict" enum:"pass,fail" doc:"Those with one verdict"`
	api.Page
}

func (h *Handler) scanRows(ctx context.Context, caller tenant.Caller, in rowsQuery) (api.List[Judged], error) {
	scope := h.Store.db.In(caller.Workspace)
	if _, err := scans.find(ctx, scope, in.ID, in.RunID); err != nil {
		return api.List[Judged]{}, err
	}
	all, err := judged(ctx, scope, in.RunID, in.Verdict, in.More(), in.Offset)
	return api.NewList(in.Page, all), err
}

func (h *Handler) cancelScan(ctx context.Context, caller tenant.Caller, in run) (Scan, error) {
	return cancelled(ctx, h, caller, in, h.readScan)
}

type suggesting struct {
	Draft
	Spending
}

// whole is a draft of a size.
func (d Draft) whole() Draft {
	if d.Size == 0 {
		d.Size = 40
	}
	return d
}

func (h *Handler) suggest(ctx context.Context, caller tenant.Caller, in suggesting) (Suggested, error) {
	if err := h.fits(ctx, caller.Workspace, &in.Draft); err != nil {
		return Suggested{}, err
	}
	made, err := h.Store.Suggest(ctx, caller.Workspace, caller.Actor(), in.whole(), in.Spending, h.Logs, h.Bench)
	return made, err
}

// fits refuses a suggestion that cannot be made.
func (h *Handler) fits(ctx context.Context, ws tenant.ID, d *Draft) error {
	if err := h.Open(ctx, ws); err != nil {
		return err
	}
	if d.Model == "" {
		return fault.Invalid("model", "is required")
	}
	if err := h.Models.Chats(ws, "model", d.Model); err != nil {
		return err
	}
	return d.Filters.Check("filters.")
}

func (h *Handler) composeSuggestion(ctx context.Context, ws tenant.ID, k *keptInquiry, d Draft) (composition, error) {
	if err := h.Open(ctx, ws); err != nil {
		return nil, err
	}
	return h.Store.suggest(ctx, ws, d, h.Logs, seedOf(k.ID), true)
}

func (h *Handler) suggestions(ctx context.Context, caller tenant.Caller, in api.Page) (api.List[Suggested], error) {
	return listed(ctx, h, caller, suggestions, "", in, (*keptInquiry).suggestion)
}

type suggested struct {
	RunID string `path:"run_id"`
}

func (h *Handler) suggestion(ctx context.Context, caller tenant.Caller, in suggested) (Suggested, error) {
	return inquired(ctx, h, caller, suggestions, run{RunID: in.RunID}, (*keptInquiry).suggestion)
}

func (h *Handler) cancelSuggestion(ctx context.Context, caller tenant.Caller, in suggested) (Suggested, error) {
	return cancelled(ctx, h, caller, run{RunID: in.RunID}, func(ctx context.Context, caller tenant.Caller, in run) (Suggested, error) {
		return h.suggestion(ctx, caller, suggested{in.RunID})
	})
}

type improving struct {
	ID   string `path:"id"`
	Body *rewriting
}

type rewriting struct {
	Model string `json:"model,omitempty" doc:"That drafts; the judge's own by default"`
	Spending
}

func (h *Handler) improve(ctx context.Context, caller tenant.Caller, in improving) (Improvement, error) {
	var how rewriting
	set(&how, in.Body)
	d := Draft{Model: how.Model}
	if d.Model != "" {
		if err := h.Models.Chats(caller.Workspace, "model", d.Model); err != nil {
			return Improvement{}, err
		}
	}
	made, err := h.Store.Improve(ctx, caller.Workspace, caller.Actor(), in.ID, d, how.Spending, h.Bench)
	return made, err
}

func (h *Handler) composeImprovement(ctx context.Context, ws tenant.ID, k *keptInquiry, d Draft) (composition, error) {
	c, err := find(ctx, h.Store.db.In(ws), k.CriterionID)
	if err != nil {
		return nil, err
	}
	return h.Store.improve(ctx, h.Store.db.In(ws), c, d.Model)
}

func (h *Handler) improvements(ctx context.Context, caller tenant.Caller, in page) (api.List[Improvement], error) {
	return listed(ctx, h, caller, improvements, in.ID, in.Page, (*keptInquiry).improvement)
}

func (h *Handler) improvement(ctx context.Context, caller tenant.Caller, in run) (Improvement, error) {
	return inquired(ctx, h, caller, improvements, in, (*keptInquiry).improvement)
}

func (h *Handler) adopt(ctx context.Context, caller tenant.Caller, in run) (Criterion, error) {
	return h.Store.Adopt(ctx, caller.Workspace, caller.Actor(), in.ID, in.RunID, h.Models)
}

func (h *Handler) cancelImprovement(ctx context.Context, caller tenant.Caller, in run) (Improvement, error) {
	return cancelled(ctx, h, caller, in, h.improvement)
}

type watching struct {
	ID   string `path:"id"`
	Body Watch
}

func (h *Handler) watch(ctx context.Context, caller tenant.Caller, in watching) (Monitor, error) {
	w := in.Body.whole()
	if w.Enabled {
		if err := h.Open(ctx, caller.Workspace); err != nil {
			return Monitor{}, err
		}
	}
	return h.Store.SetWatch(ctx, caller.Workspace, caller.Actor(), in.ID, w, h.Logs)
}

func (h *Handler) unwatch(ctx context.Context, caller tenant.Caller, in one) (Monitor, error) {
	now, err := h.Store.Monitor(ctx, caller.Workspace, in.ID)
	if err != nil || !now.Enabled {
		return now, err
	}
	now.Enabled = false
	return h.Store.SetWatch(ctx, caller.Workspace, caller.Actor(), in.ID, now.Watch, h.Logs)
}

func (h *Handler) monitor(ctx context.Context, caller tenant.Caller, in one) (Monitor, error) {
	return h.Store.Monitor(ctx, caller.Workspace, in.ID)
}

// An Inquiry is something that would cost money.
type Inquiry struct {
	Kind        string   `json:"kind" enum:"calibration,scan,improvement,suggestion"`
	CriterionID string   `json:"criterion_id,omitempty" doc:"For all but a suggestion"`
	Model       string   `json:"model,omitempty" doc:"That drafts"`
	SampleSize  int      `json:"sample_size,omitempty" minimum:"1" maximum:"5000" doc:"Of a scan, or of a suggestion, which has at most 200"`
	Fresh       bool     `json:"fresh,omitempty" doc:"Of a calibration: ask again what was answered before"`
	Filters     *Filters `json:"filters,omitempty" doc:"Of a scan or a suggestion"`
}

// An Estimate is what an inquiry would cost.
type Estimate struct {
	Object  string     `json:"object" enum:"estimate"`
	Kind    string     `json:"kind"`
	Calls   int64      `json:"calls" doc:"Questions to models, at most: what was answered before is not asked again"`
	CostUSD money.Nano `json:"cost_usd" doc:"About"`
}

func (h *Handler) estimate(ctx context.Context, caller tenant.Caller, in Inquiry) (Estimate, error) {
	e := Estimate{Object: "estimate", Kind: in.Kind, Calls: 1}
	ws, scope := caller.Workspace, h.Store.db.In(caller.Workspace)
	if in.Kind == suggestions.kind {
		d := Draft{Model: in.Model, Size: min(in.SampleSize, maxDraftSize)}.whole()
		set(&d.Filters, in.Filters)
		if err := h.fits(ctx, ws, &d); err != nil {
			return e, err
		}
		compose, err := h.Store.suggest(ctx, ws, d, h.Logs, 1, false)
		if err != nil {
			return e, err
		}
		e.CostUSD, err = h.Bench.foreseeDraft(ws, d.Model, compose)
		return e, err
	}
	if in.CriterionID == "" {
		return e, fault.Invalid("criterion_id", "is required")
	}
	c, err := find(ctx, scope, in.CriterionID)
	if err != nil {
		return e, err
	}
	switch in.Kind {
	case scans.kind:
		if err := h.Open(ctx, ws); err != nil {
			return e, err
		}
		d, err := h.Store.draw(ctx, ws, c, Sample{Size: in.SampleSize, Filters: in.Filters}.whole(), h.Logs, h.Bench, 1, false)
		if err != nil {
			return e, err
		}
		e.Calls, e.CostUSD = d.total, d.estimate
	case improvements.kind:
		if in.Model == "" {
			in.Model = c.JudgeModel
		}
		compose, err := h.Store.improve(ctx, scope, c, in.Model)
		if err != nil {
			return e, err
		}
		e.CostUSD, err = h.Bench.foreseeDraft(ws, in.Model, compose)
		return e, err
	default:
		e.CostUSD, e.Calls, err = h.Store.foresee(ctx, ws, c.ID, in.Fresh, h.Bench)
	}
	return e, err
}
