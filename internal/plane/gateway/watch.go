package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/memo"
	"sovereign/internal/base/money"
	"sovereign/internal/live"
)

// A stopwatch tells our own time from the time that others take: the provider, and a caller that reads slowly. It is read once for
// each of them, because that costs as much as the rest of what is done for a piece of a stream.
type stopwatch struct {
	started time.Time
	now     time.Time     // when it was last read
	waited  time.Duration // for others
}

func start() stopwatch {
	now := time.Now()
	return stopwatch{started: now, now: now}
}

// ours says that the time since the last reading was our own.
func (s *stopwatch) ours() { s.now = time.Now() }

// theirs says that it was others'.
func (s *stopwatch) theirs() {
	now := time.Now()
	s.waited += now.Sub(s.now)
	s.now = now
}

// A Watch counts what the gateway does. Its labels are bounded: endpoints, outcomes, classes of failure, and the models
// and providers of the catalog; never a workspace, a key, or anything that a caller sent.
type Metrics struct {
	own      *prometheus.HistogramVec
	begun    *prometheus.HistogramVec
	tokens   *prometheus.CounterVec
	cost     *prometheus.CounterVec
	outcomes *prometheus.CounterVec
	tries    *prometheus.CounterVec
	excess   prometheus.Counter
	overage  prometheus.Counter

	// The same by their labels, for the road.
	ownOf     memo.Memo[string, prometheus.Observer]
	begunOf   memo.Memo[string, prometheus.Observer]
	tokensOf  memo.Memo[pair, prometheus.Counter]
	costOf    memo.Memo[string, prometheus.Counter]
	outcomeOf memo.Memo[pair, prometheus.Counter]
}

// A pair is two labels.
type pair struct{ a, b string }

// NewWatch registers the gateway's metrics.
func NewMetrics(to prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	w := &Metrics{
		own: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sovereign_gateway_own_seconds", Help: "Time of a request that was ours: neither the provider's nor a slow caller's.",
			Buckets: []float64{.00005, .0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .5},
		}, []string{"endpoint"}),
		begun: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sovereign_gateway_first_content_seconds", Help: "Time until a caller was sent the first content.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"model"}),
		tokens:   counter("sovereign_gateway_tokens_total", "Tokens that were charged for.", "model", "kind"),
		cost:     counter("sovereign_gateway_cost_usd_total", "What requests cost, in dollars.", "model"),
		outcomes: counter("sovereign_gateway_requests_total", "Requests by how they ended; refused ones by the code.", "endpoint", "outcome"),
		tries:    counter("sovereign_gateway_failed_tries_total", "Tries at a provider that gave no answer, by class.", "provider", "class"),
		excess: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sovereign_gateway_over_hold_usd_total", Help: "What requests cost beyond what was held for them, in dollars: some limit, price or report is wrong.",
		}),
		overage: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sovereign_gateway_overage_usd_total", Help: "What requests cost beyond what their wallets had, in dollars: the operator pays it.",
		}),
	}
	w.ownOf.Make = func(endpoint string) prometheus.Observer { return w.own.WithLabelValues(endpoint) }
	w.begunOf.Make = func(model string) prometheus.Observer { return w.begun.WithLabelValues(model) }
	w.tokensOf.Make = func(of pair) prometheus.Counter { return w.tokens.WithLabelValues(of.a, of.b) }
	w.costOf.Make = func(model string) prometheus.Counter { return w.cost.WithLabelValues(model) }
	w.outcomeOf.Make = func(of pair) prometheus.Counter { return w.outcomes.WithLabelValues(of.a, of.b) }
	to.MustRegister(w.own, w.begun, w.tokens, w.cost, w.outcomes, w.tries, w.excess, w.overage)
	return w
}

func dollars(n money.Nano) float64 { return float64(n) / float64(money.Dollar) }

// Excess counts what a request cost beyond its hold.
func (w *Metrics) Excess(amount money.Nano) { w.excess.Add(dollars(amount)) }

// Overage counts what a wallet could not pay.
func (w *Metrics) Overage(amount money.Nano) { w.overage.Add(dollars(amount)) }

func (w *Metrics) tried(m *live.Model, class string) {
	w.tries.WithLabelValues(m.Provider.Name, class).Inc()
}

func (w *Metrics) first(r *run) {
	r.begins = r.clock.now.Sub(r.clock.started)
	w.begunOf.Get(r.model.ID).Observe(r.begins.Seconds())
}

// settled notes what a request was charged for.
func (r *run) settled(o Outcome, u live.Usage) {
	r.outcome, r.used = o, u
	w := r.gateway.Metrics
	for _, used := range [...]struct {
		kind string
		n    int64
	}{{"input", u.Input}, {"cached_input", u.Cached}, {"written_input", u.Written}, {"output", u.Output}, {"reasoning", u.Reasoning}, {"searches", u.Searches}} {
		if used.n > 0 {
			w.tokensOf.Get(pair{r.model.ID, used.kind}).Add(float64(used.n))
		}
	}
	w.costOf.Get(r.model.ID).Add(dollars(r.cost(u)))
}

// refusal is the outcome of a request that was refused.
func refusal(err error) string {
	var f *fault.Fault
	if errors.As(err, &f) && f.Code != "" {
		return f.Code
	}
	return "upstream_error"
}

// finish notes how a request ended, in the metrics and on its span.
func (w *Metrics) finish(r *run, ctx context.Context, err error) {
	outcome := string(r.outcome)
	switch {
	case outcome != "":
	case err != nil:
		outcome = refusal(err)
	default:
		outcome = string(Nothing)
	}
	w.outcomeOf.Get(pair{r.ask.Endpoint.Name, outcome}).Inc()
	r.clock.ours()
	w.ownOf.Get(r.ask.Endpoint.Name).Observe((r.clock.now.Sub(r.clock.started) - r.clock.waited).Seconds())
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("gen_ai.operation.name", r.ask.Endpoint.Name), attribute.String("sovereign.outcome", outcome))
	if r.model.Model == nil {
		return
	}
	span.SetAttributes(
		attribute.String("gen_ai.provider.name", r.model.Provider.Name), attribute.String("gen_ai.request.model", r.ask.model),
		attribute.String("gen_ai.response.model", r.model.ID), attribute.Bool("gen_ai.request.stream", r.ask.stream),
		attribute.Int64("gen_ai.usage.input_tokens", r.used.Input), attribute.Int64("gen_ai.usage.output_tokens", r.used.Output),
		attribute.Int64("gen_ai.usage.cache_read.input_tokens", r.used.Cached),
	)
	if r.ask.limit > 0 {
		span.SetAttributes(attribute.Int64("gen_ai.request.max_tokens", r.ask.limit))
	}
	if r.finish != "" {
		span.SetAttributes(attribute.StringSlice("gen_ai.response.finish_reasons", []string{r.finish}))
	}
}
