package finetune

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/limit"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/train"
	"sovereign/internal/plane/edge"
	"sovereign/internal/store/api"
	"sovereign/internal/store/job"
	"sovereign/internal/store/module"
)

// Module serves files and jobs, and prepares their data.
func Module(s *Store, bounds *edge.Bounds) module.Module {
	h := &handler{s, bounds, limit.NewBudget(maxUploads)}
	return module.Module{Name: "fine-tuning", Routes: h.routes(), Jobs: map[string]job.Work{prepareKind: s.prepare}}
}

type handler struct {
	s       *Store
	bounds  *edge.Bounds
	uploads *limit.Budget // how many files are being uploaded
}

// maxUploads bounds the files that are uploaded at once: each is staged on the disk.
const maxUploads = 8

func (h *handler) routes() []api.Route {
	return []api.Route{
		api.Raw[api.None, File]("/fine-tuning/files", api.Admin, h.serveUpload,
			"Upload a file of examples as multipart/form-data: purpose (fine-tune) and file. Its lines are checked while they come",
			api.Creates, api.Flat, api.Management, api.Sessions),
		api.Get("/fine-tuning/files", api.Reader, h.files, "List training files, the newest first", api.Flat),
		api.Get("/fine-tuning/files/{id}", api.Reader, h.file, "Read what is known of a training file", api.Flat),
		api.Get("/fine-tuning/files/{id}/content", api.Admin, h.content, "Download a training file", api.Flat, api.Long,
			api.Produces(api.JSONL)),
		api.Delete("/fine-tuning/files/{id}", api.Admin, h.deleteFile, "Delete a training file", api.Flat),
		api.Get("/fine-tuning/models", api.Reader, h.models, "List the base models that workers can train", api.Flat),
		api.Post(
			"/fine-tuning/estimates", api.Reader, h.estimate,
			"Estimate what a job takes and costs, without starting it", api.Flat,
		),
		api.Post(
			"/fine-tuning/jobs", api.Admin, h.create, "Start a fine-tuning job", api.Creates, api.Flat, api.Spends,
		),
		api.Get("/fine-tuning/jobs", api.Reader, h.list, "List fine-tuning jobs, the newest first", api.Flat),
		api.Get("/fine-tuning/jobs/{id}", api.Reader, h.get, "Read a fine-tuning job: its progress and cost", api.Flat),
		api.Post("/fine-tuning/jobs/{id}/cancel", api.Admin, h.cancel, "End a job. Its checkpoints stay", api.Flat),
		api.Post(
			"/fine-tuning/jobs/{id}/pause", api.Admin, h.pause,
			"Save a checkpoint of a job, and stop it until it is resumed", api.Flat,
		),
		api.Post(
			"/fine-tuning/jobs/{id}/resume", api.Admin, h.resume, "Let a paused job go on from its last checkpoint",
			api.Flat, api.Spends,
		),
		api.Get(
			"/fine-tuning/jobs/{id}/events", api.Reader, h.events, "List what happened in a job, and its metrics",
			api.Flat,
		),
		api.Get(
			"/fine-tuning/jobs/{id}/series", api.Reader, h.series,
			"Read the metrics of a job by step, thinned to so many points", api.Flat,
		),
		api.Get(
			"/fine-tuning/jobs/{id}/checkpoints", api.Reader, h.checkpoints,
			"List the checkpoints of a job, the newest first", api.Flat,
		),
	}
}

// serveUpload answers POST /v1/fine-tuning/files.
func (h *handler) serveUpload(w http.ResponseWriter, r *http.Request) error {
	if !h.uploads.Take(1) {
		return fault.RateLimited.New("too many files are being uploaded").In(time.Second)
	}
	defer h.uploads.Give(1)
	caller := edge.Caller(r.Context())
	r.Body = io.NopCloser(h.bounds.Stream(r))
	form, err := r.MultipartReader()
	if err != nil {
		return fault.UnsupportedMedia.New("send the file as multipart/form-data, with the parts purpose and file")
	}
	made, err := h.s.readUpload(r.Context(), caller.Workspace, caller.Actor(), form)
	if err != nil {
		return err
	}
	text, err := json.Marshal(made)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(text) //nolint:gosec // JSON, by its header; a caller that disconnected has no use for an error
	return nil
}

type one struct {
	ID string `path:"id"`
}

func (h *handler) files(ctx context.Context, c tenant.Caller, in api.Page) ([]File, error) {
	return h.s.Files(ctx, c.Workspace, in.Limit, in.Offset)
}

func (h *handler) file(ctx context.Context, c tenant.Caller, in one) (File, error) {
	return h.s.File(ctx, h.s.DB.In(c.Workspace), in.ID)
}

func (h *handler) content(ctx context.Context, c tenant.Caller, in one) (api.Stream, error) {
	f, from, err := h.s.Content(ctx, c.Workspace, in.ID)
	if err != nil {
		return api.Stream{}, err
	}
	return api.Stream{ContentType: api.JSONL, Filename: f.Name, Write: func(w io.Writer) error {
		defer func() { _ = from.Close() }() // it was read
		_, err := io.Copy(w, from)
		return err
	}}, nil
}

func (h *handler) deleteFile(ctx context.Context, c tenant.Caller, in one) (api.Deleted, error) {
	err := h.s.DeleteFile(ctx, c.Workspace, c.Actor(), in.ID)
	return api.Deleted{ID: in.ID, Object: "file", Deleted: err == nil}, err
}

func (h *handler) models(ctx context.Context, c tenant.Caller, _ api.None) ([]train.Model, error) {
	return h.s.Train.Models(ctx, c.Workspace)
}

type asked struct{ Body Request }

func (h *handler) estimate(ctx context.Context, c tenant.Caller, in asked) (Estimate, error) {
	return h.s.Estimate(ctx, c.Workspace, in.Body)
}

func (h *handler) create(ctx context.Context, c tenant.Caller, in asked) (Job, error) {
	return h.s.Create(ctx, c.Workspace, c.Actor(), in.Body)
}

func (h *handler) list(ctx context.Context, c tenant.Caller, in api.Page) ([]Job, error) {
	return h.s.List(ctx, c.Workspace, in.Limit, in.Offset)
}

func (h *handler) get(ctx context.Context, c tenant.Caller, in one) (Job, error) {
	return h.s.Get(ctx, c.Workspace, in.ID)
}

func (h *handler) cancel(ctx context.Context, c tenant.Caller, in one) (Job, error) {
	return h.want(ctx, c, in.ID, train.Cancel)
}

func (h *handler) pause(ctx context.Context, c tenant.Caller, in one) (Job, error) {
	return h.want(ctx, c, in.ID, train.Pause)
}

func (h *handler) want(ctx context.Context, c tenant.Caller, jobID string, w train.Wanted) (Job, error) {
	if err := h.s.Train.Want(ctx, c.Workspace, c.Actor(), kind, jobID, w, "by "+string(c.Actor().User)); err != nil {
		return Job{}, err
	}
	return h.s.Get(ctx, c.Workspace, jobID)
}

func (h *handler) resume(ctx context.Context, c tenant.Caller, in one) (Job, error) {
	if err := h.s.Train.Resume(ctx, c.Workspace, c.Actor(), kind, in.ID); err != nil {
		return Job{}, err
	}
	return h.s.Get(ctx, c.Workspace, in.ID)
}

type eventsOf struct {
	ID    string `path:"id"`
	After int64  `query:"after" default:"0" minimum:"0" doc:"Only those after this seq"`
	Limit int    `query:"limit" default:"200" minimum:"1" maximum:"1000"`
}

func (h *handler) events(ctx context.Context, c tenant.Caller, in eventsOf) ([]train.Event, error) {
	if _, err := h.s.find(ctx, h.s.DB.In(c.Workspace), in.ID); err != nil {
		return nil, err
	}
	return h.s.Train.EventsAfter(ctx, c.Workspace, in.ID, in.After, in.Limit)
}

type seriesOf struct {
	ID     string `path:"id"`
	Points int    `query:"points" default:"400" minimum:"10" maximum:"2000" doc:"Of each metric, at most"`
}

func (h *handler) series(ctx context.Context, c tenant.Caller, in seriesOf) (train.Series, error) {
	if _, err := h.s.find(ctx, h.s.DB.In(c.Workspace), in.ID); err != nil {
		return train.Series{}, err
	}
	return h.s.Train.Series(ctx, c.Workspace, in.ID, in.Points)
}

func (h *handler) checkpoints(ctx context.Context, c tenant.Caller, in one) ([]Checkpoint, error) {
	r, err := h.s.find(ctx, h.s.DB.In(c.Workspace), in.ID)
	if err != nil {
		return nil, err
	}
	all, err := h.s.Train.Checkpoints(ctx, c.Workspace, in.ID)
	if err != nil {
		return nil, err
	}
	served := int64(-1) // the step of the model version
	if r.ModelVersionID != "" {
		if v, err := h.s.Versions.Get(ctx, c.Workspace, r.ModelVersionID); err == nil { // it may have been deleted
			served = v.Source.Step
		}
	}
	shown := make([]Checkpoint, len(all))
	for i, one := range all {
		shown[i] = Checkpoint{
			ID: one.ID, Object: "fine_tuning.job.checkpoint", Step: one.Step, Metrics: one.Metrics, Bytes: one.Bytes,
			SHA256: string(one.Digest), CreatedAt: one.CreatedAt,
		}
		if one.Step == served {
			shown[i].ModelVersionID = &r.ModelVersionID
		}
	}
	return shown, nil
}
