package providerkey

import (
	"context"
	"slices"
	"strings"

	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/store/api"
)

// A KeyProvider is a provider of the catalog, at which a workspace may have its own key.
type KeyProvider struct {
	Object     string `json:"object" enum:"provider"`
	Name       string `json:"name"`
	Configured bool   `json:"configured" doc:"The server has a key of its own for it"`
	OwnKey     bool   `json:"own_key" doc:"The workspace has one"`
}

// SessionRoutes are the operations for sessions beside those of keys, which the dashboard calls too.
func (h *Handler) SessionRoutes() []api.Route {
	return []api.Route{
		api.Get(
			"/providers", api.SessionMember, h.providers,
			"List the providers at which the workspace may have its own key",
		),
	}
}

func (h *Handler) providers(ctx context.Context, caller tenant.Caller, _ api.None) (api.List[KeyProvider], error) {
	own, err := h.store.List(ctx, caller.Workspace, 1000, 0)
	if err != nil {
		return api.List[KeyProvider]{}, err
	}
	all := []KeyProvider{}
	for name, p := range h.store.catalog().Providers() {
		if p.Protocol == live.Sim { // which has no keys
			continue
		}
		has := slices.ContainsFunc(own, func(k ProviderKey) bool { return k.Provider == name })
		all = append(all, KeyProvider{Object: "provider", Name: name, Configured: p.Configured, OwnKey: has})
	}
	slices.SortFunc(all, func(a, b KeyProvider) int { return strings.Compare(a.Name, b.Name) })
	return api.List[KeyProvider]{Object: "list", Data: all}, nil
}
