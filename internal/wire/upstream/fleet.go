package upstream

import (
	"fmt"
	"net/http"

	"sovereign/internal/live"
)

// Fleet is a catalog with a sender for each of its providers. It is immutable: a reload replaces it.
type Fleet struct {
	Catalog   *live.Catalog
	senders   map[string]Sender // by provider name
	providers map[string]*live.Provider
}

// SenderFactory creates the sender of a protocol that does not use HTTP, such as the simulated provider.
type SenderFactory func(*live.Provider) (Sender, error)

// Protocols are the protocols that a fleet supports beside OpenAI's, which is built in.
type Protocols struct {
	Factories map[live.Protocol]SenderFactory // protocols without HTTP
	Dialects  map[live.Protocol]Dialect       // protocols that are translated to and from OpenAI's
	Responses Dialect                         // translates the Responses API to chat for providers that lack it
	Guarded   http.RoundTripper               // transport for base URLs that a workspace has set
}

// NewFleet creates the senders of a catalog. Providers that are unchanged since the fleet before keep their sender and
// its connections.
func NewFleet(c *live.Catalog, protocols Protocols, before *Fleet) (*Fleet, error) {
	f := &Fleet{Catalog: c, senders: map[string]Sender{}, providers: c.Providers()}
	for name, p := range c.Providers() {
		if before != nil && unchanged(before.providers[name], p) {
			f.senders[name] = before.senders[name]
			continue
		}
		sender, err := protocols.NewSender(p)
		if err != nil {
			return nil, err
		}
		f.senders[name] = sender
	}
	return f, nil
}

// NewSender creates a sender that accepts requests of all our endpoints and speaks the provider's protocol.
func (protocols Protocols) NewSender(p *live.Provider) (sender Sender, err error) {
	dialect, hasDialect := protocols.Dialects[p.Protocol]
	factory, hasFactory := protocols.Factories[p.Protocol]
	switch {
	case hasFactory:
		sender, err = factory(p)
	case hasDialect:
		if sender, err = newDirect(p, protocols.Guarded); err == nil {
			sender = NewTranslator(dialect, sender, func(*Request) bool { return true })
		}
	case p.SpeaksOpenAI():
		sender, err = newDirect(p, protocols.Guarded)
	default:
		err = fmt.Errorf("provider %s: nothing speaks %s", p.Name, p.Protocol)
	}
	if err != nil || p.Responses || protocols.Responses == nil {
		return sender, err
	}
	return NewTranslator(protocols.Responses, sender, func(r *Request) bool { return r.Path == ResponsesPath }), nil
}

// unchanged reports whether the sender of a can be used for b. A provider with a ca_file gets a new sender: the file's
// content may have changed.
func unchanged(a, b *live.Provider) bool {
	return a != nil && a.Protocol == b.Protocol && a.BaseURL == b.BaseURL && a.APIKey.Equal(b.APIKey) &&
		a.Responses == b.Responses && a.Transport == b.Transport &&
		a.CAFile == "" && b.CAFile == ""
}

// Sender returns the sender of a model's provider.
func (f *Fleet) Sender(m *live.Model) Sender { return f.senders[m.Provider.Name] }

// Retire closes the senders that next does not use.
func (f *Fleet) Retire(next *Fleet) {
	for name, sender := range f.senders {
		if next.senders[name] != sender {
			sender.Close()
		}
	}
}
