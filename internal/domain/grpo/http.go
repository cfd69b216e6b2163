package grpo

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/envtool"
	"sovereign/internal/domain/reward"
	"sovereign/internal/domain/train"
	"sovereign/internal/plane/edge"
	"sovereign/internal/store/api"
	"sovereign/internal/store/job"
	"sovereign/internal/store/module"
)

// Module serves runs, prepares their prompts, and resumes those that were released.
func Module(s *Store, serving func() error) module.Module {
	h := &handler{s}
	return module.Module{
		Name: "GRPO runs", Routes: append(h.routes(), h.workerRoutes()...),
		Jobs: map[string]job.Work{prepareKind: s.prepare}, Waits: s.Waits,
		Background: []module.Loop{{Name: "held GRPO runs", Run: func(ctx context.Context) { s.watch(ctx, serving) }}},
	}
}

type handler struct{ s *Store }

func (h *handler) routes() []api.Route {
	return []api.Route{
		api.Post("/grpo/runs", api.Admin, h.create, "Train a model by reinforcement, with a certified judge as its reward",
			api.Creates, api.Flat, api.Spends),
		api.Get("/grpo/runs", api.Admin, h.list, "List GRPO runs, the newest first", api.Flat),
		api.Get("/grpo/runs/{id}", api.Admin, h.get, "Read a GRPO run", api.Flat),
		api.Post(
			"/grpo/runs/{id}/stop", api.Admin, h.stop, "End a run. Its last checkpoint becomes a candidate", api.Flat,
		),
		api.Get(
			"/grpo/runs/{id}/events", api.Admin, h.events, "List what happened in a run, and its metrics", api.Flat,
		),
		api.Get(
			"/grpo/runs/{id}/series", api.Admin, h.series,
			"Read the metrics of a run by step, thinned to so many points", api.Flat,
		),
		api.Get(
			"/grpo/candidates", api.Admin, h.candidates, "List models that may replace their base, the newest first",
			api.Flat,
		),
	}
}

// workerRoutes are what the worker of a run uses beside the protocol of training.
func (h *handler) workerRoutes() []api.Route {
	return []api.Route{
		api.Raw[scoring, reward.Scores]("/runs/{id}/score", api.Worker, h.serveScore,
			"Score completions by the reward session of the run, within 110 seconds"),
		api.Post(
			"/runs/{id}/tools/{tool}", api.Worker, h.call, "Call an environment tool of the run", api.Long, api.Outside,
		),
	}
}

func (h *handler) create(ctx context.Context, c tenant.Caller, in struct{ Body Request }) (Run, error) {
	return h.s.Create(ctx, c.Workspace, c.Actor(), in.Body)
}

func (h *handler) list(ctx context.Context, c tenant.Caller, in api.Page) (Runs, error) {
	return h.s.List(ctx, c.Workspace, in.Limit, in.Offset)
}

type one struct {
	ID string `path:"id"`
}

func (h *handler) get(ctx context.Context, c tenant.Caller, in one) (Run, error) {
	return h.s.Get(ctx, c.Workspace, in.ID)
}

func (h *handler) stop(ctx context.Context, c tenant.Caller, in one) (Run, error) {
	if err := h.s.Train.Want(ctx, c.Workspace, c.Actor(), kind, in.ID, train.Cancel, ""); err != nil {
		return Run{}, err
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

func (h *handler) candidates(ctx context.Context, c tenant.Caller, in api.Page) ([]Candidate, error) {
	return h.s.candidates(
		ctx, h.s.DB.In(c.Workspace), ` ORDER BY created_at DESC, id DESC LIMIT $2 OFFSET $3`, in.Limit, in.Offset,
	)
}

type scoring struct {
	train.LeaseRef
	Body reward.ScoreRequest
}

// serveScore scores for the worker of a run, from the run's own reward session.
func (h *handler) serveScore(w http.ResponseWriter, r *http.Request) error {
	edge.SkipAccessLog(r.Context())
	hand := train.LeaseRef{RunID: r.PathValue("id"), Fence: r.URL.Query().Get("fence")}
	hand.Attempt, _ = strconv.ParseInt(r.URL.Query().Get("attempt"), 10, 64) // 0 is no attempt
	run, err := h.leased(r.Context(), edge.Caller(r.Context()), hand)
	if err != nil {
		return err
	}
	return h.s.Rewards.ServeScore(w, r, run.Workspace, run.SessionID)
}

// leased returns the run that a worker has leased, if it is one of these.
func (h *handler) leased(ctx context.Context, c tenant.Caller, hand train.LeaseRef) (*record, error) {
	run, err := h.s.Train.Leased(ctx, c, hand)
	if err != nil {
		return nil, err
	}
	return h.s.find(ctx, h.s.DB.In(run.Workspace), run.ID)
}

type calling struct {
	train.LeaseRef
	Tool string `path:"tool"`
	Body struct {
		Arguments jsontext.Value `json:"arguments"`
		RolloutID string         `json:"rollout_id" maxLength:"200"`
		Step      int64          `json:"step" minimum:"0"`
	}
}

// call calls a tool for the worker of a run: one that the run was started with, and no other.
func (h *handler) call(ctx context.Context, c tenant.Caller, in calling) (envtool.Result, error) {
	run, err := h.leased(ctx, c, in.LeaseRef)
	if err != nil {
		return envtool.Result{}, err
	}
	asked, err := run.request()
	if err != nil {
		return envtool.Result{}, err
	}
	if !slices.Contains(asked.EnvironmentTools, in.Tool) {
		return envtool.Result{}, fault.NotFound("environment tool of the run", in.Tool)
	}
	return h.s.Tools.Call(ctx, run.Workspace, in.Tool, envtool.Call{
		Arguments: in.Body.Arguments, RunID: run.ID, RolloutID: in.Body.RolloutID, Step: in.Body.Step,
	})
}
