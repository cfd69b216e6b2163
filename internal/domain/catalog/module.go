package catalog

import (
	"sovereign/internal/live"
	"sovereign/internal/store/module"
)

// Module serves the catalog in force, with each workspace's aliases. keys are the workspaces' own provider keys.
func Module(current func() *live.Catalog, keys *live.Keyring, aliases *live.Aliases) module.Module {
	return module.Module{Name: "models", Routes: NewHandler(current, keys, aliases).Routes()}
}
