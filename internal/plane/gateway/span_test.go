package gateway

import (
	"context"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"sovereign/internal/plane/gateway/request"
	"sovereign/internal/wire/upstream"
)

// traced serves a request in a span, and returns the span.
func (b *bench) traced(t *testing.T, e *request.Endpoint, body string) (span tracetest.SpanStub, attributes map[string]string) {
	t.Helper()
	exported := tracetest.NewInMemoryExporter()
	ctx, begun := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exported)).Tracer("test").Start(context.Background(), "request")
	_, _ = b.askFrom(ctx, e, body)
	begun.End()
	span, attributes = exported.GetSpans()[0], map[string]string{}
	for _, a := range span.Attributes {
		attributes[string(a.Key)] = a.Value.String()
	}
	return span, attributes
}

func TestASpanTellsWhyAnAnswerFinished(t *testing.T) {
	b := newBench(t)
	two := `{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"length"},{"index":1,"message":{"content":"b"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`
	response := `{"output":[{"type":"message","content":[{"type":"output_text","text":"a"}]}],"status":"incomplete","usage":{"input_tokens":1,"output_tokens":1}}`
	long := strings.Replace(good, `"stop"`, `"`+strings.Repeat("é", 1000)+`"`, 1)
	for name, c := range map[string]struct {
		endpoint *request.Endpoint
		answer   func(*upstream.Request) (*upstream.Response, error)
		body     string
		want     string
	}{
		"whole":    {request.Chat, whole(good), plainRequest, `["stop"]`},
		"choices":  {request.Chat, whole(two), strings.Replace(plainRequest, `{`, `{"n":2,`, 1), `["length","stop"]`},
		"response": {request.Responses, whole(response), `{"model":"m","input":"hi"}`, `["incomplete"]`},
		"stream":   {request.Chat, events(strings.NewReader(providerStream)), streamRequest, `["stop"]`},
		"too many choices": {
			request.Chat, whole(strings.Replace(good, `"choices":[`, `"choices":[`+strings.Repeat(`{"finish_reason":"x"},`, 1000), 1)), plainRequest,
			`["x"` + strings.Repeat(`,"x"`, request.MaxChoices-1) + `]`,
		},
		"a long reason": {request.Chat, whole(long), plainRequest, `["` + strings.Repeat("é", maxReason/2) + `"]`},
	} {
		b.answer = c.answer
		if _, got := b.traced(t, c.endpoint, c.body); got["gen_ai.response.finish_reasons"] != c.want || got["error.type"] != "" {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestTheSpanOfAStreamThatBreaksOffHasFailed(t *testing.T) {
	b := newBench(t)
	b.answer = events(strings.NewReader(providerStream[:endOf(providerStream, "one ")]))
	span, got := b.traced(t, request.Chat, streamRequest)
	if got["error.type"] != "upstream_error" || span.Status.Code != codes.Error || got["sovereign.outcome"] != "died" {
		t.Errorf("%v %v", span.Status, got)
	}
}
