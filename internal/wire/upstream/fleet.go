package upstream

import (
	"fmt"
	"net/http"

	"sovereign/internal/live"
)

// A Fleet is a catalog with a way to reach each of its providers. It never changes: a new one takes its place.
type Fleet struct {
	Catalog *live.Catalog
	senders map[string]Sender // by the provider's name
	known   map[string]*live.Provider
}

// A Maker makes the sender of a protocol that has no wire.
type Maker func(*live.Provider) (Sender, error)

// Tongues are what a fleet can speak beside OpenAI's wire, which is built in.
type Protocols struct {
	Makers   map[live.Protocol]Maker   // protocols without a wire
	Dialects map[live.Protocol]Dialect // protocols that are translated
	Bridge   Dialect                   // the Responses API, spoken over chat
	Guarded  http.RoundTripper         // the one way to a URL that a customer has set
}

// NewFleet reaches every provider of a catalog. Those that stand unchanged in the fleet before keep their connections.
func NewFleet(c *live.Catalog, tongues Protocols, before *Fleet) (*Fleet, error) {
	f := &Fleet{Catalog: c, senders: map[string]Sender{}, known: c.Providers()}
	for name, p := range c.Providers() {
		if before != nil && same(before.known[name], p) {
			f.senders[name] = before.senders[name]
			continue
		}
		sender, err := tongues.reach(p)
		if err != nil {
			return nil, err
		}
		f.senders[name] = sender
	}
	return f, nil
}

// reach is a sender that takes every request of our endpoints' to a provider, in the wire that it speaks.
func (t Protocols) reach(p *live.Provider) (sender Sender, err error) {
	dialect, translate := t.Dialects[p.Protocol]
	maker, made := t.Makers[p.Protocol]
	switch {
	case made:
		sender, err = maker(p)
	case translate:
		if sender, err = newDirect(p, t.Guarded); err == nil {
			sender = Translated(dialect, sender, func(*Request) bool { return true })
		}
	case p.Protocol == live.OpenAI:
		sender, err = newDirect(p, t.Guarded)
	default:
		err = fmt.Errorf("provider %s: nothing speaks %s", p.Name, p.Protocol)
	}
	if err != nil || p.Responses || t.Bridge == nil {
		return sender, err
	}
	return Translated(t.Bridge, sender, func(r *Request) bool { return r.Path == ResponsesPath }), nil
}

func same(a, b *live.Provider) bool {
	return a != nil && a.Protocol == b.Protocol && a.BaseURL == b.BaseURL && a.APIKey.Equal(b.APIKey) && a.Responses == b.Responses && a.Transport == b.Transport &&
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
