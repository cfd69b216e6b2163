package train

import (
	"context"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
)

type operator struct {
	s    *Store
	find func(ctx context.Context, workspace string) (tenant.ID, error)
}

func (o *operator) routes() []api.Route {
	return []api.Route{
		api.Post(
			"/workers", api.Operator, o.create, "Mint the token of a training worker", api.Creates, api.ShowsSecret,
		),
		api.Get("/workers", api.Operator, o.list, "List training workers, and what they said of themselves"),
		api.Delete(
			"/workers/{id}", api.Operator, o.revoke, "Revoke a worker's token: what it trains is given to another",
		),
	}
}

type creating struct {
	Body struct {
		Name      string `json:"name"`
		Workspace string `json:"workspace,omitempty" doc:"The id or name of the only workspace that it trains for; all, when it is missing"`
	}
}

// A Minted worker is shown with its token once.
type Minted struct {
	Worker
	Token string `json:"token" doc:"Shown once"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Minted) SchemaName() string { return "MintedWorker" }

func (o *operator) create(ctx context.Context, c tenant.Caller, in creating) (Minted, error) {
	var ws tenant.ID
	if in.Body.Workspace != "" {
		var err error
		if ws, err = o.find(ctx, in.Body.Workspace); err != nil {
			return Minted{}, err
		}
	}
	made, token, err := o.s.CreateWorker(ctx, c.Actor(), ws, in.Body.Name)
	return Minted{made, token.Reveal()}, err
}

func (o *operator) list(ctx context.Context, _ tenant.Caller, _ api.None) (api.List[Worker], error) {
	all, err := o.s.Workers(ctx)
	return api.List[Worker]{Object: "list", Data: all}, err
}

type revoking struct {
	ID string `path:"id"`
}

func (o *operator) revoke(ctx context.Context, c tenant.Caller, in revoking) (api.Deleted, error) {
	err := o.s.RevokeWorker(ctx, c.Actor(), in.ID)
	return api.Deleted{ID: in.ID, Object: "worker", Deleted: err == nil}, err
}
