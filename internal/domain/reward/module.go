package reward

import (
	"context"
	"log/slog"
	"time"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/module"
)

// Deps is what the module of a store needs.
type Deps struct {
	Find func(ctx context.Context, workspace string) (tenant.ID, error) // the workspace of an id or a name
	// refuses while another server may own the data
	Serving func() error
	Log     *slog.Logger
}

// Module serves the sessions of s, and ends those whose time is over.
func Module(s *Store, d Deps) module.Module {
	h, o := &handler{s}, &operator{s, d.Find}
	return module.Module{
		Name: "rewards", Routes: append(h.routes(), o.routes()...), Publishers: map[string]feed.Source{changed: s},
		Sweep: s.sweep, Alarms: s.Alarms,
		Background: []module.Loop{
			{Name: "expiry of reward sessions", Run: func(ctx context.Context) {
				s.expireRegularly(ctx, d)
			}, Once: true},
			{Name: "scoring in the background", Run: s.scorer.runUntil, CallsModels: true},
			{
				Name: "anchors of reward sessions", Run: func(ctx context.Context) { s.runAnchors(ctx, d) },
				Once: true, CallsModels: true,
			},
		},
	}
}

// expireRegularly ends sessions whose time is over, until ctx ends.
func (s *Store) expireRegularly(ctx context.Context, d Deps) {
	tick := time.NewTicker(expiryEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if d.Serving() != nil {
			continue
		}
		if err := s.expireDue(ctx); err != nil && ctx.Err() == nil {
			d.Log.Warn("cannot end reward sessions whose time is over; it is tried again", "err", err)
		}
	}
}
