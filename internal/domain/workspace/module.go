package workspace

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/module"
)

// Deps is what the module needs of the server.
type Deps struct {
	DB        *db.DB
	Store     *Store
	Directory *live.Directory
	Limits    *live.AllLimits
	Settings  *live.AllSettings
	Hooks     Hooks
	Logged    func(tenant.ID) bool // whether a workspace's chat traffic is logged
	Steps     []module.Step        // what other modules have to set up
	Log       *slog.Logger
}

// Module serves workspaces, members, keys and settings, and publishes them to the data plane.
func Module(d Deps) module.Module {
	identity := NewPublisher(d.DB, d.Directory)
	identity.Limits, identity.Counter, identity.Denied = d.Limits, d.Store.Counter, d.Hooks.Denied
	publishers := map[string]feed.Source{}
	maps.Copy(publishers, identity.Sources())
	maps.Copy(publishers, NewSettingsPublisher(d.DB, d.Settings, d.Hooks).Sources())
	own := []module.Step{
		{ID: "create_key", Action: "mint a key", Done: func(context.Context, tenant.ID) (bool, error) {
			return true, nil
		}},
	}
	handler := NewHandler(d.Logged, append(own, d.Steps...)...)
	made := module.Module{
		Name: "workspaces",
		Routes: slices.Concat(
			handler.Routes(), NewOperator(d.DB, d.Store).Routes(), NewTeam(d.DB, d.Store).Routes(),
		),
		Publishers: publishers,
		Background: []module.Loop{{Name: "record uses of keys", Run: func(ctx context.Context) {
			identity.RecordUses(ctx, d.Log)
		}}},
		Setup: own,
	}
	if c := d.Store.Counter; c != nil && c.Exchange != nil {
		made.Background = append(made.Background, module.Loop{Name: "exchange what limits count", Run: c.Exchange.Run})
		made.Sweep = c.Exchange.sweep
	}
	return made
}
