package app

import (
	"log/slog"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"sovereign/internal/base/money"
	"sovereign/internal/net/admission"
	"sovereign/internal/net/breaker"
	"sovereign/internal/net/pace"
	"sovereign/internal/net/poller"
	"sovereign/internal/plane/cache"
	"sovereign/internal/plane/edge"
	"sovereign/internal/plane/engines"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/gateway"
	"sovereign/internal/plane/till"
	"sovereign/internal/text/tokenizer"
)

// cacheLife is how long an answer is remembered; longestPause how long a failing model is left alone, at most.
const (
	cacheLife    = time.Hour
	longestPause = time.Minute
)

// plane serves inference.
type plane struct {
	bounds  *edge.Bounds
	metrics *prometheus.Registry
	cache   *cache.Cache
	breaker *breaker.Breaker
	till    *till.Till
	engines *engines.Registry // that serve own models
	gateway *gateway.Gateway
}

// open builds the gateway on models and state. It cannot fail.
func (p *plane) open(c *Config, m *models, s *state, log *slog.Logger) {
	p.bounds = edge.NewBounds()
	p.bounds.Pace = pace.Limit{Timeout: c.Limits.BodyTimeout, Rate: int64(c.Limits.UploadRate)}
	p.cache = cache.New(int64(c.Limits.Cache), cacheLife)
	p.breaker = breaker.New(breaker.Settings{})
	p.metrics = prometheus.NewRegistry()
	p.metrics.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	p.engines = engines.NewRegistry()
	metrics := gateway.NewMetrics(p.metrics)
	p.till = till.New(s.funds, s.journal, log, metrics.Excess, metrics.Overage)
	p.gateway = gateway.New(gateway.Config{
		Fleet: m.fleet.Load, Aliases: s.aliases, Own: s.own, Engines: p.engines, Keys: s.keys, Workspaces: s.settings,
		Till: p.till, Meter: s.meter, Bounds: p.bounds, Log: log, Count: tokenizer.Count, Metrics: metrics,
		Random: rand.Float64, Cache: p.cache, Breaker: p.breaker, Recorder: s.recorder,
		Poller: poller.New(runtime.GOMAXPROCS(0)),
	})
}

// apply puts limits in force that may change while running.
func (p *plane) apply(c *Config) {
	l := c.Limits
	p.cache.Resize(int64(l.Cache))
	p.breaker.Apply(breaker.Settings{Failures: l.BreakerFailures, Pause: l.BreakerPause, Longest: longestPause})
	p.bounds.Connections.Set(admission.Limits{
		Connections: l.Connections, PerAddress: l.AddressConns, Keyless: l.AddressKeyless,
	})
	p.bounds.Body.Store(int64(l.Body))
	p.bounds.Buffered.Set(int64(l.BufferedMemory))
	p.bounds.Operations.Set(l.Operations)
	p.bounds.Timeout.Store(int64(l.OperationTimeout))
	p.till.Allow(funds.Allowance{Share: int64(l.AbandonedPercent), Least: money.Nano(l.AbandonedUSD)})
	p.gateway.Apply(gateway.Settings{
		Retries: l.Retries, TryTimeout: l.TryTimeout, StallTimeout: l.StallTimeout, LeaveTimeout: l.LeaveTimeout,
		RequestTimeout: l.RequestTimeout, DefaultMaxTokens: l.DefaultMaxTokens, OwnKeyFee: int64(c.OwnKeyFeePercent),
	})
}

func (p *plane) close() {
	if p.gateway != nil {
		p.gateway.Poller.Close()
	}
}
