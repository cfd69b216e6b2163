package edge_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"sovereign/internal/base/fault"
	"sovereign/internal/live"
	"sovereign/internal/plane/edge"
)

// A refusal is named on its span; only a fault of the server or a provider makes the span a failed one.
func TestTheSpanOfARefusalNamesIt(t *testing.T) {
	for _, c := range []struct {
		kind   *fault.Kind
		status codes.Code
		want   string
	}{
		{nil, codes.Unset, ""},
		{&fault.Internal, codes.Error, "internal_error"},
		{&fault.Upstream, codes.Error, "upstream_error"},
		{&fault.Unavailable, codes.Error, "unavailable"},
		{&fault.InsufficientBalance, codes.Unset, "insufficient_balance"},
	} {
		exported := tracetest.NewInMemoryExporter()
		tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exported)).Tracer("test")
		handler := edge.New(edge.Config{
			Directory: live.NewDirectory(), Bounds: edge.NewBounds(), Log: slog.New(slog.DiscardHandler), Tracer: tracer,
		}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c.kind != nil {
				edge.Refuse(w, r, c.kind.New("no"))
			}
		}))
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", http.NoBody))
		span, named := exported.GetSpans()[0], ""
		for _, a := range span.Attributes {
			if a.Key == "error.type" {
				named = a.Value.String()
			}
		}
		if named != c.want || span.Status.Code != c.status {
			t.Errorf("%v: %q and %v", c.kind, named, span.Status)
		}
	}
}
