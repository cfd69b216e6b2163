package edge

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/memo"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/net/fastpath"
	"sovereign/internal/net/life"
)

// A call is the state of one request, and the context in which callOf finds it.
type call struct {
	context.Context
	out        recorder
	edge       *Edge
	conn       *connection // nil if no Listener accepted it
	id         string
	idHeader   [1]string // the id, as the values of X-Request-Id
	started    time.Time
	showCauses bool
	caller     tenant.Caller
	grant      live.Grant // of the key
	visit      Visit      // of the dashboard's API
	asked      string     // the path as the client sent it, if it was rewritten
	route      string
	unlogged   bool         // one of very many: logged at debug level only
	bodyRead   bool         // the body was read to its end
	closes     bool         // the connection is closed after a refusal
	fault      *fault.Fault // the refusal that was sent, or nil
	cause      error        // its cause, for the log
}

type callKey struct{}

// Value implements context.Context.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// life.AfterFunc looks for OnEnd by a type assertion: without this line, renaming it would cost allocations in silence.
var _ life.Notifier = (*call)(nil)

// OnEnd implements life.Notifier: f runs when the request's context ends.
func (c *call) OnEnd(f func()) life.Callback { return life.AfterFunc(c.Context, f) }

// AfterFunc is OnEnd in the form that package context looks for.
func (c *call) AfterFunc(f func()) (stop func() bool) { return c.OnEnd(f).Stop }

// callOf returns the call of a request's context, or an empty one.
func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{}
}

// Caller returns whose key or session the request carries. On paths that need no key it has only the user that
// PeerContext recorded, if any.
func Caller(ctx context.Context) tenant.Caller { return callOf(ctx).caller }

// Grant returns the grant of the request's key.
func Grant(ctx context.Context) *live.Grant { return &callOf(ctx).grant }

// SkipAccessLog marks a request as one of very many, such as inference: it is counted, and logged at debug level only.
func SkipAccessLog(ctx context.Context) { callOf(ctx).unlogged = true }

// RequestID returns the request's id.
func RequestID(ctx context.Context) string { return callOf(ctx).id }

// A recorder records the status and size of a response, and bounds every write by a timeout.
type recorder struct {
	http.ResponseWriter
	timeout time.Duration // of one write
	// the connection sets no write deadlines of its own, or serves several requests at once (HTTP/2)
	setsDeadlines bool
	status        int
	bytes         int64
}

var (
	_ fastpath.DirectWriter = (*recorder)(nil)
	_ fastpath.TrySender    = (*recorder)(nil)
)

// setDeadline bounds the next write. clearDeadline removes the bound, so that a response may pause between writes.
func (r *recorder) setDeadline() {
	if r.setsDeadlines {
		// a writer without deadlines does not block
		_ = http.NewResponseController(r.ResponseWriter).SetWriteDeadline(time.Now().Add(r.timeout))
	}
}

func (r *recorder) clearDeadline() {
	if r.setsDeadlines {
		_ = http.NewResponseController(r.ResponseWriter).SetWriteDeadline(time.Time{})
	}
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	r.setDeadline()
	n, err := r.ResponseWriter.Write(p)
	r.clearDeadline()
	r.bytes += int64(n)
	return n, err
}

// FlushError flushes what is buffered, within the timeout.
func (r *recorder) FlushError() error {
	r.setDeadline()
	defer r.clearDeadline()
	return http.NewResponseController(r.ResponseWriter).Flush()
}

// Send implements fastpath.DirectWriter, within the timeout. Streams are written by it.
func (r *recorder) Send(p []byte) error { return r.send(p, Send) }

// End implements fastpath.DirectWriter.
func (r *recorder) End(p []byte) error { return r.send(p, End) }

func (r *recorder) send(p []byte, by func(http.ResponseWriter, []byte) error) error {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	r.setDeadline()
	err := by(r.ResponseWriter, p)
	if r.clearDeadline(); err == nil {
		r.bytes += int64(len(p))
	}
	return err
}

// Send writes p and everything buffered before it, at once: in one step where w is a DirectWriter, else by Write and
// Flush.
func Send(w http.ResponseWriter, p []byte) error {
	if direct, ok := w.(fastpath.DirectWriter); ok {
		return direct.Send(p)
	}
	if _, err := w.Write(p); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}

// End is Send for the last bytes of a response. A DirectWriter tells the client at once that nothing follows; others do
// when their handler has returned.
func End(w http.ResponseWriter, p []byte) error {
	if direct, ok := w.(fastpath.DirectWriter); ok {
		return direct.End(p)
	}
	return Send(w, p)
}

// TrySend returns a function that sends without blocking, or nil if w has none: see fastpath.TrySender.
func TrySend(w http.ResponseWriter) func(now time.Time, p []byte) bool {
	if direct, ok := w.(fastpath.TrySender); ok {
		return direct.TrySend()
	}
	return nil
}

// TrySend implements fastpath.TrySender. It returns nil where the recorder itself must set deadlines.
func (r *recorder) TrySend() func(now time.Time, p []byte) bool {
	send := TrySend(r.ResponseWriter)
	if send == nil || r.setsDeadlines {
		return nil
	}
	return func(now time.Time, p []byte) bool {
		r.bytes += int64(len(p))
		return send(now, p)
	}
}

// Unwrap lets http.ResponseController find the underlying writer.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// httpMetrics counts requests. Its labels are bounded: route patterns, known methods, statuses; never a workspace.
type httpMetrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	refused  *prometheus.CounterVec

	requestsBy memo.Memo[answerLabels, prometheus.Counter]
	secondsBy  memo.Memo[string, prometheus.Observer]
}

// answerLabels are the labels of one response.
type answerLabels struct {
	route, method string
	status        int
}

func newHTTPMetrics(to prometheus.Registerer) *httpMetrics {
	m := &httpMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sovereign_http_requests_total", Help: "Requests answered, by route, method and status.",
		}, []string{"route", "method", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sovereign_http_request_seconds", Help: "Time to answer, by route.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"route"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sovereign_http_refusals_total", Help: "Refusals, by code.",
		}, []string{"code"}),
	}
	m.requestsBy.Make = func(l answerLabels) prometheus.Counter {
		return m.requests.WithLabelValues(l.route, l.method, strconv.Itoa(l.status))
	}
	m.secondsBy.Make = func(route string) prometheus.Observer { return m.seconds.WithLabelValues(route) }
	if to != nil {
		to.MustRegister(m.requests, m.seconds, m.refused)
	}
	return m
}

func (e *Edge) finish(out *recorder, r *http.Request, call *call, span trace.Span) {
	out.setDeadline() // net/http flushes the rest after the handler has returned
	took := time.Since(call.started)
	route := call.route
	if _, after, ok := strings.Cut(route, " "); ok {
		route = after
	}
	if route == "" || route == "/" {
		route = "unmatched"
	}
	e.metrics.requestsBy.Get(answerLabels{route, method(r.Method), out.status}).Inc()
	e.metrics.secondsBy.Get(route).Observe(took.Seconds())
	if call.fault != nil {
		e.metrics.refused.WithLabelValues(call.fault.Code).Inc()
	}
	if span.IsRecording() {
		span.SetName(method(r.Method) + " " + route)
		span.SetAttributes(
			attribute.String("http.route", route), attribute.String("http.request.method", method(r.Method)),
			attribute.Int("http.response.status_code", out.status), attribute.String("sovereign.request_id", call.id))
		if call.fault != nil {
			span.SetAttributes(attribute.String("error.type", call.fault.Name()))
		}
		if out.status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
	}
	if call.fault != nil && call.fault.Status >= http.StatusInternalServerError {
		level := slog.LevelError
		if call.fault.Status == http.StatusServiceUnavailable {
			level = slog.LevelWarn // the missing dependency has its own line; this one repeats it
		}
		if route == "/readyz" {
			level = slog.LevelDebug // a prober calls every second or so
		}
		e.Log.Log(
			r.Context(), level, "request failed", "request_id", call.id, "method", r.Method, "path",
			withoutToken(r.URL.Path), "status", call.fault.Status, "err", call.cause,
		)
	}
	level := slog.LevelDebug
	if r.Method != http.MethodGet && r.Method != http.MethodHead && !call.unlogged {
		level = slog.LevelInfo
	}
	if !e.Log.Enabled(r.Context(), level) {
		return
	}
	e.Log.Log(r.Context(), level, "request", "request_id", call.id, "method", r.Method, "route", route, "status", out.status,
		"bytes", out.bytes, "took_ms", float64(took.Microseconds())/1000, "workspace", call.caller.Workspace, "key", call.caller.Key, "session", call.caller.Session, "client", e.Bounds.client(r))
}

// method returns m as a metric label: of a bounded set, whatever a client sends.
func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	default:
		return "other"
	}
}

// untraced is the span of a request without tracing.
var untraced = trace.SpanFromContext(context.Background())

// begin returns the request with its call in the context, and its span. A context that is a ValueKeeper keeps the call
// without being wrapped.
func (e *Edge) begin(r *http.Request, call *call) (*http.Request, trace.Span) {
	if e.Tracer == nil {
		if keeper, ok := call.Context.(fastpath.ValueKeeper); ok {
			keeper.Keep(callKey{}, call)
			return r, untraced
		}
		return r.WithContext(call), untraced
	}
	ctx := propagation.TraceContext{}.Extract(call, propagation.HeaderCarrier(r.Header))
	ctx, span := e.Tracer.Start(ctx, method(r.Method), trace.WithSpanKind(trace.SpanKindServer))
	return r.WithContext(ctx), span
}
