package pool

import (
	"context"
	"fmt"

	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/modelversion"
	"sovereign/internal/domain/train"
	"sovereign/internal/live"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
)

// Sources is what the feed needs to know: the pool publishes the trained models that its engine can serve, and the base
// models that they were trained from.
func (p *Pool) Sources() map[string]feed.Source {
	return map[string]feed.Source{modelversion.Changed: p}
}

const versionColumns = `workspace_id, id, name, base_model, files, created_at FROM model_versions`

// Fill publishes every version there is.
func (p *Pool) Fill(ctx context.Context) error {
	byWorkspace := map[tenant.ID][]*version{}
	for v, err := range db.Rows[version](
		ctx, p.DB.Across("the data plane serves all workspaces"), `SELECT `+versionColumns,
	) {
		if err != nil {
			return fmt.Errorf("read model versions: %w", err)
		}
		byWorkspace[v.WorkspaceID] = append(byWorkspace[v.WorkspaceID], &v)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for ws := range p.models {
		if byWorkspace[ws] == nil {
			p.publish(ws, nil)
		}
	}
	for ws, all := range byWorkspace {
		p.publish(ws, all)
	}
	return nil
}

// Apply publishes the versions of a workspace as they are now.
func (p *Pool) Apply(ctx context.Context, c db.Change) error {
	rows, err := db.Query[version](ctx, p.DB.In(c.Workspace), `SELECT `+versionColumns+` WHERE workspace_id = $1`)
	if err != nil {
		return fmt.Errorf("read model versions: %w", err)
	}
	all := make([]*version, len(rows))
	for i := range rows {
		all[i] = &rows[i]
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.publish(c.Workspace, all)
	return nil
}

// publish makes the models of a workspace those of its versions. The caller holds the lock.
func (p *Pool) publish(ws tenant.ID, all []*version) {
	next, there := map[string]bool{}, map[string]bool{}
	for _, v := range all {
		if !p.Engine.Serves(v.BaseModel) {
			continue
		}
		there[v.ID] = true
		if known := p.versions[v.ID]; known == nil {
			p.versions[v.ID] = v
		}
		base := train.BaseName(v.BaseModel)
		if !next[base] {
			p.Own.Put(ws, p.model(base, v.BaseModel, p.unit(v.BaseModel, nil), v))
		}
		p.Own.Put(ws, p.model(v.Name, v.ID, p.unit(v.BaseModel, v), v))
		next[base], next[v.Name] = true, true
	}
	for id := range p.models[ws] {
		if !next[id] {
			p.Own.Drop(ws, id)
		}
	}
	for id, v := range p.versions {
		if v.WorkspaceID == ws && !there[id] {
			delete(p.versions, id)
		}
	}
	if p.models[ws] = next; len(next) == 0 {
		delete(p.models, ws)
	}
	p.look()
}

// model returns a model of a unit: a version, or the base model by its id.
func (p *Pool) model(id, upstream string, of *unit, v *version) *live.Model {
	return &live.Model{
		ID: id, Provider: live.Engines, Upstream: upstream, Version: upstream, Engines: of.name, Kind: live.Chat,
		ContextWindow: p.Context, MaxOutput: p.Context, Price: p.Price, Created: v.CreatedAt,
	}
}
