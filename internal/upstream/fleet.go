package upstream

import (
	"fmt"

	"sovereign/internal/live"
)

// A Fleet is a catalog with a way to reach each of its providers. It never changes: a new one takes its place.
type Fleet struct {
	Catalog *live.Catalog
	senders map[string]Sender // by the provider's name
	known   map[string]*live.Provider
}

// A Maker makes the sender of a protocol.
type Maker func(*live.Provider) (Sender, error)

// Makers knows the protocols that have no wire of their own; OpenAI's is built in.
type Makers map[live.Protocol]Maker

// NewFleet reaches every provider of a catalog. Those that stand unchanged in the fleet before keep their connections.
func NewFleet(c *live.Catalog, makers Makers, before *Fleet) (*Fleet, error) {
	f := &Fleet{Catalog: c, senders: map[string]Sender{}, known: c.Providers()}
	for name, p := range c.Providers() {
		if before != nil && same(before.known[name], p) {
			f.senders[name] = before.senders[name]
			continue
		}
		maker, ok := makers[p.Protocol]
		if p.Protocol == live.OpenAI {
			maker, ok = func(p *live.Provider) (Sender, error) { return newStandard(p) }, true
		}
		if !ok {
			return nil, fmt.Errorf("provider %s: nothing speaks %s", name, p.Protocol)
		}
		sender, err := maker(p)
		if err != nil {
			return nil, err
		}
		f.senders[name] = sender
	}
	return f, nil
}

func same(a, b *live.Provider) bool {
	return a != nil && a.Protocol == b.Protocol && a.BaseURL == b.BaseURL && a.APIKey.Equal(b.APIKey) &&
		a.CAFile == "" && b.CAFile == "" // what a file says may have changed
}

// Sender reaches a model's provider.
func (f *Fleet) Sender(m *live.Model) Sender { return f.senders[m.Provider.Name] }

// Retire closes the senders that next does not use.
func (f *Fleet) Retire(next *Fleet) {
	for name, sender := range f.senders {
		if next.senders[name] != sender {
			sender.Close()
		}
	}
}
