package endpoint

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/engines"
	"sovereign/internal/store/db"
)

// changed is the kind of change that is published.
const changed = "dedicated_endpoint"

// A publisher gives the data plane the models of endpoints, and the groups of engines that serve them.
type publisher struct {
	*Store
	wait time.Duration // how long a request waits for an engine

	mu    sync.Mutex
	known map[string]published // by id
}

type published struct {
	ws    tenant.ID
	model string
	group string
}

// Bounds of a request to an endpoint. Its engine knows the real ones; nothing is held for it, since the hour is paid.
const (
	contextWindow = 1 << 20
	maxOutput     = 1 << 15 // also what a request counts for in limits of tokens, when it says nothing
)

// Fill publishes every endpoint there is, and takes back the others.
func (p *publisher) Fill(ctx context.Context) error {
	all, err := db.Query[record](ctx, p.DB.Across("the data plane serves all workspaces"), `SELECT `+columns)
	if err != nil {
		return fmt.Errorf("read dedicated endpoints: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	there := map[string]bool{}
	for i := range all {
		there[all[i].ID] = true
		p.put(&all[i])
	}
	for id := range p.known {
		if !there[id] {
			p.drop(id)
		}
	}
	return nil
}

// Apply publishes an endpoint as it is now.
func (p *publisher) Apply(ctx context.Context, c db.Change) error {
	r, err := db.Maybe[record](ctx, p.DB.In(c.Workspace),
		`SELECT `+columns+` WHERE workspace_id = $1 AND id = $2`, c.Subject)
	if err != nil {
		return fmt.Errorf("read a dedicated endpoint: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if r == nil {
		p.drop(c.Subject)
	} else {
		p.put(r)
	}
	return nil
}

// put publishes an endpoint. Callers of one that does not serve are told so at once. One that was deleted is unknown to
// callers, while its engines answer what they were asked.
func (p *publisher) put(r *record) {
	p.known[r.ID] = published{r.Workspace, r.model(), r.deployment()}
	g := p.Registry.Open(engines.GroupConfig{
		Name: r.deployment(), Wait: p.wait, Wake: func() { p.wake(); p.Groups.Wake() },
	})
	g.Fail(r.refusal())
	if r.DeletedAt != 0 {
		p.Own.Drop(r.Workspace, r.model())
		return
	}
	p.Own.Put(r.Workspace, &live.Model{
		ID: r.model(), Provider: live.Engines, Upstream: r.model(), Engines: r.deployment(), Kind: live.Chat,
		Version:       cmp.Or(r.ModelVersionID, r.BaseModel),
		ContextWindow: contextWindow, MaxOutput: maxOutput, Created: r.CreatedAt,
	})
}

func (p *publisher) drop(id string) {
	if was, ok := p.known[id]; ok {
		p.Own.Drop(was.ws, was.model)
		p.Registry.Close(was.group)
		delete(p.known, id)
	}
}
