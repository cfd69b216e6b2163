package app

import (
	"sync/atomic"

	"sovereign/internal/domain/catalog"
	"sovereign/internal/live"
	"sovereign/internal/net/netguard"
	"sovereign/internal/wire/protocol"
	"sovereign/internal/wire/upstream"
)

// models is the catalog in force, and the connections to its providers.
type models struct {
	fleet atomic.Pointer[upstream.Fleet]
	guard *netguard.Guard // dials the URLs that customers set
}

// load puts the models of a configuration in force. When it fails, what was in force stays.
func (m *models) load(c *Config) error {
	next, err := catalog.Build(c.Providers, c.Models)
	if err != nil {
		return err
	}
	before := m.fleet.Load()
	fleet, err := upstream.NewFleet(next, protocol.Upstream(m.guard.Transport()), before)
	if err != nil {
		return err
	}
	m.fleet.Store(fleet)
	if before != nil {
		before.Retire(fleet)
	}
	return nil
}

func (m *models) catalog() *live.Catalog { return m.fleet.Load().Catalog }
