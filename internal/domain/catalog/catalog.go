package catalog

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"sovereign/internal/base/clock"
	"sovereign/internal/live"
	"sovereign/internal/wire/protocol"
	"sovereign/internal/wire/sim"
)

var (
	providerName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	modelID      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,127}$`)
)

// simProvider is the name of the built-in simulated provider.
const simProvider = "sim"

// since is when models count as created: clients want a date, and neither a configuration nor a price list has one.
const since clock.Time = 1_767_225_600_000_000 // 2026-01-01

// Build is the catalog of a configuration, on top of what is built in. What breaks a rule is an *ErrLine.
func Build(providers Providers, models Models) (*live.Catalog, error) {
	known, err := allProviders(providers)
	if err != nil {
		return nil, err
	}
	rows := append(sim.Models(known[simProvider]), builtinModels(known)...)
	seen := map[string]bool{}
	for i := range models {
		m := models[i]
		err := m.complete(known)
		if seen[m.ID] {
			err = errors.New("id is given twice")
		}
		if err != nil {
			return nil, &ErrLine{Line: m.line, Err: fmt.Errorf("model %q: %w", m.ID, err)}
		}
		seen[m.ID] = true
		rows = append(rows, &m.Model) // the later of two rows of one id counts: the configuration's
	}
	all := make([]*live.Provider, 0, len(known))
	for _, p := range known {
		all = append(all, p)
	}
	return live.NewCatalog(all, rows), nil
}

// allProviders returns every provider: the simulated one, those of the configuration, and those that are built in.
func allProviders(providers Providers) (map[string]*live.Provider, error) {
	known := map[string]*live.Provider{simProvider: {Name: simProvider, Protocol: live.Sim, Configured: true}}
	for i := range providers {
		p := providers[i]
		err := p.complete(builtin().providers[p.Name])
		if err == nil && known[p.Name] != nil {
			err = errors.New("name is taken")
		}
		if err == nil {
			p.APIKey, err = p.reveal()
		}
		if err != nil {
			return nil, &ErrLine{Line: p.line, Err: fmt.Errorf("provider %q: %w", p.Name, err)}
		}
		// A vendor needs a key. Without one, the entry serves workspaces that have their own.
		vendor := builtin().providers[p.Name]
		p.Configured = vendor == nil || vendor.BaseURL != p.BaseURL || !p.APIKey.Empty()
		known[p.Name] = &p.Provider
	}
	for name, p := range builtin().providers {
		if known[name] == nil {
			one := p.Provider
			known[name] = &one
		}
	}
	return known, nil
}

// builtinModels returns the built-in models. A provider that the configuration gives another kind has none of them:
// only its name is the same.
func builtinModels(known map[string]*live.Provider) []*live.Model {
	var rows []*live.Model
	for _, m := range builtin().models {
		if p := known[m.provider]; p.Protocol == builtin().providers[m.provider].Protocol {
			one := m.Model
			one.Provider = p
			rows = append(rows, &one)
		}
	}
	return rows
}

// complete fills in the fields of the built-in provider of that name, if there is one of the same kind, and then checks
// the entry.
func (p *Provider) complete(known *Provider) error {
	if known != nil && (p.Protocol == "" || p.Protocol == known.Protocol) {
		p.Protocol, p.Responses, p.Modern = known.Protocol, known.Responses, known.Modern
		if p.BaseURL == "" {
			p.BaseURL = known.BaseURL
		}
	}
	if p.BaseURL == "" {
		row, _ := protocol.Of(p.Protocol)
		p.BaseURL = row.BaseURL
	}
	for _, option := range []struct{ to, given *bool }{{&p.Responses, p.responses}, {&p.Modern, p.newLimit}} {
		if option.given != nil {
			*option.to = *option.given
		}
	}
	return p.check()
}

func (p *Provider) check() error {
	row, known := protocol.Of(p.Protocol)
	switch {
	case !providerName.MatchString(p.Name):
		return errors.New("name must be letters, digits, dots, dashes and underscores")
	case p.Name == simProvider:
		return errors.New("name is kept for the simulated models")
	case live.Reserved(p.Name+"/") != "":
		return errors.New("name is kept for models and endpoints of workspaces")
	case p.Protocol == "":
		return fmt.Errorf("it is not built in, so it needs a kind: kind must be one of %v", protocol.Names())
	case !known:
		return fmt.Errorf("kind must be one of %v", protocol.Names())
	case p.Responses && !row.Variants:
		return errors.New("responses must be bridged: only providers of kind openai have that API themselves")
	case p.Modern && !row.Variants:
		return errors.New("max_tokens_field is for providers of kind openai")
	}
	if !row.Local {
		at, err := url.Parse(p.BaseURL)
		if err != nil || (at.Scheme != "http" && at.Scheme != "https") || at.Host == "" ||
			strings.ContainsAny(p.BaseURL, "?#") || at.User != nil {
			return errors.New("base_url must be a URL such as https://api.example.com/v1")
		}
		p.BaseURL = strings.TrimSuffix(p.BaseURL, "/")
	}
	return nil
}

// complete checks a row, and then fills in what follows from its other fields.
func (m *Model) complete(known map[string]*live.Provider) error {
	if prefix, _, ok := strings.Cut(m.ID, "/"); m.provider == "" && ok {
		m.provider = prefix
	}
	p := known[m.provider]
	var row protocol.Row
	if p != nil {
		row, _ = protocol.Of(p.Protocol)
	}
	switch {
	case !modelID.MatchString(m.ID):
		return errors.New("id must be letters, digits and . _ : @ / -")
	case live.Reserved(m.ID) != "":
		return fmt.Errorf("id must not begin with %s", live.Reserved(m.ID))
	case p == nil && m.provider == "":
		return errors.New("provider is missing: only an id such as openai/gpt-4o says where it is")
	case p == nil:
		return fmt.Errorf("provider %q is not configured", m.provider)
	case !slices.Contains(protocol.Kinds(), m.Kind):
		return fmt.Errorf("kind must be one of %v", protocol.Kinds())
	case !slices.Contains(row.Kinds, m.Kind):
		return fmt.Errorf("kind must be one of %v: a provider of kind %s has no other models", row.Kinds, p.Protocol)
	case !m.priced:
		return errors.New("price is missing: the model is not built in")
	case m.ContextWindow == 0:
		return errors.New("context_window is missing")
	case m.Kind == live.Chat && m.MaxOutput == 0:
		return errors.New("max_output_tokens is missing")
	case m.MaxOutput > m.ContextWindow:
		return errors.New("max_output_tokens is more than context_window")
	case strings.HasPrefix(m.ID, simProvider+"/") && p.Protocol != live.Sim:
		return errors.New("id must not look like a simulated model's")
	case m.Behaviour != nil && p.Protocol != live.Sim:
		return errors.New("sim is for models of a simulated provider")
	}
	m.Provider, m.Created = p, since
	if m.Upstream == "" {
		m.Upstream = strings.TrimPrefix(m.ID, m.provider+"/")
	}
	return nil
}
