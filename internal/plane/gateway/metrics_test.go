package gateway

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"sovereign/internal/live"
	"sovereign/internal/plane/gateway/request"
	"sovereign/internal/wire/upstream"
)

// measured returns a bench, and a function that reads its metrics.
func measured(t *testing.T) (*bench, func(name string) []*dto.Metric) {
	t.Helper()
	b := newBench(t)
	registry := prometheus.NewRegistry()
	b.Metrics = NewMetrics(registry)
	return b, func(name string) []*dto.Metric {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == name {
				return f.GetMetric()
			}
		}
		return nil
	}
}

func TestTheProvidersTimeIsNotCountedAsOwnTime(t *testing.T) {
	b, read := measured(t)
	const wait = 200 * time.Millisecond
	b.answer = func(r *upstream.Request) (*upstream.Response, error) {
		time.Sleep(wait)
		first := true
		rest := strings.NewReader(providerStream)
		return events(readerFunc(func(p []byte) (int, error) {
			if first {
				first = false
				time.Sleep(wait)
			}
			return rest.Read(p)
		}))(r)
	}
	started := time.Now()
	if _, err := b.ask(streamRequest); err != nil {
		t.Fatal(err)
	}
	took := time.Since(started)
	if took < 2*wait {
		t.Fatal("the provider did not take its time")
	}
	own := read("sovereign_gateway_own_seconds")[0].GetHistogram()
	if own.GetSampleCount() != 1 || own.GetSampleSum() > (took-2*wait).Seconds()+0.001 {
		t.Errorf("%d requests took %f s of our time", own.GetSampleCount(), own.GetSampleSum())
	}
	if first := read("sovereign_gateway_first_content_seconds")[0].GetHistogram().GetSampleSum(); first < 2*wait.Seconds() {
		t.Errorf("the first content came after %f s", first)
	}
}

func TestTokensAndCostAreCountedUnderBoundedLabels(t *testing.T) {
	b, read := measured(t)
	b.answer = whole(good)
	if _, err := b.ask(plainRequest); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x1", "x2", "x3"} { // a caller cannot make labels
		if _, err := b.ask(strings.Replace(plainRequest, `"m"`, `"`+name+`"`, 1)); err == nil {
			t.Fatal("no such model")
		}
	}
	tokens := map[string]float64{}
	for _, m := range read("sovereign_gateway_tokens_total") {
		tokens[label(m, "kind")] = m.GetCounter().GetValue()
	}
	if tokens["input"] != 10 || tokens["output"] != 5 {
		t.Errorf("%v", tokens)
	}
	if cost := read("sovereign_gateway_cost_usd_total"); len(cost) != 1 || cost[0].GetCounter().GetValue() != 30_000e-9 {
		t.Errorf("%v", cost)
	}
	outcomes := map[string]float64{}
	for _, m := range read("sovereign_gateway_requests_total") {
		outcomes[label(m, "outcome")] = m.GetCounter().GetValue()
	}
	if len(outcomes) != 2 || outcomes["finished"] != 1 || outcomes["model_not_found"] != 3 {
		t.Errorf("%v", outcomes)
	}
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func TestASpanTellsTheModelAndTheTokensAndNoText(t *testing.T) {
	exported := tracetest.NewInMemoryExporter()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exported)).Tracer("test")
	b := newBench(t)
	b.Aliases.Put(home, &live.Alias{Name: "named", Target: "m"})
	b.answer = events(strings.NewReader(strings.Replace(providerStream, `"completion_tokens":5`, `"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4}`, 1)))
	ctx, span := tracer.Start(context.Background(), "request")
	body := strings.Replace(strings.Replace(streamRequest, `"m"`, `"named"`, 1), `"stream"`, `"max_tokens":7,"stream"`, 1)
	if w, err := b.askFrom(ctx, request.Chat, body); err != nil || w.Code != http.StatusOK {
		t.Fatal(err)
	}
	span.End()
	got := map[string]string{}
	for _, a := range exported.GetSpans()[0].Attributes {
		got[string(a.Key)] = a.Value.String()
		if text := a.Value.String(); strings.Contains(text, "zwei") || strings.Contains(text, "hi") {
			t.Errorf("%s is %s", a.Key, text)
		}
	}
	for key, want := range map[string]string{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "p", "gen_ai.request.model": "named", "gen_ai.response.model": "m",
		"gen_ai.usage.input_tokens": "10", "gen_ai.usage.output_tokens": "5", "gen_ai.usage.cache_read.input_tokens": "4", "gen_ai.request.max_tokens": "7",
		"gen_ai.request.stream": "true", "gen_ai.response.finish_reasons": `["stop"]`, "sovereign.outcome": "finished",
	} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
}
