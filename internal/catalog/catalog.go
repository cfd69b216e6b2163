package catalog

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"sovereign/internal/clock"
	"sovereign/internal/live"
	"sovereign/internal/sim"
)

var (
	providerName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	modelID      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,127}$`)
)

// simProvider is the name of the built-in offline stand-in.
const simProvider = "sim"

// since is when models of the configuration count as created: clients want a date, and a configuration has none.
const since clock.Time = 1_767_225_600_000_000 // 2026-01-01

// Build is the catalog of a configuration. What breaks a rule is an *ErrLine.
func Build(providers Providers, models Models) (*live.Catalog, error) {
	offline := &live.Provider{Name: simProvider, Protocol: live.Sim}
	known := map[string]*live.Provider{simProvider: offline}
	all := []*live.Provider{offline}
	for i := range providers {
		p := &providers[i]
		if err := p.check(known); err != nil {
			return nil, &ErrLine{Line: p.line, Err: fmt.Errorf("provider %q: %w", p.Name, err)}
		}
		one := p.Provider
		var err error
		if one.APIKey, err = p.reveal(); err != nil {
			return nil, &ErrLine{Line: p.line, Err: fmt.Errorf("provider %q: %w", p.Name, err)}
		}
		known[p.Name] = &one
		all = append(all, &one)
	}
	rows := sim.Models(offline)
	seen := map[string]bool{}
	for i := range models {
		m := &models[i]
		if err := m.complete(known, seen); err != nil {
			return nil, &ErrLine{Line: m.line, Err: fmt.Errorf("model %q: %w", m.ID, err)}
		}
		seen[m.ID], m.Created = true, since
		rows = append(rows, &m.Model) // the later of two rows of one id counts: the configuration's
	}
	return live.NewCatalog(all, rows), nil
}

func (p *Provider) check(known map[string]*live.Provider) error {
	switch {
	case !providerName.MatchString(p.Name):
		return errors.New("name must be letters, digits, dots, dashes and underscores")
	case p.Name == simProvider:
		return errors.New("name is kept for the simulated models")
	case known[p.Name] != nil:
		return errors.New("name is taken")
	case p.Name+"/" == live.DedicatedPrefix:
		return errors.New("name is kept for dedicated endpoints")
	case !oneOf(p.Protocol, protocols):
		return fmt.Errorf("kind must be one of %v", protocols)
	}
	if p.Protocol == live.OpenAI {
		at, err := url.Parse(p.BaseURL)
		if err != nil || (at.Scheme != "http" && at.Scheme != "https") || at.Host == "" || strings.ContainsAny(p.BaseURL, "?#") || at.User != nil {
			return errors.New("base_url must be a URL such as https://api.example.com/v1")
		}
		p.BaseURL = strings.TrimSuffix(p.BaseURL, "/")
	}
	return nil
}

func (m *Model) complete(known map[string]*live.Provider, seen map[string]bool) error {
	switch {
	case !modelID.MatchString(m.ID):
		return errors.New("id must be letters, digits and . _ : @ / -")
	case seen[m.ID]:
		return errors.New("id is given twice")
	case strings.HasPrefix(m.ID, live.DedicatedPrefix):
		return fmt.Errorf("id must not begin with %s", live.DedicatedPrefix)
	case known[m.provider] == nil:
		return fmt.Errorf("provider %q is not configured", m.provider)
	case !oneOf(m.Kind, kinds):
		return fmt.Errorf("kind must be one of %v", kinds)
	case !m.priced:
		return errors.New("price is missing")
	case m.ContextWindow == 0:
		return errors.New("context_window is missing")
	case m.Kind == live.Chat && m.MaxOutput == 0:
		return errors.New("max_output_tokens is missing")
	case m.MaxOutput > m.ContextWindow:
		return errors.New("max_output_tokens is more than context_window")
	case strings.HasPrefix(m.ID, simProvider+"/") && known[m.provider].Protocol != live.Sim:
		return errors.New("id must not look like a simulated model's")
	case m.Behaviour != nil && known[m.provider].Protocol != live.Sim:
		return errors.New("sim is for models of a simulated provider")
	}
	m.Provider = known[m.provider]
	if m.Upstream == "" {
		m.Upstream = strings.TrimPrefix(m.ID, m.provider+"/")
	}
	return nil
}
