package edge

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
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
	"sovereign/internal/net/life"
)

// A call is what is known of one request on its way, and the context in which it is found.
type call struct {
	context.Context
	out     recorder
	conn    *connection // nil when it came on none of a Listener's
	id      string
	told    [1]string // the id, as a header's values
	started time.Time
	candid  bool
	caller  tenant.Caller
	route   string
	busy    bool         // one of many: logged only for who debugs
	fault   *fault.Fault // what was answered, when it was a refusal
	cause   error        // and why, for the log
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

func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{}
}

// Caller is whose key the request carries; it is empty where none is needed.
func Caller(ctx context.Context) tenant.Caller { return callOf(ctx).caller }

// Busy says that a request is one of very many, such as inference: it is counted, and not logged line by line.
func Busy(ctx context.Context) { callOf(ctx).busy = true }

// RequestID is the request's id.
func RequestID(ctx context.Context) string { return callOf(ctx).id }

// A recorder remembers what was answered, and gives up on a client that does not read it.
type recorder struct {
	http.ResponseWriter
	patience time.Duration // for each write
	careful  bool          // the connection does not see to that itself, or has other requests too
	status   int
	bytes    int64
}

// hurry gives the client its time to take what is written next; rest ends it, so that an answer may pause.
func (r *recorder) hurry() {
	if r.careful {
		_ = http.NewResponseController(r.ResponseWriter).SetWriteDeadline(time.Now().Add(r.patience)) // a writer without deadlines has no client to wait for
	}
}

func (r *recorder) rest() {
	if r.careful {
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
	r.hurry()
	n, err := r.ResponseWriter.Write(p)
	r.rest()
	r.bytes += int64(n)
	return n, err
}

// FlushError gives a client its time for what was written and not sent yet.
func (r *recorder) FlushError() error {
	r.hurry()
	defer r.rest()
	return http.NewResponseController(r.ResponseWriter).Flush()
}

// Send gives a client its time for what is sent: most of a stream goes this way.
func (r *recorder) Send(p []byte) error { return r.send(p, Send) }

// End does the same for the last of it.
func (r *recorder) End(p []byte) error { return r.send(p, End) }

func (r *recorder) send(p []byte, by func(http.ResponseWriter, []byte) error) error {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	r.hurry()
	err := by(r.ResponseWriter, p)
	if r.rest(); err == nil {
		r.bytes += int64(len(p))
	}
	return err
}

// Send writes p and all that waits before it, at once. A writer that knows how to do that in one step is asked.
func Send(w http.ResponseWriter, p []byte) error {
	if direct, ok := w.(interface{ Send(p []byte) error }); ok {
		return direct.Send(p)
	}
	if _, err := w.Write(p); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}

// End is Send for the last of an answer. A writer that can tell the client so at once is asked; others do when their handler has returned.
func End(w http.ResponseWriter, p []byte) error {
	if direct, ok := w.(interface{ End(p []byte) error }); ok {
		return direct.End(p)
	}
	return Send(w, p)
}

// TrySend is how what is written next is sent to a client who need not be waited for, or nil where that cannot be told: it is false
// when some of it is left, for the next Send.
func TrySend(w http.ResponseWriter) func(now time.Time, p []byte) bool {
	if direct, ok := w.(interface {
		TrySend() func(now time.Time, p []byte) bool
	}); ok {
		return direct.TrySend()
	}
	return nil
}

// TrySend is for streams that have begun.
func (r *recorder) TrySend() func(now time.Time, p []byte) bool {
	send := TrySend(r.ResponseWriter)
	if send == nil || r.careful {
		return nil
	}
	return func(now time.Time, p []byte) bool {
		r.bytes += int64(len(p))
		return send(now, p)
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// A watch counts requests. Its labels are bounded: route patterns, methods we serve, statuses; never a workspace.
type watch struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	refused  *prometheus.CounterVec

	answered memo.Memo[labels, prometheus.Counter]
	took     memo.Memo[string, prometheus.Observer]
}

// labels of an answered request.
type labels struct {
	route, method string
	status        int
}

func newWatch(to prometheus.Registerer) *watch {
	w := &watch{
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
	w.answered.Make = func(l labels) prometheus.Counter {
		return w.requests.WithLabelValues(l.route, l.method, strconv.Itoa(l.status))
	}
	w.took.Make = func(route string) prometheus.Observer { return w.seconds.WithLabelValues(route) }
	if to != nil {
		to.MustRegister(w.requests, w.seconds, w.refused)
	}
	return w
}

func (e *Edge) finish(out *recorder, r *http.Request, call *call, span trace.Span) {
	out.hurry() // net/http sends what is left when the handler has returned
	took := time.Since(call.started)
	route := call.route
	if _, after, ok := strings.Cut(route, " "); ok {
		route = after
	}
	if route == "" || route == "/" {
		route = "unmatched"
	}
	e.watch.answered.Get(labels{route, method(r.Method), out.status}).Inc()
	e.watch.took.Get(route).Observe(took.Seconds())
	if call.fault != nil {
		e.watch.refused.WithLabelValues(call.fault.Code).Inc()
	}
	if span.IsRecording() {
		span.SetName(method(r.Method) + " " + route)
		span.SetAttributes(
			attribute.String("http.route", route), attribute.String("http.request.method", method(r.Method)),
			attribute.Int("http.response.status_code", out.status), attribute.String("sovereign.request_id", call.id))
		if out.status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
	}
	if call.fault != nil && call.fault.Status >= http.StatusInternalServerError {
		level := slog.LevelError
		if call.fault.Status == http.StatusServiceUnavailable {
			level = slog.LevelWarn // what is away has its own line; this is its echo
		}
		if route == "/readyz" {
			level = slog.LevelDebug // a prober asks every second or so
		}
		e.Log.Log(r.Context(), level, "request failed", "request_id", call.id, "method", r.Method, "path", r.URL.Path, "status", call.fault.Status, "err", call.cause)
	}
	level := slog.LevelDebug
	if r.Method != http.MethodGet && r.Method != http.MethodHead && !call.busy {
		level = slog.LevelInfo
	}
	if !e.Log.Enabled(r.Context(), level) {
		return
	}
	e.Log.Log(r.Context(), level, "request", "request_id", call.id, "method", r.Method, "route", route, "status", out.status,
		"bytes", out.bytes, "took_ms", float64(took.Microseconds())/1000, "workspace", call.caller.Workspace, "key", call.caller.Key, "client", e.client(r))
}

// method bounds what a client can write into a label.
func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	default:
		return "other"
	}
}

// untraced is the span of a request that nobody traces.
var untraced = trace.SpanFromContext(context.Background())

// begin is the request in whose context its call is found, and its span. A context that can keep the call needs no other around it.
func (e *Edge) begin(r *http.Request, call *call) (*http.Request, trace.Span) {
	if e.Tracer == nil {
		if keeper, ok := call.Context.(interface{ Keep(key, value any) }); ok {
			keeper.Keep(callKey{}, call)
			return r, untraced
		}
		return r.WithContext(call), untraced
	}
	ctx := propagation.TraceContext{}.Extract(call, propagation.HeaderCarrier(r.Header))
	ctx, span := e.Tracer.Start(ctx, method(r.Method), trace.WithSpanKind(trace.SpanKindServer))
	return r.WithContext(ctx), span
}

// client is the address that the request came from: the peer, or, when the peer is a trusted proxy, the last address
// in X-Forwarded-For that is not one.
func (e *Edge) client(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "socket"
	}
	address := peer.Addr().Unmap()
	proxies := e.Bounds.Proxies.Load()
	if proxies == nil || !within(address, *proxies) {
		return address.String()
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0; i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		if address = hop.Unmap(); !within(address, *proxies) {
			break
		}
	}
	return address.String()
}

func within(address netip.Addr, ranges []netip.Prefix) bool {
	for _, r := range ranges {
		if r.Contains(address) {
			return true
		}
	}
	return false
}
