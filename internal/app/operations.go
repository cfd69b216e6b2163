package app

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"os"
	"slices"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"sovereign/internal/plane/edge"
)

// operations serves metrics, health checks and profiles to operators, without authentication: it is for the machine's
// own network, and behind ownHosts. The command line is not among the profiles, because it may hold a password.
func (i *instance) operations() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(i.plane.metrics, promhttp.HandlerOpts{}))
	mux.Handle("GET /healthz", i.routers.public)
	mux.Handle("GET /readyz", i.routers.public)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// ownHosts refuses requests to any other host than this machine's loopback names, the address that the connection came
// to, and the given names. A web page could otherwise read what is served here through its visitor's browser, by a name
// of its own that resolves to this machine (DNS rebinding).
func ownHosts(names []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := edge.Hostname(r.Host)
		if !slices.Contains(names, host) && !edge.IsOwnHost(host, r.Context().Value(http.LocalAddrContextKey)) {
			http.Error(
				w, "the operations listener is not served for this Host; operations_hosts lists others",
				http.StatusForbidden,
			)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// operationsHosts are the names that operators use for the operations listener.
func (c *Config) operationsHosts() []string {
	names := []string{edge.Hostname(c.OperationsListen)}
	for _, name := range c.OperationsHosts {
		names = append(names, edge.Hostname(name))
	}
	return names
}

// traces sends spans to the configured collector, if there is one. The returned function sends what is left.
func traces(ctx context.Context, c *Config, log *slog.Logger) (trace.Tracer, func(context.Context) error, error) {
	var options []otlptracehttp.Option
	if c.OTLPEndpoint != "" {
		options = append(options, otlptracehttp.WithEndpointURL(c.collector()))
	} else if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return nil, func(context.Context) error { return nil }, nil // no tracer costs a request nothing
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, nil, bad("otlp_endpoint", "%w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces", "err", err) }))
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter), sdktrace.WithResource(tracedService(ctx, log)),
	)
	return provider.Tracer(tracedName), provider.Shutdown, nil
}

const tracedName = "sovereign"

// tracedService describes this server in every span. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override it.
func tracedService(ctx context.Context, log *slog.Logger) *resource.Resource {
	described, err := resource.New(ctx,
		resource.WithAttributes(
			attribute.String("service.name", tracedName), attribute.String("service.version", version())),
		resource.WithFromEnv())
	if err != nil { // what could be read is used
		log.Warn("traces: OTEL_RESOURCE_ATTRIBUTES cannot be read", "err", err)
	}
	return described
}
