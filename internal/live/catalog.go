package live

import (
	"cmp"
	"slices"
	"strings"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/secret"
)

// A Kind is what a model does.
type Kind string

// The kinds.
const (
	Chat      Kind = "chat"
	Embedding Kind = "embedding"
	Rerank    Kind = "rerank"
)

// A Protocol is the wire that a provider speaks.
type Protocol string

// The protocols.
const (
	OpenAI    Protocol = "openai"
	Anthropic Protocol = "anthropic"
	Gemini    Protocol = "gemini"
	Cohere    Protocol = "cohere"
	Sim       Protocol = "sim"
)

// A Provider is where models run.
type Provider struct {
	Name     string
	Protocol Protocol
	BaseURL  string
	APIKey   secret.Text
	CAFile   string
	// Transport is what it is reached by.
	Transport Transport

	Configured bool // by the operator; the models of another can be called with a workspace's own key alone
	Responses  bool // it has the Responses API itself
	Modern     bool // it wants max_completion_tokens where others want max_tokens, and knows developers
}

// A Transport carries requests to a provider.
type Transport string

// The transports. What names none gets the lean one.
const (
	Lean     Transport = "lean"     // our own client, of HTTP/1.1
	Standard Transport = "standard" // net/http's, with HTTP/2 and proxies
)

// Keyless reports whether the operator has configured it to want no key.
func (p *Provider) Keyless() bool { return p.Configured && p.APIKey.Empty() }

// A Behaviour is how a simulated model acts, unless a request says otherwise. Other models have none.
type Behaviour struct {
	Seed        uint64
	LatencyMS   int64   // until the answer begins
	ChunkMS     int64   // between the chunks of a stream
	Chunks      int     // of a stream
	ErrorRate   float64 // of requests that fail
	Quality     float64 // of its answers, 0 to 1
	Sensitivity float64 // as a judge: of good texts that it passes
	Specificity float64 // as a judge: of bad texts that it fails
}

// A Model is one row of the catalog.
type Model struct {
	ID            string
	Provider      *Provider
	Upstream      string // its name at the provider
	Kind          Kind
	ContextWindow int64
	MaxOutput     int64
	Price         Price
	Created       clock.Time
	NoStreamUsage bool // the provider refuses stream_options
	Behaviour     *Behaviour
}

// A Catalog is the models that can be called. It never changes: a new one takes its place.
type Catalog struct {
	models    map[string]*Model
	providers map[string]*Provider
	sorted    []*Model
}

// NewCatalog holds models, each of which names its provider, and providers, some of which may have no model.
func NewCatalog(providers []*Provider, models []*Model) *Catalog {
	c := &Catalog{models: map[string]*Model{}, providers: map[string]*Provider{}}
	for _, p := range providers {
		c.providers[p.Name] = p
	}
	for _, m := range models {
		c.models[m.ID] = m
	}
	for _, m := range c.models {
		c.sorted = append(c.sorted, m)
	}
	slices.SortFunc(c.sorted, func(a, b *Model) int { return cmp.Compare(a.ID, b.ID) })
	return c
}

// Models lists every model, by id.
func (c *Catalog) Models() []*Model { return c.sorted }

// Providers are all providers, by name.
func (c *Catalog) Providers() map[string]*Provider { return c.providers }

// Has reports whether id is a model.
func (c *Catalog) Has(id string) bool { return c.models[id] != nil }

// DedicatedPrefix starts the names of dedicated endpoints.
const DedicatedPrefix = "dedicated/"

// Find is the model of that id, or the refusal that says what is missing: the endpoint, the provider or the model.
func (c *Catalog) Find(id string) (*Model, error) {
	if m := c.models[id]; m != nil {
		return m, nil
	}
	if strings.HasPrefix(id, DedicatedPrefix) {
		return nil, fault.DedicatedNotFound.New("no dedicated endpoint has that routing key in this workspace")
	}
	if prefix, _, ok := strings.Cut(id, "/"); ok && c.providers[prefix] == nil {
		return nil, fault.UnknownProvider.New("no provider %q is configured", prefix)
	}
	return nil, fault.ModelNotFound.New("the model %q does not exist", id)
}

// Serves is Find for a workspace: a provider that the operator has not configured serves those alone that have a key of
// their own there.
func (c *Catalog) Serves(id string, own func(provider string) bool) (*Model, error) {
	m, err := c.Find(id)
	prefix, _, _ := strings.Cut(id, "/")
	p := c.providers[prefix]
	if m != nil {
		p = m.Provider
	}
	if p != nil && !p.Configured && !own(p.Name) {
		return nil, fault.UnknownProvider.New("no key for the provider %q is configured, and the workspace has none of its own", p.Name)
	}
	return m, err
}
