// Package plan decides which models may answer a request, in which order, and how much money must be held for them.
package plan

import (
	"cmp"
	"fmt"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/gateway/request"
	"sovereign/internal/wire/upstream"
)

// A Plan is which models may run.
type Plan struct {
	Alias  string      // that was resolved; empty for none
	Arm    live.Arm    // that was chosen of the alias's split; empty without a split
	Gate   *live.Gate  // that watches the split; nil without one
	Absent string      // the model that was to answer and cannot be called, which Order replaces; empty for none
	Order  []Candidate // the models to attempt, in order; never empty
	Priced []Candidate // every model that the hold must cover, which includes Order
}

// A Candidate is a model that may answer, how it is reached, and what it costs the workspace.
type Candidate struct {
	*live.Model
	Own   *upstream.Credentials // the workspace's own key; nil for the server's
	Price live.Price
}

// Circuit returns the name of the candidate's circuit: a model at a provider. A workspace's own key, URL or model has a
// circuit of its own, since it fails by itself.
func (c *Candidate) Circuit(ws tenant.ID) string {
	if c.Own != nil || c.Engines != "" {
		return c.ID + " for " + string(ws)
	}
	return c.ID
}

// A Resolver finds the models of requests.
type Resolver struct {
	Models    live.Models
	Aliases   *live.Aliases
	Random    func() float64 // uniform in [0, 1)
	OwnKeyFee int64          // millionths of a model's price, for a workspace that calls it with its own key
}

// candidate finds a model and the workspace's way to it. With its own key a workspace pays only the platform's fee.
// Where the server's provider needs no key, an own key changes nothing. Engines of the server have no other keys.
func (r *Resolver) candidate(ws tenant.ID, id string) (Candidate, error) {
	m, err := r.Models.Find(ws, id)
	if err != nil {
		return Candidate{}, err
	}
	if m.Engines != "" {
		return Candidate{Model: m, Price: m.Price}, nil
	}
	own := r.Models.Keys.Find(ws, m.Provider.Name)
	switch {
	case own == nil, own.BaseURL == "" && !own.Broken && m.Provider.Keyless():
		return Candidate{Model: m, Price: m.Price}, nil
	case own.Broken:
		return Candidate{}, fault.UnknownProvider.New(
			"the workspace's own key for %s cannot be read: set it again", m.Provider.Name,
		)
	default:
		return Candidate{
			Model: m, Own: &upstream.Credentials{Key: own.Key, BaseURL: own.BaseURL}, Price: m.Price.Share(r.OwnKeyFee),
		}, nil
	}
}

// Resolve finds the models of a request: by the id of an own model, else by a catalog id, else by an alias. Aliases
// shadow no id, and the product's own requests have none. buffer backs Order, if it is large enough.
func (r *Resolver) Resolve(q *request.Request, buffer []Candidate) (Plan, error) {
	p := Plan{Order: buffer}
	name, ws := q.Model, q.Caller.Workspace
	fallbacks := q.Fallbacks
	if !r.Models.Has(ws, name) {
		alias, ok := r.Aliases.Find(ws, name)
		if !ok || q.Internal != nil {
			_, err := r.candidate(ws, name)
			return p, err
		}
		p.Alias = alias.Name
		if name = alias.Target; alias.Canary != "" {
			name = r.split(&p, ws, alias)
		}
		if fallbacks == nil {
			fallbacks = alias.Fallbacks
		}
	}
	m, err := r.candidate(ws, name)
	switch {
	case err == nil:
	case p.Alias == "":
		return p, err
	default: // the alias's target may have left the catalog since: the other arm replaces it, or else the fallbacks
		if p.Absent = name; len(p.Priced) > 0 {
			m = p.Priced[0]
		}
	}
	if m.Model != nil {
		if err := cmp.Or(checkKind(q, "model", m), checkCovered(q, m)); err != nil {
			return p, err
		}
		p.Order = append(p.Order, m)
	}
	if err := r.addFallbacks(&p, q, fallbacks); err != nil {
		return p, err
	}
	if len(p.Order) == 0 {
		f := *fault.From(err)
		f.Message = fmt.Sprintf("the alias %q points to %q: %s", p.Alias, name, f.Message)
		return p, &f
	}
	if len(p.Priced) == 0 {
		p.Priced = p.Order
	} else {
		p.Priced = append(p.Priced, p.Order...)
	}
	return p, nil
}

// addFallbacks appends the fallbacks to the order. It refuses those that a caller names and that cannot be called;
// those of an alias are skipped.
func (r *Resolver) addFallbacks(p *Plan, q *request.Request, fallbacks []string) error {
	for i, id := range fallbacks {
		m, err := r.candidate(q.Caller.Workspace, id)
		field := fmt.Sprintf("models[%d]", i)
		switch {
		case err != nil && q.Fallbacks != nil:
			return fault.Invalid(field, "cannot be called: "+err.Error())
		case err != nil: // an alias's fallback may have left the catalog since
		default:
			if err := checkKind(q, field, m); err != nil {
				return err
			}
			if checkCovered(q, m) == nil { // otherwise it is skipped, like one that cannot express the request
				p.Order = append(p.Order, m)
			}
		}
	}
	return nil
}

// split chooses an arm of an alias with a canary at random, and returns its model. The hold must cover the other model
// too. The arm stands, whether or not its model can be called: a gate counts what becomes of the requests of each arm.
func (r *Resolver) split(p *Plan, ws tenant.ID, alias *live.Alias) (drawn string) {
	p.Arm, p.Gate = alias.Pick(r.Random()), alias.Gate
	if other, err := r.candidate(ws, alias.Model(p.Arm.Other())); err == nil {
		p.Priced = append(p.Priced, other)
	}
	return alias.Model(p.Arm)
}

// checkKind refuses a model of another kind than the request.
func checkKind(q *request.Request, field string, c Candidate) error {
	if c.Kind != q.Endpoint.Kind {
		return fault.Invalid(field, fmt.Sprintf("%s is for %s, not for %s", c.ID, c.Kind, q.Endpoint.Kind))
	}
	return nil
}

// checkCovered refuses what needs the workspace's own key at OpenAI and providers with all of its API. Data that is
// stored under the server's key belongs to no workspace, and a tool that the provider runs, or another service tier,
// has a price that the hold does not know.
func checkCovered(q *request.Request, c Candidate) error {
	switch {
	case c.Own != nil:
		return nil
	case c.Provider.Responses && q.Stored != "":
		return unsupported(
			q.Stored,
			"needs a key of the workspace's own at "+c.Provider.Name+": nothing is stored for it under the server's",
		)
	case (c.Provider.Responses || c.Provider.Modern) && q.Priced != "":
		return unsupported(
			q.Priced, "has a price of its own at "+c.Provider.Name+": it needs a key of the workspace's own there",
		)
	default:
		return nil
	}
}

func unsupported(field, reason string) error {
	f := fault.UnsupportedParameter.New("%s %s", field, reason)
	f.Field = field
	return f
}
