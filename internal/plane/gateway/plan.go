package gateway

import (
	"cmp"
	"fmt"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/wire/upstream"
)

// A plan is what may run: the order of tries, and every model that the hold must cover.
type plan struct {
	alias string
	order []candidate
	arms  []candidate
}

// A candidate is a model that may answer, how it is reached, and what it costs the workspace.
type candidate struct {
	*live.Model
	own   *upstream.Credentials // the workspace's own way; nil for the server's
	price live.Price
}

// circuit names what fails together: a model at a provider, and apart from it with a workspace's own account or URL.
func (c candidate) circuit(ws tenant.ID) string {
	if c.own != nil {
		return c.ID + " for " + string(ws)
	}
	return c.ID
}

// candidate finds a model and the workspace's way to it. With a key of its own a workspace pays the platform's fee alone;
// where the operator's provider wants no key, another is worth nothing.
func (g *Gateway) candidate(ws tenant.ID, c *live.Catalog, id string) (candidate, error) {
	m, err := c.Serves(id, g.Keys.Of(ws))
	if err != nil {
		return candidate{}, err
	}
	own := g.Keys.Find(ws, m.Provider.Name)
	switch {
	case own == nil, own.BaseURL == "" && !own.Broken && m.Provider.Keyless():
		return candidate{Model: m, price: m.Price}, nil
	case own.Broken:
		return candidate{}, fault.UnknownProvider.New("the workspace's own key for %s cannot be read: set it again", m.Provider.Name)
	default:
		return candidate{Model: m, own: &upstream.Credentials{Key: own.Key, BaseURL: own.BaseURL}, price: m.Price.Share(g.settings.Load().OwnKeyFee)}, nil
	}
}

// resolve finds the models of a request: a catalog id, then an alias. Aliases never shadow the catalog, and the product
// itself knows none. room is for the models, mostly.
func (g *Gateway) resolve(a *Ask, c *live.Catalog, room []candidate) (plan, error) {
	p := plan{order: room}
	name, ws := a.model, a.Caller.Workspace
	fallbacks := a.fallbacks
	if !c.Has(name) {
		alias, ok := g.Aliases.Find(ws, name)
		if !ok || a.own != nil {
			_, err := g.candidate(ws, c, name)
			return p, err
		}
		p.alias = alias.Name
		if name = alias.Target; alias.Canary != "" {
			p.arms, name = g.split(ws, c, alias)
		}
		if fallbacks == nil {
			fallbacks = alias.Fallbacks
		}
	}
	m, err := g.candidate(ws, c, name)
	switch {
	case err != nil && p.alias == "":
		return p, err
	case err != nil: // what an alias points to may have left the catalog since; its fallbacks stand in
	default:
		if err := cmp.Or(a.fits("model", m), a.covered(m)); err != nil {
			return p, err
		}
		p.order = append(p.order, m)
	}
	for i, id := range fallbacks {
		m, err := g.candidate(ws, c, id)
		named := fmt.Sprintf("models[%d]", i)
		switch {
		case err != nil && a.fallbacks != nil:
			return p, fault.Invalid(named, "cannot be called: "+err.Error())
		case err != nil: // an alias's fallback may have left the catalog since
		default:
			if err := a.fits(named, m); err != nil {
				return p, err
			}
			if a.covered(m) == nil { // else it is passed over, as one is that cannot express the request
				p.order = append(p.order, m)
			}
		}
	}
	if len(p.order) == 0 {
		f := *fault.From(err)
		f.Message = fmt.Sprintf("the alias %q points to %q: %s", p.alias, name, f.Message)
		return p, &f
	}
	if len(p.arms) == 0 {
		p.arms = p.order
	} else {
		p.arms = append(p.arms, p.order...)
	}
	return p, nil
}

// split draws between an alias's two models, and is what the other one is held for. What cannot be called any more gets no
// share.
func (g *Gateway) split(ws tenant.ID, c *live.Catalog, alias *live.Alias) (others []candidate, name string) {
	name = alias.Pick(g.Random())
	if _, err := g.candidate(ws, c, name); err != nil {
		name = alias.Target
	}
	for _, arm := range []string{alias.Target, alias.Canary} {
		if m, err := g.candidate(ws, c, arm); err == nil && arm != name {
			others = append(others, m)
		}
	}
	return others, name
}

// fits refuses a model that is for something else.
func (a *Ask) fits(field string, c candidate) error {
	if c.Kind != a.Endpoint.kind {
		return fault.Invalid(field, fmt.Sprintf("%s is for %s, not for %s", c.ID, c.Kind, a.Endpoint.kind))
	}
	return nil
}

// covered refuses what only a workspace with its own key may ask of OpenAI and those who have all of its API: what is
// stored under the server's key is nobody's, and a tool that the provider runs, or another tier, has a price that the hold
// does not know.
func (a *Ask) covered(c candidate) error {
	switch {
	case c.own != nil:
		return nil
	case c.Provider.Responses && a.stored != "":
		return unsupported(a.stored, "needs a key of the workspace's own at "+c.Provider.Name+": nothing is stored for it under the server's")
	case (c.Provider.Responses || c.Provider.Modern) && a.dear != "":
		return unsupported(a.dear, "has a price of its own at "+c.Provider.Name+": it needs a key of the workspace's own there")
	default:
		return nil
	}
}

func unsupported(field, reason string) error {
	f := fault.UnsupportedParameter.New("%s %s", field, reason)
	f.Field = field
	return f
}
