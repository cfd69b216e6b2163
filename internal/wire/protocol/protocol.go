// Package protocol is the table of the protocols that are spoken with providers: a row for each, with what its
// providers can do, where they are, and what translates to them. A new protocol is a constant in live and a row here;
// upstream knows in which header its key goes.
package protocol

import (
	"net/http"
	"slices"
	"time"

	"sovereign/internal/base/id"
	"sovereign/internal/live"
	"sovereign/internal/wire/anthropic"
	"sovereign/internal/wire/cohere"
	"sovereign/internal/wire/gemini"
	"sovereign/internal/wire/responses"
	"sovereign/internal/wire/sim"
	"sovereign/internal/wire/upstream"
)

// A Row is one protocol.
type Row struct {
	Name    live.Protocol
	Kinds   []live.Kind // the kinds of models that its providers can have
	BaseURL string      // where its providers are, if all are in one place
	Local   bool        // it runs in this process, and has neither a URL nor keys

	// Variants is set when its providers differ: some have the Responses API, and some want max_completion_tokens.
	Variants bool

	dialect upstream.Dialect       // translates to it from OpenAI's protocol; nil for OpenAI's own
	sender  upstream.SenderFactory // makes the sender of a local protocol
}

var (
	all  = []live.Kind{live.Chat, live.Embedding, live.Rerank}
	rows = []Row{
		{Name: live.OpenAI, Kinds: all, Variants: true},
		{
			Name: live.Anthropic, Kinds: []live.Kind{live.Chat},
			BaseURL: "https://api.anthropic.com/v1", dialect: anthropic.Dialect{Now: time.Now},
		},
		{
			Name: live.Gemini, Kinds: []live.Kind{live.Chat, live.Embedding},
			BaseURL: "https://generativelanguage.googleapis.com/v1beta", dialect: gemini.Dialect{Now: time.Now},
		},
		{
			Name: live.Cohere, Kinds: []live.Kind{live.Embedding, live.Rerank},
			BaseURL: "https://api.cohere.com", dialect: cohere.Dialect{},
		},
		{
			Name: live.Sim, Kinds: all, Local: true,
			sender: func(*live.Provider) (upstream.Sender, error) { return sim.New(), nil },
		},
	}
)

// Of returns the row of a protocol, and whether there is one.
func Of(name live.Protocol) (Row, bool) {
	at := slices.IndexFunc(rows, func(r Row) bool { return r.Name == name })
	if at < 0 {
		return Row{}, false
	}
	return rows[at], true
}

// Names lists the protocols.
func Names() []live.Protocol {
	names := make([]live.Protocol, len(rows))
	for i, r := range rows {
		names[i] = r.Name
	}
	return names
}

// Kinds lists the kinds of models that there are.
func Kinds() []live.Kind { return slices.Clone(all) }

// Upstream is what a fleet needs of the table. guarded sends requests to URLs that customers have set.
func Upstream(guarded http.RoundTripper) upstream.Protocols {
	p := upstream.Protocols{
		Factories: map[live.Protocol]upstream.SenderFactory{}, Dialects: map[live.Protocol]upstream.Dialect{},
		Responses: responses.Dialect{Now: time.Now, New: id.New}, Guarded: guarded,
	}
	for _, r := range rows {
		if r.sender != nil {
			p.Factories[r.Name] = r.sender
		}
		if r.dialect != nil {
			p.Dialects[r.Name] = r.dialect
		}
	}
	return p
}
