package wallet

import (
	"context"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/funds"
	"sovereign/internal/store/api"
	"sovereign/internal/store/chain"
	"sovereign/internal/store/db"
)

// Workspaces resolves the workspace that an operator names.
type Workspaces func(ctx context.Context, name string) (tenant.ID, error)

// An Operator serves the wallet operations of the operator's socket. There are no billing endpoints for API keys.
type Operator struct {
	store  *Store
	poster *Poster
	sealer *chain.Sealer
	find   Workspaces
}

// Routes returns the operations of the operator's socket.
func (o *Operator) Routes() []api.Route {
	return []api.Route{
		api.Get("/wallet", api.Operator, o.show, "Show a workspace's balance, and its open holds"),
		api.Post("/wallet/topups", api.Operator, o.topUp, "Add money to a wallet", api.Creates),
		api.Get("/usage", api.Operator, o.usage, "List what requests used and cost, newest first"),
		api.Get(
			"/ledger/verification", api.Operator, o.verify,
			"Prove the ledger's invariants from its rows, and that no row was changed or removed", api.Long,
		),
	}
}

type ofWorkspace struct {
	Workspace string `query:"workspace" required:"true" doc:"The workspace's id or name"`
}

// A Wallet is a workspace's balance with its open holds.
type Wallet struct {
	funds.Balance
	Holds []OpenHold `json:"holds" nullable:"false" doc:"Money that is set aside for things; a part of held_usd"`
	Owed  money.Nano `json:"owed_usd" doc:"What was refunded or disputed of payments and the wallet could not give: the next credit pays it"`
}

func (o *Operator) show(ctx context.Context, _ tenant.Caller, in ofWorkspace) (Wallet, error) {
	ws, err := o.find(ctx, in.Workspace)
	if err != nil {
		return Wallet{}, err
	}
	holds, err := o.poster.Holds.List(ctx, ws)
	if err != nil {
		return Wallet{}, err
	}
	balance, err := o.store.Show(ctx, ws)
	if err != nil {
		return Wallet{}, err
	}
	owed, err := o.store.Owed(ctx, ws)
	return Wallet{Balance: balance, Holds: append([]OpenHold{}, holds...), Owed: owed}, err
}

// A TopUp asks for money to be added.
type TopUp struct {
	Workspace string     `json:"workspace"`
	Amount    money.Nano `json:"amount_usd"`
	Memo      string     `json:"memo,omitempty" maxLength:"200" doc:"Why, for the ledger"`
}

func (o *Operator) topUp(ctx context.Context, caller tenant.Caller, in TopUp) (funds.Balance, error) {
	ws, err := o.find(ctx, in.Workspace)
	if err != nil {
		return funds.Balance{}, err
	}
	return o.store.TopUp(ctx, ws, caller.Actor(), in.Amount, in.Memo)
}

func (o *Operator) verify(ctx context.Context, _ tenant.Caller, in chain.Kept) (proof Proof, err error) {
	if err := o.poster.Drain(ctx); err != nil {
		return Proof{}, err
	}
	err = o.sealer.Snapshot(ctx, func(all db.Scoped, keys chain.Keys) error {
		proof, err = VerifyChain(ctx, all, keys, in.Head)
		return err
	})
	if err != nil {
		return proof, err
	}
	aside, err := o.poster.SetAside()
	proof.report(aside)
	return proof, err
}

type usageOf struct {
	ofWorkspace
	api.Page
}

func (o *Operator) usage(ctx context.Context, _ tenant.Caller, in usageOf) (api.List[UsageRow], error) {
	ws, err := o.find(ctx, in.Workspace)
	if err != nil {
		return api.List[UsageRow]{}, err
	}
	if err := o.poster.Drain(ctx); err != nil {
		return api.List[UsageRow]{}, err
	}
	rows, err := o.store.Usage(ctx, ws, in.More(), in.Offset)
	return api.NewList(in.Page, rows), err
}
