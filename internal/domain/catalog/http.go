package catalog

import (
	"context"

	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/store/api"
)

// A Handler serves the list of models.
type Handler struct {
	current func() *live.Catalog
	keys    *live.Keyring
	aliases *live.Aliases
}

// NewHandler reads the catalog in force, and the workspaces' own provider keys and aliases.
func NewHandler(current func() *live.Catalog, keys *live.Keyring, aliases *live.Aliases) *Handler {
	return &Handler{current: current, keys: keys, aliases: aliases}
}

// Routes are the operations for keys.
func (h *Handler) Routes() []api.Route {
	return []api.Route{
		api.Get("/models", api.Reader, h.list, "List the models that can be called, and the workspace's aliases", api.Inference),
		api.Get("/models/{id...}", api.Reader, h.get, "Read one model or alias; its id may hold slashes", api.Inference),
	}
}

// A ModelEntry is a model as OpenAI shows one, with what it costs and holds beside. An alias is one too.
type ModelEntry struct {
	ID              string     `json:"id"`
	Object          string     `json:"object" enum:"model"`
	Created         int64      `json:"created" doc:"Unix seconds"`
	OwnedBy         string     `json:"owned_by" doc:"The provider; of an alias the workspace"`
	Kind            live.Kind  `json:"kind"`
	ContextWindow   int64      `json:"context_window"`
	MaxOutputTokens int64      `json:"max_output_tokens"`
	Price           live.Price `json:"price"`
	Simulated       bool       `json:"simulated" doc:"An offline stand-in: its answers are made up"`
	TargetModel     string     `json:"target_model,omitempty" doc:"The model that answers to an alias"`
}

// A ModelList is every model, and then every alias, each sorted by id.
type ModelList struct {
	Object string       `json:"object" enum:"list"`
	Data   []ModelEntry `json:"data" nullable:"false"`
}

func show(m *live.Model) ModelEntry {
	return ModelEntry{
		ID: m.ID, Object: "model", Created: m.Created.Std().Unix(), OwnedBy: m.Provider.Name, Kind: m.Kind,
		ContextWindow: m.ContextWindow, MaxOutputTokens: m.MaxOutput, Price: m.Price, Simulated: m.Provider.Protocol == live.Sim,
	}
}

func (h *Handler) list(_ context.Context, caller tenant.Caller, _ api.None) (ModelList, error) {
	all := ModelList{Object: "list", Data: []ModelEntry{}}
	own := h.keys.Of(caller.Workspace)
	for _, m := range h.current().Models() {
		if m.Provider.Configured || own(m.Provider.Name) {
			all.Data = append(all.Data, show(m))
		}
	}
	for _, alias := range h.aliases.Of(caller.Workspace) {
		if entry, err := h.showAlias(caller.Workspace, alias); err == nil && !h.current().Has(alias.Name) {
			all.Data = append(all.Data, entry)
		}
	}
	return all, nil
}

// showAlias shows an alias by the figures of its target or, where that cannot be called any more, of its first fallback
// that can be.
func (h *Handler) showAlias(ws tenant.ID, alias *live.Alias) (entry ModelEntry, err error) {
	own := h.keys.Of(ws)
	m, err := h.current().Serves(alias.Target, own)
	for i := 0; err != nil && i < len(alias.Fallbacks); i++ {
		if next, failed := h.current().Serves(alias.Fallbacks[i], own); failed == nil {
			m, err = next, nil
		}
	}
	if err != nil {
		return entry, err
	}
	entry = show(m)
	entry.ID, entry.Created, entry.OwnedBy, entry.TargetModel = alias.Name, alias.Created.Std().Unix(), string(ws), m.ID
	return entry, nil
}

type byID struct {
	ID string `path:"id"`
}

func (h *Handler) get(_ context.Context, caller tenant.Caller, in byID) (ModelEntry, error) {
	if alias, ok := h.aliases.Find(caller.Workspace, in.ID); ok && !h.current().Has(in.ID) {
		return h.showAlias(caller.Workspace, alias)
	}
	m, err := h.current().Serves(in.ID, h.keys.Of(caller.Workspace))
	if err != nil {
		return ModelEntry{}, err
	}
	return show(m), nil
}
