package live

import (
	"slices"
	"strings"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
)

// Models are the models that workspaces can call by an id: the catalog's, and their own. Everything that asks what a
// workspace can call asks here.
type Models struct {
	Catalog *Catalog
	Own     *OwnModels
	Keys    *Keyring // the workspaces' own keys of providers
}

// Find returns the model that a workspace calls by an id, or an error that says what does not exist. A provider that
// the operator has not configured serves only workspaces with a key of their own.
func (m Models) Find(ws tenant.ID, id string) (*Model, error) {
	if IsOwn(id) {
		if own, ok := m.Own.Find(ws, id); ok {
			return own, nil
		}
		return nil, unknownOwn(id)
	}
	found, err := m.Catalog.Find(id)
	prefix, _, _ := strings.Cut(id, "/")
	p := m.Catalog.providers[prefix]
	if found != nil {
		p = found.Provider
	}
	if p != nil && !m.callable(ws, p) {
		return nil, fault.UnknownProvider.New(
			"no key for the provider %q is configured, and the workspace has none of its own", p.Name,
		)
	}
	return found, err
}

// callable reports whether a workspace can call a provider.
func (m Models) callable(ws tenant.ID, p *Provider) bool {
	return p.Configured || m.Keys.Find(ws, p.Name) != nil
}

// Has reports whether an id is a model: of the catalog, callable or not, or the workspace's own. Aliases never shadow
// one.
func (m Models) Has(ws tenant.ID, id string) bool {
	if IsOwn(id) {
		_, ok := m.Own.Find(ws, id)
		return ok
	}
	return m.Catalog.Has(id)
}

// Of returns the models that a workspace can call: the catalog's and then its own, each sorted by id.
func (m Models) Of(ws tenant.ID) (all []*Model) {
	for _, model := range m.Catalog.Models() {
		if m.callable(ws, model.Provider) {
			all = append(all, model)
		}
	}
	return slices.Concat(all, m.Own.Of(ws))
}

// HasFree reports whether a model may cost a workspace nothing. fee is whether models that are called with a
// workspace's own key cost a fee.
func (m Models) HasFree(ws tenant.ID, fee bool) bool {
	if m.Catalog.hasFree || m.Own.HasFree(ws) {
		return true
	}
	for provider := range m.Catalog.providers {
		if !fee && m.Keys.Find(ws, provider) != nil {
			return true
		}
	}
	return false
}

// unknownOwn refuses the id of an own model that the workspace does not have.
func unknownOwn(id string) error {
	if IsDedicated(id) {
		return fault.DedicatedNotFound.New("no dedicated endpoint has that routing key in this workspace")
	}
	return fault.ModelNotFound.New("the trained model %q does not exist in this workspace, or cannot be served now", id)
}
