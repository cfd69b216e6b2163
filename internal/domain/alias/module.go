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
	Catalog func() *live.Catalog // the one in force
	Keys    *live.Keyring
}

// Module serves aliases, and publishes them to the data plane.
func Module(d Deps) module.Module {
	return module.Module{
		Name:       "aliases",
		Routes:     NewHandler(d.Store, d.Catalog, d.Keys).Routes(),
		Publishers: NewPublisher(d.DB, d.Aliases).Sources(),
	}
}
