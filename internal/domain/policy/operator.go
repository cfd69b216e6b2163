package policy

import (
	"context"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
)

// An Operator serves the operations of the server's operator on the policies of any workspace. Keys have none: what a
// policy asks for is not for those to change who are asked.
type Operator struct {
	store *Store
	find  func(ctx context.Context, workspace string) (tenant.ID, error)
}

// Routes are the operations of the server's own socket.
func (o *Operator) Routes() []api.Route {
	return []api.Route{
		api.Get("/evidence", api.Operator, o.get, "Read which proof a workspace asks for before an alias is repointed"),
		api.Patch(
			"/evidence", api.Operator, o.set, "Change which proof a workspace asks for before an alias is repointed",
		),
	}
}

type ofWorkspace struct {
	Workspace string `query:"workspace" required:"true" doc:"The workspace's id or name"`
}

func (o *Operator) get(ctx context.Context, _ tenant.Caller, in ofWorkspace) (EvidencePolicy, error) {
	ws, err := o.find(ctx, in.Workspace)
	if err != nil {
		return EvidencePolicy{}, err
	}
	return o.store.Get(ctx, ws)
}

type update struct {
	ofWorkspace
	Body EvidencePolicyChange
}

func (o *Operator) set(ctx context.Context, caller tenant.Caller, in update) (EvidencePolicy, error) {
	ws, err := o.find(ctx, in.Workspace)
	if err != nil {
		return EvidencePolicy{}, err
	}
	return o.store.Set(ctx, ws, caller.Actor(), &in.Body)
}
