package app

import (
	"net/http"
	"slices"

	"go.opentelemetry.io/otel/trace"

	"sovereign/internal/plane/edge"
	"sovereign/internal/plane/gateway"
	"sovereign/internal/store/api"
)

// routers answer requests: public those from the network, operators those from the admin socket.
type routers struct {
	routes    []api.Route // everything that is served by either
	public    http.Handler
	operators http.Handler
}

// open makes the routers of all modules' routes, and of the server's own.
func (r *routers) open(i *instance, tracer trace.Tracer) error {
	routes := i.publicRoutes()
	for _, m := range i.domains.modules {
		routes = append(routes, m.Routes...)
	}
	routes = slices.Concat(routes, i.plane.routes(), i.operatorRoutes())

	config := api.Config{
		DB: i.storage.db, Feed: i.state.feed, Log: i.log, Bounds: i.plane.bounds, Closing: i.draining.Load,
		Worker: i.domains.worker,
	}
	public, err := api.NewRouter(config, routes)
	if err != nil {
		return err
	}
	operators, err := api.NewOperatorRouter(config, routes)
	if err != nil {
		return err
	}
	r.routes = slices.Concat(public.Routes(), operators.Routes())
	admission := edge.Config{
		Directory: i.state.directory, Limits: i.state.limits, Log: i.log, Metrics: i.plane.metrics, Tracer: tracer,
		Gate: i.gate, Closing: i.draining.Load, Bounds: i.plane.bounds, Dashboard: i.dash.edge,
	}
	i.dash.edge.Visitor = public.Visitor
	r.public = edge.New(admission, public)
	admission.Dashboard = nil
	// the network's requests are counted, the operator's own are explained
	admission.Metrics, admission.ShowCauses = nil, true
	r.operators = edge.New(admission, operators)
	return nil
}

// routes are the data plane's. They are declared here because the gateway knows no database, and so no router.
func (p *plane) routes() []api.Route {
	headers := func(r *api.Route) {
		for _, option := range []api.Option{
			api.RequestHeader(
				"X-Service-Tag", "A label of at most 64 characters, for what the request is about; never forwarded",
			),
			api.RequestHeader(
				"X-Service-Trace-Id", "At most 128 characters: groups the steps of one agent run; never forwarded",
			),
			api.RequestHeader("X-Service-Log", "off excludes the request from logging"),
			api.RequestHeader(
				"X-Service-Cache",
				"on or off: whether this request's answer is remembered, and given again; not for responses",
			),
			api.ResponseHeader("X-Service-Cache", "hit or miss, where answers are remembered"),
			api.ResponseHeader("X-Service-Served-Model", "The catalog id of the model that answered"),
			api.ResponseHeader("X-Service-Alias", "The alias that was used, if one was"),
			api.ResponseHeader(
				"X-RateLimit-Limit-Requests",
				"Requests per minute, where they are limited; the same for tokens: -Tokens",
			),
			api.ResponseHeader("X-RateLimit-Remaining-Requests", "Requests that are left of it"),
			api.ResponseHeader("X-RateLimit-Reset-Requests", "The time until none of it is used, such as 59.5s"),
		} {
			option(r)
		}
	}
	g := p.gateway
	return []api.Route{
		api.Raw[gateway.ChatRequest, gateway.ChatAnswer]("/chat/completions", api.Reader, g.ServeChat,
			"Chat with a model, streaming or not", api.MayStream, headers),
		api.Raw[gateway.EmbeddingsRequest, gateway.EmbeddingsAnswer]("/embeddings", api.Reader, g.ServeEmbeddings,
			"Embed texts", headers),
		api.Raw[gateway.RerankRequest, gateway.RerankAnswer]("/rerank", api.Reader, g.ServeRerank,
			"Rank documents by what they say to a question, the best first", headers),
		api.Raw[gateway.RerankV2Request, gateway.RerankV2Answer]("/rerank", api.Reader, g.ServeRerankV2,
			"Rank documents, as Cohere's clients ask for it", headers, api.Version2),
		api.Raw[gateway.ResponsesRequest, gateway.ResponsesAnswer]("/responses", api.Reader, g.ServeResponses,
			"Ask a model through the Responses API, streaming or not", api.MayStream, headers),
	}
}
