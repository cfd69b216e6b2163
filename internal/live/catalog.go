package live

import (
	"cmp"
	"slices"
	"strings"

	"sovereign/internal/clock"
	"sovereign/internal/fault"
	"sovereign/internal/money"
	"sovereign/internal/secret"
)

// A Kind is what a model does.
type Kind string

// The kinds.
const (
	Chat      Kind = "chat"
	Embedding Kind = "embedding"
)

// A Price is what a model's tokens cost. It is frozen on the usage row of every request.
type Price struct {
	Input       money.Rate `json:"input_per_mtok_usd"`
	CachedInput money.Rate `json:"cached_input_per_mtok_usd"`
	Output      money.Rate `json:"output_per_mtok_usd"`
}

// DearestInput is the most that a token of input can cost.
func (p Price) DearestInput() money.Rate { return max(p.Input, p.CachedInput) }

// Usage is what a model says it used, or what was counted for it. Cached is part of Input, Reasoning part of Output.
type Usage struct {
	Input     int64 `json:"input"`
	Cached    int64 `json:"cached"`
	Output    int64 `json:"output"`
	Reasoning int64 `json:"reasoning"`
}

// Of is the cost of u.
func (p Price) Of(u Usage) money.Nano {
	cached := min(max(u.Cached, 0), max(u.Input, 0))
	var t money.Tally
	t.Add(u.Input-cached, p.Input)
	t.Add(cached, p.CachedInput)
	t.Add(u.Output, p.Output)
	return t.Cost()
}

// Worst is the most that a request can cost that sends input tokens and gets output tokens back.
func (p Price) Worst(input, output int64) money.Nano {
	var t money.Tally
	t.Add(input, p.DearestInput())
	t.Add(output, p.Output)
	return t.Cost()
}

// A Protocol is the wire that a provider speaks.
type Protocol string

// The protocols.
const (
	OpenAI Protocol = "openai"
	Sim    Protocol = "sim"
)

// A Provider is where models run.
type Provider struct {
	Name     string
	Protocol Protocol
	BaseURL  string
	APIKey   secret.Text
	CAFile   string
}

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
