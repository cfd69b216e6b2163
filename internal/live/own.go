package live

import (
	"maps"
	"strings"

	"sovereign/internal/base/tenant"
)

// The prefixes of the ids of own models. No id of the catalog begins with one.
const (
	TrainedPrefix   = "ft/"        // of trained models
	DedicatedPrefix = "dedicated/" // of dedicated endpoints
)

// Engines is the provider of own models: engines that the server runs. Each model names its group of them.
var Engines = &Provider{Name: "engine", Protocol: Engine, Configured: true}

// OwnModels holds the models that are a workspace's alone: trained models (ft/…) and dedicated endpoints (dedicated/…).
// Engines of the operator serve them. A dedicated endpoint is paid by the hour: its model has no price. Reading takes
// no lock.
type OwnModels struct{ names[*Model] }

// NewOwnModels returns an empty set.
func NewOwnModels() *OwnModels {
	return &OwnModels{newNames(func(m *Model) string { return m.ID })}
}

// IsOwn reports whether an id is that of an own model, of any workspace.
func IsOwn(id string) bool { return IsDedicated(id) || strings.HasPrefix(id, TrainedPrefix) }

// IsDedicated reports whether an id is that of a dedicated endpoint, of any workspace.
func IsDedicated(id string) bool { return strings.HasPrefix(id, DedicatedPrefix) }

// HasFree reports whether an own model of a workspace costs nothing.
func (o *OwnModels) HasFree(ws tenant.ID) bool {
	own, _ := o.all.get(ws)
	for _, m := range own {
		if m.Price.Worst(1, 1, 1) == 0 {
			return true
		}
	}
	return false
}

// Replace replaces the models of all workspaces whose ids begin with a prefix. Others stay.
func (o *OwnModels) Replace(prefix string, all map[tenant.ID][]*Model) {
	next := maps.Clone(all)
	if next == nil {
		next = map[tenant.ID][]*Model{}
	}
	for _, ws := range o.all.keys() {
		next[ws] = all[ws]
	}
	for ws, models := range next {
		o.change(ws, func(own map[string]*Model) {
			maps.DeleteFunc(own, func(id string, _ *Model) bool { return strings.HasPrefix(id, prefix) })
			for _, m := range models {
				own[m.ID] = m
			}
		})
	}
}
