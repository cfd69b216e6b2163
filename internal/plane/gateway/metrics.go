package gateway

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sovereign/internal/base/memo"
	"sovereign/internal/base/money"
	"sovereign/internal/live"
)

// Metrics counts what the gateway does. Its labels are bounded: endpoints, outcomes, classes of failure, and the models
// and providers of the catalog; never a workspace, a key, or anything that a caller sent. Own models are counted
// together, by their prefix.
type Metrics struct {
	ownSeconds     *prometheus.HistogramVec
	firstContent   *prometheus.HistogramVec
	tokens         *prometheus.CounterVec
	cost           *prometheus.CounterVec
	outcomes       *prometheus.CounterVec
	failedAttempts *prometheus.CounterVec
	excess         prometheus.Counter
	overage        prometheus.Counter

	// The same by their labels, for the request path.
	ownSecondsBy   memo.Memo[string, prometheus.Observer]
	firstContentBy memo.Memo[string, prometheus.Observer]
	tokensBy       memo.Memo[labelPair, prometheus.Counter]
	costBy         memo.Memo[string, prometheus.Counter]
	outcomesBy     memo.Memo[labelPair, prometheus.Counter]
}

// A labelPair is the values of two metric labels.
type labelPair struct{ first, second string }

// NewMetrics registers the gateway's metrics.
func NewMetrics(to prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		ownSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sovereign_gateway_own_seconds",
			Help:    "Time of a request that was ours: neither the provider's nor a slow caller's.",
			Buckets: []float64{.00005, .0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .5},
		}, []string{"endpoint"}),
		firstContent: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sovereign_gateway_first_content_seconds", Help: "Time until a caller was sent the first content.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"model"}),
		tokens: counter("sovereign_gateway_tokens_total", "Tokens that were charged for.", "model", "kind"),
		cost:   counter("sovereign_gateway_cost_usd_total", "What requests cost, in dollars.", "model"),
		outcomes: counter(
			"sovereign_gateway_requests_total", "Requests by how they ended; refused ones by the code.", "endpoint",
			"outcome",
		),
		failedAttempts: counter(
			"sovereign_gateway_failed_tries_total", "Tries at a provider that gave no answer, by class.", "provider",
			"class",
		),
		excess: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sovereign_gateway_over_hold_usd_total",
			Help: "What requests cost beyond what was held for them, in dollars: some limit, price or report is wrong.",
		}),
		overage: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sovereign_gateway_overage_usd_total",
			Help: "What requests cost beyond what their wallets had, in dollars: the operator pays it.",
		}),
	}
	m.ownSecondsBy.Make = func(endpoint string) prometheus.Observer { return m.ownSeconds.WithLabelValues(endpoint) }
	m.firstContentBy.Make = func(model string) prometheus.Observer { return m.firstContent.WithLabelValues(model) }
	m.tokensBy.Make = func(l labelPair) prometheus.Counter { return m.tokens.WithLabelValues(l.first, l.second) }
	m.costBy.Make = func(model string) prometheus.Counter { return m.cost.WithLabelValues(model) }
	m.outcomesBy.Make = func(l labelPair) prometheus.Counter { return m.outcomes.WithLabelValues(l.first, l.second) }
	to.MustRegister(m.ownSeconds, m.firstContent, m.tokens, m.cost, m.outcomes, m.failedAttempts, m.excess, m.overage)
	return m
}

func dollars(n money.Nano) float64 { return float64(n) / float64(money.Dollar) }

// Excess counts what a request cost beyond its hold.
func (m *Metrics) Excess(amount money.Nano) { m.excess.Add(dollars(amount)) }

// Overage counts what a wallet could not pay.
func (m *Metrics) Overage(amount money.Nano) { m.overage.Add(dollars(amount)) }

// attemptFailed counts an attempt that gave no answer.
func (m *Metrics) attemptFailed(provider, class string) {
	m.failedAttempts.WithLabelValues(provider, class).Inc()
}

// modelLabel returns the label of a model.
func modelLabel(m *live.Model) string {
	if live.IsOwn(m.ID) {
		prefix, _, _ := strings.Cut(m.ID, "/")
		return prefix
	}
	return m.ID
}

// contentBegan counts the time until the answer begins.
func (m *Metrics) contentBegan(model *live.Model, after time.Duration) {
	m.firstContentBy.Get(modelLabel(model)).Observe(after.Seconds())
}

// charged counts what a request was charged for.
func (m *Metrics) charged(model *live.Model, u live.Usage, cost money.Nano) {
	label := modelLabel(model)
	for _, used := range [...]struct {
		kind string
		n    int64
	}{
		{"input", u.Input},
		{"cached_input", u.Cached},
		{"written_input", u.Written},
		{"output", u.Output},
		{"reasoning", u.Reasoning},
		{"searches", u.Searches},
	} {
		if used.n > 0 {
			m.tokensBy.Get(labelPair{label, used.kind}).Add(float64(used.n))
		}
	}
	m.costBy.Get(label).Add(dollars(cost))
}

// ended counts a request that has ended, and the gateway's own part of its time.
func (m *Metrics) ended(endpoint, outcome string, own time.Duration) {
	m.outcomesBy.Get(labelPair{endpoint, outcome}).Inc()
	m.ownSecondsBy.Get(endpoint).Observe(own.Seconds())
}
