package policy

import (
	"context"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
)

// A Handler serves a workspace's policy on the dashboard. People read it, and owners change it. Keys cannot: what a
// policy asks for is not for those to change who are asked.
type Handler struct{ store *Store }

// Routes are the operations for sessions.
func (h *Handler) Routes() []api.Route {
	return []api.Route{
		api.Get(
			"/evidence", api.SessionMember, h.get,
			"Read which proof the workspace asks for before an alias is repointed",
		),
		api.Patch(
			"/evidence", api.SessionOwner, h.set,
			"Change which proof the workspace asks for before an alias is repointed",
		),
	}
}

func (h *Handler) get(ctx context.Context, caller tenant.Caller, _ api.None) (EvidencePolicy, error) {
	return h.store.Get(ctx, caller.Workspace)
}

func (h *Handler) set(ctx context.Context, caller tenant.Caller, in EvidencePolicyChange) (EvidencePolicy, error) {
	return h.store.Set(ctx, caller.Workspace, caller.Actor(), &in)
}
