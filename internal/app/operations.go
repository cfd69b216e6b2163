package app

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"os"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// operations serves metrics, health checks and profiles to operators, without authentication: it is for the machine's
// own network. The command line is not among the profiles, because it may hold a password.
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

// traces sends spans to the configured collector, if there is one. The returned function sends what is left.
func traces(ctx context.Context, c *Config, log *slog.Logger) (trace.Tracer, func(context.Context) error, error) {
	const name = "sovereign"
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
	what := resource.NewSchemaless(attribute.String("service.name", name), attribute.String("service.version", version()))
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(what))
	return provider.Tracer(name), provider.Shutdown, nil
}
