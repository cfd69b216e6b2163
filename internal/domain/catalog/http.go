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
}

// NewHandler reads the catalog in force, and the workspaces' own provider keys.
func NewHandler(current func() *live.Catalog, keys *live.Keyring) *Handler {
	return &Handler{current: current, keys: keys}
}

// Routes are the operations for keys.
func (h *Handler) Routes() []api.Route {
	return []api.Route{
		api.Get("/models", api.Reader, h.list, "List the models that can be called", api.Inference),
		api.Get("/models/{id...}", api.Reader, h.get, "Read one model; its id may hold slashes", api.Inference),
	}
}

// A ModelEntry is a model as OpenAI shows one, with what it costs and holds beside.
type ModelEntry struct {
	ID              string     `json:"id"`
	Object          string     `json:"object" enum:"model"`
	Created         int64      `json:"created" doc:"Unix seconds"`
	OwnedBy         string     `json:"owned_by" doc:"The provider"`
	Kind            live.Kind  `json:"kind"`
	ContextWindow   int64      `json:"context_window"`
	MaxOutputTokens int64      `json:"max_output_tokens"`
	Price           live.Price `json:"price"`
	Simulated       bool       `json:"simulated" doc:"An offline stand-in: its answers are made up"`
}

// A ModelList is every model.
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
	return all, nil
}

type byID struct {
	ID string `path:"id"`
}

func (h *Handler) get(_ context.Context, caller tenant.Caller, in byID) (ModelEntry, error) {
	m, err := h.current().Serves(in.ID, h.keys.Of(caller.Workspace))
	if err != nil {
		return ModelEntry{}, err
	}
	return show(m), nil
}
