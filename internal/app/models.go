package app

import (
	"sync/atomic"
	"time"

	"sovereign/internal/base/id"
	"sovereign/internal/domain/catalog"
	"sovereign/internal/live"
	"sovereign/internal/net/netguard"
	"sovereign/internal/wire/anthropic"
	"sovereign/internal/wire/cohere"
	"sovereign/internal/wire/gemini"
	"sovereign/internal/wire/responses"
	"sovereign/internal/wire/sim"
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
	fleet, err := upstream.NewFleet(next, m.protocols(), before)
	if err != nil {
		return err
	}
	m.fleet.Store(fleet)
	if before != nil {
		before.Retire(fleet)
	}
	return nil
}

// protocols are the wires that are spoken with providers.
func (m *models) protocols() upstream.Protocols {
	return upstream.Protocols{
		Makers: map[live.Protocol]upstream.Maker{
			live.Sim: func(*live.Provider) (upstream.Sender, error) { return sim.New(), nil },
		},
		Dialects: map[live.Protocol]upstream.Dialect{
			live.Anthropic: anthropic.Dialect{Now: time.Now}, live.Gemini: gemini.Dialect{Now: time.Now}, live.Cohere: cohere.Dialect{},
		},
		Bridge:  responses.Bridge{Now: time.Now, New: id.New},
		Guarded: m.guard.Transport(),
	}
}

func (m *models) catalog() *live.Catalog { return m.fleet.Load().Catalog }
