package raft

import (
	"context"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
	"sovereign/internal/store/job"
	"sovereign/internal/store/module"
)

// Module serves rounds, and scores what they sample.
func Module(s *Store) module.Module {
	h := &handler{s}
	return module.Module{
		Name: "RAFT rounds", Routes: h.routes(), Sweep: s.sweep,
		Jobs: map[string]job.Work{workKinds[Scoring]: s.score, workKinds[Comparing]: s.compare, followKind: s.follow},
	}
}

type handler struct{ s *Store }

func (h *handler) routes() []api.Route {
	return []api.Route{
		api.Get("/raft/rounds", api.Admin, h.list, "List RAFT rounds, the newest first", api.Flat),
		api.Get("/raft/rounds/{id}", api.Admin, h.get, "Read a RAFT round: its stage, rewards and cost", api.Flat),
		api.Post("/raft/rounds", api.SessionAdmin, h.create, "Start a RAFT round", api.Creates, api.Flat, api.Spends),
		api.Post("/raft/plans", api.SessionAdmin, h.plan,
			"Say what a RAFT round will do and cost, without starting it", api.Flat),
		api.Post(
			"/raft/rounds/{id}/cancel", api.SessionAdmin, h.cancel, "End a RAFT round. What it made stays", api.Flat,
		),
	}
}

type asked struct{ Body Request }

func (h *handler) create(ctx context.Context, c tenant.Caller, in asked) (Round, error) {
	return h.s.Create(ctx, c.Workspace, c.Actor(), in.Body)
}

func (h *handler) plan(ctx context.Context, c tenant.Caller, in asked) (Plan, error) {
	return h.s.Plan(ctx, c.Workspace, in.Body)
}

func (h *handler) list(ctx context.Context, c tenant.Caller, in api.Page) ([]Round, error) {
	return h.s.List(ctx, c.Workspace, in.Limit, in.Offset)
}

type one struct {
	ID string `path:"id"`
}

func (h *handler) get(ctx context.Context, c tenant.Caller, in one) (Round, error) {
	return h.s.Get(ctx, c.Workspace, in.ID)
}

func (h *handler) cancel(ctx context.Context, c tenant.Caller, in one) (Round, error) {
	return h.s.Cancel(ctx, c.Workspace, c.Actor(), in.ID)
}
