package alias

import (
	"sovereign/internal/live"
	"sovereign/internal/store/db"
	"sovereign/internal/store/module"
)

// Deps is what the module needs of the server.
type Deps struct {
	DB      *db.DB
	Store   *Store // on DB
	Aliases *live.Aliases
	Models  func() live.Models // in force
}

// Module serves aliases, and publishes them to the data plane.
func Module(d Deps) module.Module {
	return module.Module{
		Name:       "aliases",
		Routes:     NewHandler(d.Store, d.Models).Routes(),
		Publishers: NewPublisher(d.DB, d.Aliases).Sources(),
	}
}
