package reward

import (
	"context"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
)

// An operator serves the operations of the server's operator on the sessions of any workspace.
type operator struct {
	store *Store
	find  func(ctx context.Context, workspace string) (tenant.ID, error)
}

func (o *operator) routes() []api.Route {
	return []api.Route{
		api.Get("/reward/sessions", api.Operator, o.list, "List a workspace's reward sessions"),
		api.Post(
			"/reward/purges", api.Operator, o.purge,
			"Delete the tasks and scored items of reward sessions that have ended", api.Long, api.Outside,
		),
	}
}

type sessionsOf struct {
	Workspace string `query:"workspace" required:"true" doc:"The workspace's id or name"`
	listSessions
}

func (o *operator) list(ctx context.Context, _ tenant.Caller, in sessionsOf) (api.List[Session], error) {
	ws, err := o.find(ctx, in.Workspace)
	if err != nil {
		return api.List[Session]{}, err
	}
	all, err := o.store.List(ctx, ws, Selection{Status(in.Status), in.Label}, in.More(), in.Offset)
	return api.NewList(in.Page, all), err
}

// A PurgeRequest names sessions whose texts are to be deleted.
type PurgeRequest struct {
	Workspace     string `json:"workspace"`
	SessionID     string `json:"session_id,omitempty" doc:"One that has ended"`
	OlderThanDays *int64 `json:"older_than_days,omitempty" minimum:"0" maximum:"36500" doc:"All that ended at least this many days ago"`
}

// A Purged says how many sessions were purged.
type Purged struct {
	Object   string `json:"object" enum:"reward_purge"`
	Sessions int64  `json:"sessions"`
}

func (o *operator) purge(ctx context.Context, caller tenant.Caller, in PurgeRequest) (Purged, error) {
	purged := Purged{Object: "reward_purge"}
	if (in.SessionID == "") == (in.OlderThanDays == nil) {
		return purged, fault.Invalid("session_id", "or older_than_days is required, and not both")
	}
	ws, err := o.find(ctx, in.Workspace)
	if err != nil {
		return purged, err
	}
	if in.SessionID != "" {
		purged.Sessions = 1
		return purged, o.store.Purge(ctx, ws, caller.Actor(), in.SessionID)
	}
	before := o.store.now().Add(-time.Duration(*in.OlderThanDays) * 24 * time.Hour)
	purged.Sessions, err = o.store.PurgeBefore(ctx, ws, caller.Actor(), before)
	return purged, err
}
