package app

import (
	"time"

	"sovereign/internal/base/id"
	"sovereign/internal/domain/catalog"
	"sovereign/internal/live"
	"sovereign/internal/plane/gateway"
	"sovereign/internal/store/api"
	"sovereign/internal/wire/anthropic"
	"sovereign/internal/wire/cohere"
	"sovereign/internal/wire/gemini"
	"sovereign/internal/wire/responses"
	"sovereign/internal/wire/sim"
	"sovereign/internal/wire/upstream"
)

// stock puts the models of a configuration in force. When it fails, what was in force stays.
func (h *house) stock(c *Config) error {
	models, err := catalog.Build(c.Providers, c.Models)
	if err != nil {
		return err
	}
	before := h.fleet.Load()
	next, err := upstream.NewFleet(models, h.tongues(), before)
	if err != nil {
		return err
	}
	h.fleet.Store(next)
	if before != nil {
		before.Retire(next)
	}
	return nil
}

// tongues are the wires that are spoken with providers.
func (h *house) tongues() upstream.Protocols {
	return upstream.Protocols{
		Factories: map[live.Protocol]upstream.SenderFactory{
			live.Sim: func(*live.Provider) (upstream.Sender, error) { return sim.New(), nil },
		},
		Dialects: map[live.Protocol]upstream.Dialect{
			live.Anthropic: anthropic.Dialect{Now: time.Now}, live.Gemini: gemini.Dialect{Now: time.Now}, live.Cohere: cohere.Dialect{},
		},
		Responses: responses.Dialect{Now: time.Now, New: id.New},
		Guarded:   h.guard.Transport(),
	}
}

func (h *house) catalog() *live.Catalog { return h.fleet.Load().Catalog }

// inferenceRoutes are the data plane's. Their rows are declared here because the gateway knows no database, and so no
// router.
func (h *house) inferenceRoutes() []api.Route {
	headers := func(r *api.Route) {
		for _, option := range []api.Option{
			api.Takes("X-Service-Tag", "A label of at most 64 characters, for what the request is about; never forwarded"),
			api.Takes("X-Service-Trace-Id", "At most 128 characters: groups the steps of one agent run; never forwarded"),
			api.Takes("X-Service-Log", "off excludes the request from logging"),
			api.Takes("X-Service-Cache", "on or off: whether this request's answer is remembered, and given again; not for responses"),
			api.Tells("X-Service-Cache", "hit or miss, where answers are remembered"),
			api.Tells("X-Service-Served-Model", "The catalog id of the model that answered"),
			api.Tells("X-Service-Alias", "The alias that was used, if one was"),
		} {
			option(r)
		}
	}
	return []api.Route{
		api.Raw[gateway.ChatRequest, gateway.ChatAnswer]("/chat/completions", api.Reader, h.gateway.ServeChat, "Chat with a model, streaming or not", api.MayStream, headers),
		api.Raw[gateway.EmbeddingsRequest, gateway.EmbeddingsAnswer]("/embeddings", api.Reader, h.gateway.ServeEmbeddings, "Embed texts", headers),
		api.Raw[gateway.RerankRequest, gateway.RerankAnswer]("/rerank", api.Reader, h.gateway.ServeRerank, "Rank documents by what they say to a question, the best first", headers),
		api.Raw[gateway.ResponsesRequest, gateway.ResponsesAnswer]("/responses", api.Reader, h.gateway.ServeResponses, "Ask a model through the Responses API, streaming or not", api.MayStream, headers),
	}
}
