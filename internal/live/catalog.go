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

// A Protocol is a provider's wire protocol.
type Protocol string

// The protocols.
const (
	OpenAI    Protocol = "openai"
	Anthropic Protocol = "anthropic"
	Gemini    Protocol = "gemini"
	Cohere    Protocol = "cohere"
	Sim       Protocol = "sim"
	Engine    Protocol = "engine" // OpenAI's, spoken to engines that the server runs
)

// A Provider is an upstream API that serves models.
type Provider struct {
	Name      string
	Protocol  Protocol
	BaseURL   string
	APIKey    secret.Text
	CAFile    string
	Transport Transport

	Configured bool // the operator has configured it; otherwise only workspaces with an own key can use its models
	Responses  bool // it implements the Responses API
	Modern     bool // it expects max_completion_tokens in place of max_tokens, and accepts the role developer
}

// A Transport is the HTTP client used for a provider.
type Transport string

// The transports. Lean is the default.
const (
	Lean     Transport = "lean"     // package net/http1, HTTP/1.1 only
	Standard Transport = "standard" // net/http, with HTTP/2 and proxies
)

// SpeaksOpenAI reports whether the provider's protocol is OpenAI's.
func (p *Provider) SpeaksOpenAI() bool { return p.Protocol == OpenAI || p.Protocol == Engine }

// Keyless reports whether the operator has configured the provider without a key.
func (p *Provider) Keyless() bool { return p.Configured && p.APIKey.Empty() }

// A Behaviour configures a simulated model. A request can override it. Other models have none.
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
	Engines       string // of an own model: the group of engines that serves it; empty for a model of the catalog
	Version       string // of an own model: the id of its model version, or the name of its base model
	Kind          Kind
	ContextWindow int64
	MaxOutput     int64
	Price         Price
	Created       clock.Time
	NoStreamUsage bool // the provider refuses stream_options
	Behaviour     *Behaviour
}

// Identity identifies what the model's id stands for: two with the same identity are the same model.
func (m *Model) Identity() string {
	if m.Version != "" {
		return m.Provider.Name + " " + m.Version
	}
	return m.Provider.BaseURL + " " + m.Upstream
}

// A Catalog lists the models that can be called. It is immutable: a change replaces it.
type Catalog struct {
	models    map[string]*Model
	providers map[string]*Provider
	sorted    []*Model
	hasFree   bool // a model of a configured provider costs nothing
}

// NewCatalog returns a catalog of models and providers. A provider may have no model.
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
		c.hasFree = c.hasFree || m.Provider != nil && m.Provider.Configured && m.Price.Worst(1, 1, 1) == 0
	}
	slices.SortFunc(c.sorted, func(a, b *Model) int { return cmp.Compare(a.ID, b.ID) })
	return c
}

// Models returns all models, sorted by id.
func (c *Catalog) Models() []*Model { return c.sorted }

// Providers returns all providers by name.
func (c *Catalog) Providers() map[string]*Provider { return c.providers }

// Has reports whether id is a model.
func (c *Catalog) Has(id string) bool { return c.models[id] != nil }

// EndpointPrefix begins the names of eval endpoints: they answer in evals, and no request reaches them. It is never a
// provider's, like the prefixes of own models.
const EndpointPrefix = "endpoint/"

// Reserved returns the prefix of an id that no provider and no model of the catalog has, or "".
func Reserved(id string) string {
	for _, prefix := range [...]string{DedicatedPrefix, TrainedPrefix, EndpointPrefix} {
		if strings.HasPrefix(id, prefix) {
			return prefix
		}
	}
	return ""
}

// Find returns the model of that id, or an error that says what does not exist: the provider or the model.
func (c *Catalog) Find(id string) (*Model, error) {
	if m := c.models[id]; m != nil {
		return m, nil
	}
	if strings.HasPrefix(id, EndpointPrefix) {
		return nil, fault.ModelNotFound.New(
			"the model %q does not exist here: eval endpoints answer in evals alone", id,
		)
	}
	if prefix, _, ok := strings.Cut(id, "/"); ok && c.providers[prefix] == nil {
		return nil, fault.UnknownProvider.New("no provider %q is configured", prefix)
	}
	if meant := c.meant(id); meant != nil {
		return nil, fault.ModelNotFound.New("the model %q does not exist; did you mean %q?", id, meant.ID)
	}
	return nil, fault.ModelNotFound.New("the model %q does not exist", id)
}

// meant returns the model that has the id in another case, or behind the name of its provider: callers know models by
// their providers' names. A model whose provider is configured comes first.
func (c *Catalog) meant(id string) (found *Model) {
	for _, m := range c.sorted {
		_, name, _ := strings.Cut(m.ID, "/")
		if !strings.EqualFold(m.ID, id) && !strings.EqualFold(name, id) {
			continue
		}
		if found == nil || !found.Provider.Configured && m.Provider.Configured {
			found = m
		}
	}
	return found
}
