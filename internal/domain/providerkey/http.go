package providerkey

import (
	"context"

	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
)

// A Handler serves the operations of keys on their workspace's provider keys, and of the operator on any.
type Handler struct {
	store *Store
	find  func(ctx context.Context, workspace string) (tenant.ID, error)
}

// NewHandler manages the keys of s. find returns the workspace of an id or a name.
func NewHandler(s *Store, find func(context.Context, string) (tenant.ID, error)) *Handler {
	return &Handler{store: s, find: find}
}

// Routes are the operations, for keys and for the server's own socket.
func (h *Handler) Routes() []api.Route {
	return []api.Route{
		api.Put("/provider-keys", api.Admin, h.put, "Set or rotate the workspace's own key at a provider"),
		api.Get("/provider-keys", api.Reader, h.list, "List the providers for which the workspace has keys of its own"),
		api.Delete("/provider-keys/{provider}", api.Admin, h.delete, "Delete the workspace's own key at a provider"),
		api.Put("/provider-keys", api.Operator, h.putFor, "Set or rotate a workspace's own key at a provider"),
		api.Get("/provider-keys", api.Operator, h.listFor, "List a workspace's own keys at providers"),
		api.Delete(
			"/provider-keys/{provider}", api.Operator, h.deleteFor, "Delete a workspace's own key at a provider",
		),
	}
}

// A putProviderKey is a key to keep.
type putProviderKey struct {
	Provider string      `json:"provider" doc:"A provider of the catalog, such as anthropic"`
	APIKey   secret.Text `json:"api_key" doc:"The key; it is never shown again"`
	BaseURL  string      `json:"base_url,omitempty" doc:"Where to send it, if not to the provider's own URL: a public http or https URL"`
}

func (h *Handler) put(ctx context.Context, caller tenant.Caller, in putProviderKey) (ProviderKey, error) {
	return h.store.Put(ctx, caller.Workspace, caller.Actor(), New(in))
}

func (h *Handler) list(ctx context.Context, caller tenant.Caller, in api.Page) (api.List[ProviderKey], error) {
	all, err := h.store.List(ctx, caller.Workspace, in.More(), in.Offset)
	return api.NewList(in, all), err
}

type atProvider struct {
	Provider string `path:"provider"`
}

func (h *Handler) delete(ctx context.Context, caller tenant.Caller, in atProvider) (api.Deleted, error) {
	err := h.store.Delete(ctx, caller.Workspace, caller.Actor(), in.Provider)
	return api.Deleted{ID: in.Provider, Object: object, Deleted: err == nil}, err
}

// A putFor is a key to keep for a workspace.
type putFor struct {
	Workspace string      `json:"workspace"`
	Provider  string      `json:"provider"`
	APIKey    secret.Text `json:"api_key"`
	BaseURL   string      `json:"base_url,omitempty"`
}

func (h *Handler) putFor(ctx context.Context, caller tenant.Caller, in putFor) (ProviderKey, error) {
	ws, err := h.find(ctx, in.Workspace)
	if err != nil {
		return ProviderKey{}, err
	}
	return h.store.Put(ctx, ws, caller.Actor(), New{Provider: in.Provider, APIKey: in.APIKey, BaseURL: in.BaseURL})
}

type keysOf struct {
	Workspace string `query:"workspace" required:"true" doc:"The workspace's id or name"`
	api.Page
}

func (h *Handler) listFor(ctx context.Context, _ tenant.Caller, in keysOf) (api.List[ProviderKey], error) {
	ws, err := h.find(ctx, in.Workspace)
	if err != nil {
		return api.List[ProviderKey]{}, err
	}
	all, err := h.store.List(ctx, ws, in.More(), in.Offset)
	return api.NewList(in.Page, all), err
}

type atProviderOf struct {
	Provider  string `path:"provider"`
	Workspace string `query:"workspace" required:"true"`
}

func (h *Handler) deleteFor(ctx context.Context, caller tenant.Caller, in atProviderOf) (api.Deleted, error) {
	ws, err := h.find(ctx, in.Workspace)
	if err != nil {
		return api.Deleted{}, err
	}
	err = h.store.Delete(ctx, ws, caller.Actor(), in.Provider)
	return api.Deleted{ID: in.Provider, Object: object, Deleted: err == nil}, err
}
