package wallet

import (
	"context"

	"sovereign/internal/store/chain"
	"sovereign/internal/store/module"
)

// Module serves the wallets of s, and posts the journal to the ledger with p. sealer seals the ledger's chain before it
// is verified. find returns the workspace of an id or a name.
func Module(s *Store, p *Poster, sealer *chain.Sealer, find Workspaces) module.Module {
	background := []module.Loop{
		{Name: "sync the journal", Run: p.SyncLoop},
		{Name: "post the journal", Run: p.Run},
		{Name: "resolve holds", Run: p.Holds.Run},
		{Name: "collect debts", Run: func(ctx context.Context) { s.CollectLoop(ctx, p) }},
	}
	if p.Escrow != nil {
		background = append(background, module.Loop{Name: "share wallets", Run: p.Escrow.Run}, module.Loop{
			Name: "take slices of wallets ahead", Run: func(ctx context.Context) { p.Escrow.Prefetch(ctx, p.paid) },
		})
	}
	o := &Operator{store: s, poster: p, sealer: sealer, find: find}
	return module.Module{
		Name:       "wallets",
		Routes:     append(o.Routes(), (&Handler{store: s, poster: p, sealer: sealer}).Routes()...),
		Publishers: p.Sources(),
		Alarms:     s.Alarms,
		Background: background,
		Setup: []module.Step{
			{
				ID: "add_credit", Action: "ask the operator to top the wallet up: sovereign admin wallet topup",
				Done: s.Funded,
			},
			{ID: "send_request", Action: "send a chat completion: POST /v1/chat/completions with the model sim/chat, or one of GET /v1/models", Done: s.Used},
		},
	}
}
