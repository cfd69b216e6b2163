package alias

import (
	"context"
	"fmt"

	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
)

// changed is the kind of change that is published.
const changed = "alias"

// A Publisher publishes the table of aliases to the data plane.
type Publisher struct {
	db      *db.DB
	aliases *live.Aliases
}

// NewPublisher publishes d's aliases into aliases.
func NewPublisher(d *db.DB, aliases *live.Aliases) *Publisher {
	return &Publisher{db: d, aliases: aliases}
}

// Sources is what the feed needs to know.
func (p *Publisher) Sources() map[string]feed.Source { return map[string]feed.Source{changed: p} }

// A route is what the data plane needs of an alias.
type route struct {
	Ws tenant.ID
	Alias
}

const routeColumns = `workspace_id AS ws, name, target_model, canary_model, canary_percent, fallback_models, created_at,
	gate_epoch, gate_stratum, gate_key, gate_sample_percent FROM aliases`

func (r route) live() *live.Alias {
	a := &live.Alias{
		Name: r.Name, Target: r.TargetModel, Canary: r.CanaryModel, CanaryPercent: r.CanaryPercent,
		Fallbacks: r.FallbackModels, Created: r.CreatedAt,
	}
	if r.GateEpoch != "" && r.Splits() {
		a.Gate = &live.Gate{
			Epoch: r.GateEpoch, Stratum: int(r.GateStratum), Key: r.GateKey, SamplePercent: r.GateSamplePercent,
		}
	}
	return a
}

// Fill publishes every alias there is.
func (p *Publisher) Fill(ctx context.Context) error {
	all := map[live.AliasName]*live.Alias{}
	for row, err := range db.Rows[route](
		ctx, p.db.Across("the data plane serves all workspaces"), `SELECT `+routeColumns,
	) {
		if err != nil {
			return fmt.Errorf("read aliases: %w", err)
		}
		all[live.AliasName{Workspace: row.Ws, Name: row.Name}] = row.live()
	}
	p.aliases.Replace(all)
	return nil
}

// Apply publishes an alias as it is now.
func (p *Publisher) Apply(ctx context.Context, c db.Change) error {
	row, err := db.Maybe[route](
		ctx, p.db.In(c.Workspace), `SELECT `+routeColumns+` WHERE workspace_id = $1 AND name = $2`, c.Subject,
	)
	if err != nil {
		return fmt.Errorf("read alias: %w", err)
	}
	if row == nil {
		p.aliases.Drop(c.Workspace, c.Subject)
	} else {
		p.aliases.Put(c.Workspace, row.live())
	}
	return nil
}
