package catalog

import (
	"sovereign/internal/live"
	"sovereign/internal/store/module"
)

// Module serves the catalog in force. keys are the workspaces' own provider keys.
func Module(current func() *live.Catalog, keys *live.Keyring) module.Module {
	return module.Module{Name: "models", Routes: NewHandler(current, keys).Routes()}
}
