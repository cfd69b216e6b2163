package gateway

import (
	"context"
	"strings"
	"testing"

	"sovereign/internal/live"
	"sovereign/internal/plane/gateway/request"
)

func TestAnAnswerOfCoheresFormIsBilledLikeOurOwn(t *testing.T) {
	b := newBench(t, model("r", func(m *live.Model) {
		m.Kind, m.MaxOutput, m.Price = live.Rerank, 0, live.Price{Rates: live.Rates{Search: 2_000_000_000_000}}
	}))
	ask := `{"model":"r","query":"which?","documents":["one","two"],"max_tokens_per_doc":512}`
	for answer, want := range map[string]string{
		`{"id":"x","results":[{"index":1,"relevance_score":0.5},{"index":0,"relevance_score":0.9}],"usage":{"search_units":3}}`: `{"id":"x","results":[{"index":0,"relevance_score":0.9},{"index":1,"relevance_score":0.5}],"meta":{"api_version":{"version":"2"},"billed_units":{"search_units":3}}}`,
		`{"id":"x","results":[{"index":0,"relevance_score":1}],"usage":{"total_tokens":7}}`:                                     `{"id":"x","results":[{"index":0,"relevance_score":1}],"meta":{"api_version":{"version":"2"},"billed_units":{"search_units":1,"input_tokens":7}}}`,
		`{"id":"x","results":[{"index":0,"relevance_score":1}]}`:                                                                `{"id":"x","results":[{"index":0,"relevance_score":1}],"meta":{"api_version":{"version":"2"},"billed_units":{"search_units":1}}}`,
	} {
		b.answer = whole(answer)
		before := b.funds.Balance(home).Spent
		w, err := b.askFrom(context.Background(), request.RerankV2, ask)
		if err != nil || w.Body.String() != want {
			t.Errorf("%v %s\nwant %s", err, w.Body, want)
		}
		second := b.funds.Balance(home).Spent - before
		if _, err := b.askFrom(context.Background(), request.Rerank, ask); err != nil {
			t.Error(err)
		}
		if first := b.funds.Balance(home).Spent - before - second; first != second || first == 0 {
			t.Errorf("%s: the first version costs $%s, the second $%s", answer, first, second)
		}
		if e := b.settled(); e.Route != "rerank" {
			t.Errorf("%+v", e)
		}
	}
	// The two forms of one question are two answers of the cache.
	for range 2 {
		for e, want := range map[*request.Endpoint]string{request.Rerank: `"model":`, request.RerankV2: `"meta":`} {
			if w, err := b.askWith(e, home, "on", ask); err != nil || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%v %s", err, w.Body)
			}
		}
	}
}
