package signin

import (
	"context"
	"log/slog"
	"slices"

	"sovereign/internal/live"
	"sovereign/internal/store/db"
	"sovereign/internal/store/module"
)

// Deps is what the module needs of the server.
type Deps struct {
	DB       *db.DB
	Store    *Store
	Sessions *live.Sessions
	Options  func() Options
	Log      *slog.Logger
}

// Module serves sessions and links, and publishes sessions to the edge.
func Module(d Deps) module.Module {
	h := &Handler{store: d.Store, sessions: d.Sessions, options: d.Options, log: d.Log, passwords: newPasswords(d.DB)}
	o := &operator{store: d.Store, options: d.Options}
	publisher := NewPublisher(d.DB, d.Sessions)
	return module.Module{
		Name:       "sign-in",
		Routes:     slices.Concat(h.routes(), NewTeam(d.Store, d.Options).routes(), o.routes()),
		Publishers: publisher.Sources(),
		Background: []module.Loop{{Name: "record uses of sessions", Run: func(ctx context.Context) {
			publisher.RecordUses(ctx, d.Log)
		}}},
		Sweep: d.Store.DeleteOld,
	}
}
