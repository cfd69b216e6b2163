package workspace

import (
	"context"
	"fmt"

	"sovereign/internal/audit"
	"sovereign/internal/clock"
	"sovereign/internal/db"
	"sovereign/internal/fault"
	"sovereign/internal/feed"
	"sovereign/internal/live"
	"sovereign/internal/tenant"
)

// Settings are what a workspace has set for its traffic.
type Settings struct {
	Object           string `json:"object" enum:"workspace_settings"`
	DefaultMaxTokens int64  `json:"default_max_tokens" doc:"Output tokens of a request that names no maximum; it is sent to the provider, and lowers the hold. 0 for the server's default"`
	Cache            bool   `json:"cache" doc:"Answers are remembered for an hour and given again to the same question; a request may say otherwise with X-Service-Cache"`
}

// maxDefault bounds a default: more is a typing error.
const maxDefault = 1_000_000_000

// Settings reads what a workspace has set.
func (s *Store) Settings(ctx context.Context, ws tenant.ID) (Settings, error) {
	return settings(ctx, s.db.In(ws))
}

func settings(ctx context.Context, in db.Scoped) (Settings, error) {
	set, err := db.Maybe[Settings](ctx, in, `
		SELECT 'workspace_settings' AS object, default_max_tokens, cache FROM workspace_settings WHERE workspace_id = $1`)
	if err != nil {
		return Settings{}, fmt.Errorf("read settings: %w", err)
	}
	if set == nil {
		return Settings{Object: "workspace_settings"}, nil
	}
	return *set, nil
}

// A SettingsChange is what shall be set; what is nil stays as it is.
type SettingsChange struct {
	DefaultMaxTokens *int64 `json:"default_max_tokens,omitempty"`
	Cache            *bool  `json:"cache,omitempty"`
}

// Set changes what a workspace has set, and returns all of it. When it returns, it is in force.
func (s *Store) Set(ctx context.Context, ws tenant.ID, by tenant.Actor, change SettingsChange) (next Settings, err error) {
	if n := change.DefaultMaxTokens; n != nil && (*n < 0 || *n > maxDefault) {
		return Settings{}, fault.Invalid("default_max_tokens", fmt.Sprintf("must be from 0 to %d", maxDefault))
	}
	err = s.feed.Change(ctx, func(tx *db.Tx) error {
		before, err := settings(ctx, tx.In(ws))
		if err != nil {
			return err
		}
		next = before
		if change.DefaultMaxTokens != nil {
			next.DefaultMaxTokens = *change.DefaultMaxTokens
		}
		if change.Cache != nil {
			next.Cache = *change.Cache
		}
		if _, err := db.Exec(ctx, tx.In(ws), `
			INSERT INTO workspace_settings (workspace_id, default_max_tokens, cache, updated_at) VALUES ($1, $2, $3, $4)
			ON CONFLICT (workspace_id) DO UPDATE SET default_max_tokens = excluded.default_max_tokens, cache = excluded.cache, updated_at = excluded.updated_at`,
			next.DefaultMaxTokens, next.Cache, clock.Now()); err != nil {
			return fmt.Errorf("write settings: %w", err)
		}
		tx.Touch(changedSettings, ws, "")
		return audit.Record(ctx, tx, ws, by, "workspace.set", string(ws), before, next)
	})
	return next, err
}

// changedSettings is the kind of change that the data plane hears of.
const changedSettings = "settings"

// A SettingsPublisher keeps the data plane's settings like the table.
type SettingsPublisher struct {
	db     *db.DB
	live   *live.AllSettings
	forget func(tenant.ID) // what is remembered of a workspace
}

// NewSettingsPublisher publishes d's settings into to. forget is told of workspaces that want no answers remembered any more.
func NewSettingsPublisher(d *db.DB, to *live.AllSettings, forget func(tenant.ID)) *SettingsPublisher {
	return &SettingsPublisher{db: d, live: to, forget: forget}
}

// Sources is what the feed needs to know.
func (p *SettingsPublisher) Sources() map[string]feed.Source {
	return map[string]feed.Source{changedSettings: p}
}

// Fill publishes what every workspace has set.
func (p *SettingsPublisher) Fill(ctx context.Context) error {
	type row struct {
		Ws               tenant.ID
		DefaultMaxTokens int64
		Cache            bool
	}
	rows, err := db.Query[row](ctx, p.db.Across("the data plane serves all workspaces"), `SELECT workspace_id AS ws, default_max_tokens, cache FROM workspace_settings`)
	if err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	all := map[tenant.ID]live.Settings{}
	for _, r := range rows {
		all[r.Ws] = live.Settings{DefaultMaxTokens: r.DefaultMaxTokens, Cache: r.Cache}
	}
	p.live.Replace(all)
	return nil
}

// Apply publishes a workspace's settings as they are now.
func (p *SettingsPublisher) Apply(ctx context.Context, c db.Change) error {
	set, err := settings(ctx, p.db.In(c.Workspace))
	if err != nil {
		return err
	}
	if p.live.Of(c.Workspace).Cache && !set.Cache {
		defer p.forget(c.Workspace)
	}
	p.live.Put(c.Workspace, live.Settings{DefaultMaxTokens: set.DefaultMaxTokens, Cache: set.Cache})
	return nil
}
