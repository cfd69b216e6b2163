package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"path"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"sovereign/internal/apikey"
	"sovereign/internal/audit"
	"sovereign/internal/clock"
	"sovereign/internal/db"
	"sovereign/internal/fault"
	"sovereign/internal/feed"
	"sovereign/internal/id"
	"sovereign/internal/limit"
	"sovereign/internal/live"
	"sovereign/internal/tenant"
)

// A Config is what a router stands on.
type Config struct {
	DB        *db.DB
	Feed      *feed.Feed
	Directory *live.Directory
	Log       *slog.Logger
	Metrics   prometheus.Registerer
	Tracer    trace.Tracer
	Gate      func() error // nil while serving; else why not
	Bounds    *Bounds
}

// Bounds are the limits that a reload may change while requests run.
type Bounds struct {
	Body     atomic.Int64  // bytes of one body
	Buffered *limit.Budget // bytes of all bodies held at once
	Timeout  atomic.Int64  // nanoseconds that a management operation may take
	Proxies  atomic.Pointer[[]netip.Prefix]
}

// abuse guard: SPEC's default.
const (
	guardStarts = 20
	guardWindow = time.Minute
)

// A Router serves routes: on the network those for keys and the public, on the socket those for operators.
type Router struct {
	Config
	routes   []Route
	mux      *http.ServeMux
	registry huma.Registry
	guard    *limit.Windows[tenant.ID]
	watch    *watch
}

// NewRouter serves the routes that keys and the public may call, under /v1 and, the same, under /api/v1.
func NewRouter(c Config, routes []Route) (*Router, error) {
	rt, err := newRouter(c, routes, func(p Permission) bool { return p != Operator })
	if err != nil {
		return nil, err
	}
	return rt, rt.document()
}

// NewOperatorRouter serves the routes for whoever may open the server's socket, and no others.
func NewOperatorRouter(c Config, routes []Route) (*Router, error) {
	return newRouter(c, routes, func(p Permission) bool { return p == Operator })
}

func newRouter(c Config, routes []Route, mine func(Permission) bool) (*Router, error) {
	rt := &Router{
		Config: c, mux: http.NewServeMux(), registry: newRegistry(),
		guard: limit.NewWindows[tenant.ID](guardStarts, guardWindow), watch: newWatch(c.Metrics),
	}
	for _, r := range routes {
		if r.Permission <= undeclared || r.Permission > Operator {
			return nil, fmt.Errorf("route %s %s declares no permission", r.Method, r.Path)
		}
		if !mine(r.Permission) {
			continue
		}
		if err := rt.add(r); err != nil {
			return nil, err
		}
	}
	rt.mux.HandleFunc("/", rt.unknown)
	return rt, nil
}

func (rt *Router) add(r Route) error {
	in, err := newInput(r, rt.registry)
	if err != nil {
		return err
	}
	r.input = in
	rt.routes = append(rt.routes, r)
	rt.mux.HandleFunc(r.Method+" "+r.Pattern(), func(w http.ResponseWriter, req *http.Request) {
		if err := rt.serve(w, req, &r); err != nil {
			rt.fail(w, req, err, r.flat)
		}
	})
	return nil
}

// Routes lists what is served: the access matrix and the documentation are made from it.
func (rt *Router) Routes() []Route { return rt.routes }

// ServeHTTP answers one request, and leaves a request id, a metric, a span and, where it matters, a log line.
func (rt *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	call := &call{id: id.New("req"), started: time.Now()}
	ctx := context.WithValue(r.Context(), callKey{}, call)
	ctx = audit.WithRequest(ctx, call.id)
	ctx, span := startSpan(ctx, rt.Tracer, r)
	defer span.End()
	r = r.WithContext(ctx)
	out := &recorder{ResponseWriter: w}
	out.Header().Set("X-Request-Id", call.id)
	out.Header().Set("X-Content-Type-Options", "nosniff")
	out.Header().Set("Cache-Control", "no-store")
	defer func() {
		if p := recover(); p != nil {
			if errors.Is(asError(p), http.ErrAbortHandler) {
				panic(p)
			}
			rt.Log.Error("panic", "request_id", call.id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			if out.status == 0 {
				Refuse(out, fmt.Errorf("panic: %v", p), call.id)
			}
		}
		rt.finish(out, r, call, span)
	}()
	if err := rt.admit(out, r, call); err != nil {
		rt.fail(out, r, err, false)
	}
}

func asError(p any) error {
	err, _ := p.(error)
	return err
}

// admit decides by path and key alone, before any route is looked up: below /v1 nothing exists for who has no key.
func (rt *Router) admit(w http.ResponseWriter, r *http.Request, call *call) error {
	if arrived(r.Context()) {
		w.Header().Set("Connection", "close")
		return fault.RateLimited.New("too many connections").In(time.Second)
	}
	where, ok := canonical(r)
	if !ok {
		return fault.Missing.New("no such path")
	}
	if where.URL.Path == "/v1" || strings.HasPrefix(where.URL.Path, "/v1/") {
		if rt.Gate != nil {
			if err := rt.Gate(); err != nil {
				return err
			}
		}
		caller, err := rt.authenticate(r)
		if err != nil {
			return err
		}
		call.caller = caller
	}
	rt.mux.ServeHTTP(w, where)
	call.route = where.Pattern
	return nil
}

// canonical is r with /api/v1 read as /v1. A path that is not written plainly (//, dots, an encoded slash in a place
// where it would make another path) is nobody's: redirecting it would answer a caller without a key.
func canonical(r *http.Request) (*http.Request, bool) {
	decoded, raw := r.URL.Path, r.URL.EscapedPath()
	if decoded == "" || decoded[0] != '/' || path.Clean(decoded) != strings.TrimSuffix(decoded, "/") && decoded != "/" {
		return nil, false
	}
	if strings.HasPrefix(decoded, "/api/v1/") || decoded == "/api/v1" {
		rest := strings.TrimPrefix(raw, "/api")
		if rest == raw || !strings.HasPrefix(rest, "/v1") {
			return nil, false
		}
		clone := *r
		address := *r.URL
		address.Path, address.RawPath = decoded[len("/api"):], rest
		clone.URL = &address
		return &clone, true
	}
	return r, true
}

func (rt *Router) authenticate(r *http.Request) (tenant.Caller, error) {
	header := r.Header.Values("Authorization")
	if len(header) != 1 {
		return tenant.Caller{}, fault.InvalidKey.New("send one header Authorization: Bearer %s…", apikey.Prefix)
	}
	scheme, key, _ := strings.Cut(header[0], " ")
	digest, ok := apikey.Parse(key)
	if !strings.EqualFold(scheme, "Bearer") || !ok {
		return tenant.Caller{}, fault.InvalidKey.New("the API key is malformed")
	}
	caller, verdict := rt.Directory.Authenticate(digest, clock.Now())
	switch verdict {
	case live.Granted:
		return caller, nil
	case live.Departed:
		return caller, fault.Forbidden.New("the key's user is no longer a member of the workspace")
	default:
		return tenant.Caller{}, fault.InvalidKey.New("the API key is not known, or was revoked")
	}
}

// serve runs one route for an admitted request: permission, guard, body, handler, answer.
func (rt *Router) serve(w http.ResponseWriter, r *http.Request, route *Route) error {
	caller := callOf(r.Context()).caller
	if route.Permission != Operator && !route.Permission.grants(caller.Role) {
		return fault.Forbidden.New("this needs a key whose user is an owner or admin of the workspace")
	}
	if route.spends {
		if wait, ok := rt.guard.Allow(caller.Workspace, time.Now()); !ok {
			return fault.AbuseGuard.New("more than %d operations that start spending in %v", guardStarts, guardWindow).In(wait)
		}
	}
	ctx := r.Context()
	if !route.long {
		bounded, cancel := context.WithTimeout(ctx, time.Duration(rt.Bounds.Timeout.Load()))
		defer cancel()
		ctx = bounded
	}
	body, release, err := rt.body(w, r)
	if err != nil {
		return err
	}
	defer release()
	in, err := route.input.read(rt.registry, r, body)
	if err != nil {
		return err
	}
	if key := r.Header.Get("Idempotency-Key"); key != "" && route.Method == http.MethodPost {
		given, err := rt.once(ctx, r, route, caller.Workspace, key, body, in)
		if err != nil {
			return err
		}
		given.send(w)
		return nil
	}
	out, err := route.call(ctx, caller, in)
	if err != nil {
		return err
	}
	return rt.send(w, r, route, out)
}

// body reads the whole body, holding its bytes against the budget of all bodies.
func (rt *Router) body(w http.ResponseWriter, r *http.Request) (body []byte, release func(), err error) {
	most := rt.Bounds.Body.Load()
	if r.ContentLength == 0 {
		return nil, func() {}, nil
	}
	hold := most
	if r.ContentLength > 0 {
		hold = min(hold, r.ContentLength)
	}
	if !rt.Bounds.Buffered.Take(hold) {
		return nil, nil, fault.RateLimited.New("too many bytes in flight").In(time.Second)
	}
	release = func() { rt.Bounds.Buffered.Give(hold) }
	if body, err = slurp(w, r, most); err != nil {
		release()
		return nil, nil, err
	}
	return body, release, nil
}

func (rt *Router) send(w http.ResponseWriter, r *http.Request, route *Route, out any) error {
	switch out := out.(type) {
	case Document:
		for name, value := range out.Headers {
			w.Header().Set(name, value)
		}
		answer{status: route.status, kind: out.ContentType, body: out.Body}.send(w)
		return nil
	case Stream:
		w.Header().Set("Content-Type", out.ContentType)
		w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", out.Filename))
		w.WriteHeader(route.status)
		if err := out.Write(w); err != nil {
			rt.Log.Error("answer broke off", "request_id", callOf(r.Context()).id, "err", err)
			panic(http.ErrAbortHandler) // the caller must see a broken answer, not a short one
		}
		return nil
	default:
		made, err := render(r, route.status, out)
		if err != nil {
			return fmt.Errorf("render %s: %w", route.Pattern(), err)
		}
		made.send(w)
		return nil
	}
}

// unknown answers what no route matches: 405 with Allow where another method would, else 404.
func (rt *Router) unknown(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		probe := &http.Request{Method: method, URL: r.URL, Host: r.Host}
		if _, pattern := rt.mux.Handler(probe); pattern != "" && pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) > 0 {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		rt.fail(w, r, fault.MethodNotAllowed.New("this path takes %s", strings.Join(allowed, ", ")), false)
		return
	}
	rt.fail(w, r, fault.Missing.New("no such path"), false)
}

func (rt *Router) fail(w http.ResponseWriter, r *http.Request, err error, plain bool) {
	f := fault.From(err)
	call := callOf(r.Context())
	call.fault = f
	if f.Status >= http.StatusInternalServerError {
		rt.Log.Error("request failed", "request_id", call.id, "method", r.Method, "path", r.URL.Path, "status", f.Status, "err", err)
	}
	refuse(w, f, call.id, plain)
}
