package catalog

import (
	"sovereign/internal/live"
	"sovereign/internal/store/module"
)

// Module serves the models in force, with each workspace's aliases.
func Module(models func() live.Models, aliases *live.Aliases) module.Module {
	return module.Module{Name: "models", Routes: NewHandler(models, aliases).Routes()}
}
