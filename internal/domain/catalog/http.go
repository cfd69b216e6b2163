package catalog

import (
	"context"

	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/store/api"
)

// A Handler serves the list of models.
type Handler struct {
	models  func() live.Models // in force
	aliases *live.Aliases
}

// NewHandler reads the models in force, and the workspaces' aliases.
func NewHandler(models func() live.Models, aliases *live.Aliases) *Handler {
	return &Handler{models: models, aliases: aliases}
}

// Routes are the operations for keys.
func (h *Handler) Routes() []api.Route {
	return []api.Route{
		api.Get(
			"/models", api.Reader, h.list, "List the models that can be called, and the workspace's aliases",
			api.Inference,
		),
		api.Get(
			"/models/{id...}", api.Reader, h.get, "Read one model or alias; its id may hold slashes", api.Inference,
		),
	}
}

// A ModelEntry is a model as OpenAI shows one, with what it costs and holds beside. An alias is one too.
type ModelEntry struct {
	ID              string     `json:"id"`
	Object          string     `json:"object" enum:"model"`
	Created         int64      `json:"created" doc:"Unix seconds"`
	OwnedBy         string     `json:"owned_by" doc:"The provider; of an alias, a trained model and a dedicated endpoint the workspace"`
	Kind            live.Kind  `json:"kind"`
	ContextWindow   int64      `json:"context_window"`
	MaxOutputTokens int64      `json:"max_output_tokens"`
	Price           live.Price `json:"price"`
	Simulated       bool       `json:"simulated" doc:"An offline stand-in: its answers are made up"`
	TargetModel     string     `json:"target_model,omitempty" doc:"The model that answers to an alias"`
}

// A ModelList is every model of the catalog, then those of the workspace alone, then every alias, each sorted by id.
type ModelList struct {
	Object string       `json:"object" enum:"list"`
	Data   []ModelEntry `json:"data" nullable:"false"`
}

func show(ws tenant.ID, m *live.Model) ModelEntry {
	entry := ModelEntry{
		ID: m.ID, Object: "model", Created: m.Created.Std().Unix(), OwnedBy: m.Provider.Name, Kind: m.Kind,
		ContextWindow: m.ContextWindow, MaxOutputTokens: m.MaxOutput, Price: m.Price,
		Simulated: m.Provider.Protocol == live.Sim,
	}
	if live.IsOwn(m.ID) {
		entry.OwnedBy = string(ws)
	}
	return entry
}

func (h *Handler) list(_ context.Context, caller tenant.Caller, _ api.None) (ModelList, error) {
	all := ModelList{Object: "list", Data: []ModelEntry{}}
	models := h.models()
	for _, m := range models.Of(caller.Workspace) {
		all.Data = append(all.Data, show(caller.Workspace, m))
	}
	for _, alias := range h.aliases.Of(caller.Workspace) {
		if entry, err := showAlias(models, caller.Workspace, alias); err == nil &&
			!models.Has(caller.Workspace, alias.Name) {
			all.Data = append(all.Data, entry)
		}
	}
	return all, nil
}

// showAlias shows an alias by the figures of its target or, where that cannot be called any more, of its first fallback
// that can be.
func showAlias(models live.Models, ws tenant.ID, alias *live.Alias) (entry ModelEntry, err error) {
	m, err := models.Find(ws, alias.Target)
	for i := 0; err != nil && i < len(alias.Fallbacks); i++ {
		if next, failed := models.Find(ws, alias.Fallbacks[i]); failed == nil {
			m, err = next, nil
		}
	}
	if err != nil {
		return entry, err
	}
	entry = show(ws, m)
	entry.ID, entry.Created, entry.OwnedBy, entry.TargetModel = alias.Name, alias.Created.Std().Unix(), string(ws), m.ID
	return entry, nil
}

type byID struct {
	ID string `path:"id"`
}

func (h *Handler) get(_ context.Context, caller tenant.Caller, in byID) (ModelEntry, error) {
	models := h.models()
	if alias, ok := h.aliases.Find(caller.Workspace, in.ID); ok && !models.Has(caller.Workspace, in.ID) {
		return showAlias(models, caller.Workspace, alias)
	}
	m, err := models.Find(caller.Workspace, in.ID)
	if err != nil {
		return ModelEntry{}, err
	}
	return show(caller.Workspace, m), nil
}
