package wallet

import (
	"context"

	"sovereign/internal/api"
	"sovereign/internal/money"
	"sovereign/internal/tenant"
)

// Workspaces finds the workspace that an operator names.
type Workspaces func(ctx context.Context, name string) (tenant.ID, error)

// An Operator answers what whoever runs the server may do to a wallet. There are no billing endpoints for keys.
type Operator struct {
	store *Store
	find  Workspaces
}

// NewOperator manages the wallets of s.
func NewOperator(s *Store, find Workspaces) *Operator { return &Operator{store: s, find: find} }

// Routes are the operations of the server's own socket.
func (o *Operator) Routes() []api.Route {
	return []api.Route{
		api.Get("/wallet", api.Operator, o.show, "Show a workspace's balance"),
		api.Post("/wallet/topups", api.Operator, o.topUp, "Add money to a wallet", api.Creates),
		api.Get("/ledger/verification", api.Operator, o.verify, "Prove the ledger's invariants from its rows"),
	}
}

type ofWorkspace struct {
	Workspace string `query:"workspace" required:"true" doc:"The workspace's id or name"`
}

func (o *Operator) show(ctx context.Context, _ tenant.Caller, in ofWorkspace) (Balance, error) {
	ws, err := o.find(ctx, in.Workspace)
	if err != nil {
		return Balance{}, err
	}
	return o.store.Show(ctx, ws)
}

// A TopUp asks for money to be added.
type TopUp struct {
	Workspace string     `json:"workspace"`
	Amount    money.Nano `json:"amount_usd"`
	Memo      string     `json:"memo,omitempty" maxLength:"200" doc:"Why, for the ledger"`
}

func (o *Operator) topUp(ctx context.Context, caller tenant.Caller, in TopUp) (Balance, error) {
	ws, err := o.find(ctx, in.Workspace)
	if err != nil {
		return Balance{}, err
	}
	return o.store.TopUp(ctx, ws, caller.Actor(), in.Amount, in.Memo)
}

func (o *Operator) verify(ctx context.Context, _ tenant.Caller, _ api.None) (Proof, error) {
	return o.store.Verify(ctx)
}
