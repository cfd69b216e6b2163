package sim

import (
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/live"
)

// createdAt is the creation time of all simulated models and answers.
var createdAt = clock.Of(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

// mills returns a price in thousandths of a dollar.
func mills(input, cached, output money.Nano) live.Price {
	const mill = money.Dollar / 1000
	rates := live.Flat(money.Rate(input*mill), money.Rate(output*mill))
	rates.CachedInput = money.Rate(cached * mill)
	return live.Price{Rates: rates}
}

// Models returns the built-in models of the catalog, with provider p.
func Models(p *live.Provider) []*live.Model {
	small, large, judge := mills(150, 75, 600), mills(2500, 1250, 10000), mills(1000, 500, 4000)
	embedding, rerank := mills(20, 20, 0), mills(50, 50, 0)
	models := []*live.Model{
		{ID: "sim/chat", Kind: live.Chat, Price: small, Behaviour: &live.Behaviour{Quality: 0.8}},
		{ID: "sim/chat-large", Kind: live.Chat, Price: large, Behaviour: &live.Behaviour{Quality: 0.95}},
		{ID: "sim/flaky", Kind: live.Chat, Price: small, Behaviour: &live.Behaviour{Quality: 0.8, ErrorRate: 0.3}},
		{ID: "sim/judge", Kind: live.Chat, Price: judge, Behaviour: &live.Behaviour{
			Quality: 0.8, Sensitivity: 0.95,
			Specificity: 0.93,
		}},
		{ID: "sim/embedding", Kind: live.Embedding, Price: embedding, Behaviour: &live.Behaviour{}},
		{ID: "sim/rerank", Kind: live.Rerank, Price: rerank, Behaviour: &live.Behaviour{}},
	}
	for _, m := range models {
		m.Provider, m.Upstream, m.Created = p, m.ID, createdAt
		m.ContextWindow, m.MaxOutput = 128_000, 16_384
		if m.Kind != live.Chat {
			m.ContextWindow, m.MaxOutput = 8192, 0
		}
	}
	return models
}
