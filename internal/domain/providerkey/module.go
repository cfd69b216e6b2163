package providerkey

import (
	"context"
	"log/slog"

	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/net/netguard"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/module"
	"sovereign/internal/store/vault"
)

// Deps is what the module needs of the server.
type Deps struct {
	DB      *db.DB
	Feed    *feed.Feed
	Vault   *vault.Vault
	Guard   *netguard.Guard
	Catalog func() *live.Catalog // the one in force
	Keys    *live.Keyring
	Find    func(ctx context.Context, workspace string) (tenant.ID, error)
	Log     *slog.Logger
}

// Module serves the workspaces' own provider keys, and publishes them to the data plane.
func Module(d Deps) module.Module {
	h := NewHandler(NewStore(d.DB, d.Feed, d.Vault, d.Guard, d.Catalog), d.Find)
	return module.Module{
		Name:       "provider keys",
		Routes:     append(h.Routes(), h.SessionRoutes()...),
		Publishers: NewPublisher(d.DB, d.Vault, d.Keys, d.Log).Sources(),
	}
}
