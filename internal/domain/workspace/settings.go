package workspace

import (
	"context"
	"fmt"
	"slices"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
)

// Settings are what a workspace has set for its traffic.
type Settings struct {
	Object           string `json:"object" enum:"workspace_settings"`
	DefaultMaxTokens int64  `json:"default_max_tokens" doc:"Output tokens of a request that names no maximum; it is sent to the provider, and lowers the hold. 0 for the server's default"`
	Cache            bool   `json:"cache" doc:"Answers are remembered for an hour and given again to the same question; a request may say otherwise with X-Service-Cache"`
	LogRetentionDays int64  `json:"log_retention_days" doc:"Days for which chat exchanges are kept: 7, 30 or 90; 0 when none are logged"`
}

// maxDefault bounds a default: more is a typing error.
const maxDefault = 1_000_000_000

// Settings reads what a workspace has set.
func (s *Store) Settings(ctx context.Context, ws tenant.ID) (Settings, error) {
	return settings(ctx, s.db.In(ws))
}

func settings(ctx context.Context, in db.Scoped) (Settings, error) {
	set, err := db.Maybe[Settings](ctx, in, `
		SELECT 'workspace_settings' AS object, default_max_tokens, cache, log_retention_days FROM workspace_settings WHERE workspace_id = $1`)
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
	LogRetentionDays *int64 `json:"log_retention_days,omitempty"`
}

// Retentions are the days for which exchanges may be kept; 0 logs none.
var Retentions = []int64{0, 7, 30, 90}

// Set changes what a workspace has set, and returns all of it. When it returns, it is in force.
func (s *Store) Set(
	ctx context.Context, ws tenant.ID, by tenant.Actor, change SettingsChange,
) (next Settings, err error) {
	if n := change.DefaultMaxTokens; n != nil && (*n < 0 || *n > maxDefault) {
		return Settings{}, fault.Invalid("default_max_tokens", fmt.Sprintf("must be from 0 to %d", maxDefault))
	}
	if n := change.LogRetentionDays; n != nil && !slices.Contains(Retentions, *n) {
		return Settings{}, fault.Invalid("log_retention_days", "must be 7, 30 or 90, or 0 to log nothing")
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
		if change.LogRetentionDays != nil {
			next.LogRetentionDays = *change.LogRetentionDays
		}
		if _, err := db.Exec(ctx, tx.In(ws), `
			INSERT INTO workspace_settings (workspace_id, default_max_tokens, cache, log_retention_days, updated_at) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (workspace_id) DO UPDATE SET default_max_tokens = excluded.default_max_tokens, cache = excluded.cache,
				log_retention_days = excluded.log_retention_days, updated_at = excluded.updated_at`,
			next.DefaultMaxTokens, next.Cache, next.LogRetentionDays, clock.Now()); err != nil {
			return fmt.Errorf("write settings: %w", err)
		}
		tx.Touch(changedSettings, ws, "")
		return audit.Record(ctx, tx, ws, by, "workspace.set", string(ws), before, next)
	})
	return next, err
}

// changedSettings is the kind of change that the data plane hears of.
const changedSettings = "settings"

// A SettingsPublisher publishes the table of settings to the data plane.
type SettingsPublisher struct {
	db    *db.DB
	live  *live.AllSettings
	hooks Hooks
}

// Hooks are called when something that is held in memory for a workspace must go. It is gone when they return.
type Hooks struct {
	Uncached func(tenant.ID) // the workspace turned its cache off
	Unlogged func()          // a workspace turned its logging off
	Denied   func()          // keys may be refused that were accepted before
}

// NewSettingsPublisher publishes d's settings into to.
func NewSettingsPublisher(d *db.DB, to *live.AllSettings, hooks Hooks) *SettingsPublisher {
	return &SettingsPublisher{db: d, live: to, hooks: hooks}
}

// Sources is what the feed needs to know.
func (p *SettingsPublisher) Sources() map[string]feed.Source {
	return map[string]feed.Source{changedSettings: p}
}

func (s Settings) live() live.Settings {
	return live.Settings{DefaultMaxTokens: s.DefaultMaxTokens, Cache: s.Cache, LogDays: s.LogRetentionDays}
}

// Fill publishes what every workspace has set.
func (p *SettingsPublisher) Fill(ctx context.Context) error {
	type row struct {
		Ws               tenant.ID
		DefaultMaxTokens int64
		Cache            bool
		LogRetentionDays int64
	}
	rows, err := db.Query[row](ctx, p.db.Across("the data plane serves all workspaces"), `
		SELECT workspace_id AS ws, default_max_tokens, cache, log_retention_days FROM workspace_settings`)
	if err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	all := map[tenant.ID]live.Settings{}
	for _, r := range rows {
		all[r.Ws] = Settings{
			DefaultMaxTokens: r.DefaultMaxTokens, Cache: r.Cache, LogRetentionDays: r.LogRetentionDays,
		}.live()
	}
	p.live.Replace(all)
	p.hooks.Unlogged()
	return nil
}

// Apply publishes a workspace's settings as they are now.
func (p *SettingsPublisher) Apply(ctx context.Context, c db.Change) error {
	set, err := settings(ctx, p.db.In(c.Workspace))
	if err != nil {
		return err
	}
	before := p.live.Of(c.Workspace)
	p.live.Put(c.Workspace, set.live())
	if before.Cache && !set.Cache {
		p.hooks.Uncached(c.Workspace)
	}
	if before.LogDays > 0 && set.LogRetentionDays == 0 {
		p.hooks.Unlogged()
	}
	return nil
}
