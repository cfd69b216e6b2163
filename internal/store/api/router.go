package api

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"sovereign/internal/base/apikey"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/limit"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/edge"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/window"
)

// A Config holds what a router depends on.
type Config struct {
	DB     *db.DB
	Feed   *feed.Feed
	Log    *slog.Logger
	Bounds *edge.Bounds

	Closing func() bool // reports whether the server stops; nil for never

	// Worker returns the training worker of a token; nil knows none.
	Worker func(ctx context.Context, token string) (tenant.Worker, error)
}

// managementBody bounds the body of a management request, whatever inference bodies may be: parsed, JSON takes many
// times its size.
const managementBody = 1 << 20

// The default of the abuse guard: see docs/contract.md.
const (
	guardStarts = 20
	guardWindow = time.Minute
)

// A Router serves routes: on the network those for keys, sessions and the public, on the socket those for operators.
type Router struct {
	Config
	routes   []Route
	mux      *http.ServeMux
	exact    map[routeKey]exactRoute
	visitors map[string]bool // the patterns of routes that need no session
	registry huma.Registry
	pages    map[string]bool // the patterns of pages for people, which take every path and so say nothing of one
	guard    *window.Windows // shared by all servers on the database
	large    *limit.Budget   // how many large bodies are handled at once
}

// NewRouter serves the routes for keys, sessions and the public. Those under /v1 and /v2 are equally under /api/v1 and
// /api/v2.
func NewRouter(c Config, routes []Route) (*Router, error) {
	rt, err := newRouter(c, routes, func(p Permission) bool { return p != Operator })
	if err != nil {
		return nil, err
	}
	return rt, rt.document()
}

// NewOperatorRouter serves the routes of the operator's socket, and no others.
func NewOperatorRouter(c Config, routes []Route) (*Router, error) {
	return newRouter(c, routes, func(p Permission) bool { return p == Operator })
}

func newRouter(c Config, routes []Route, mine func(Permission) bool) (*Router, error) {
	rt := &Router{
		Config: c, mux: http.NewServeMux(), pages: map[string]bool{}, exact: map[routeKey]exactRoute{},
		visitors: map[string]bool{}, registry: newRegistry(),
		guard: window.New(c.DB, "abuse_guard", guardStarts, guardWindow), large: limit.NewBudget(largeOperations),
	}
	for _, r := range routes {
		if r.Permission <= undeclared || r.Permission > SessionOwner {
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
	handler := func(w http.ResponseWriter, req *http.Request) {
		if err := rt.serve(w, req, &r); err != nil {
			refuse := edge.Refuse
			switch {
			case r.flat:
				refuse = edge.RefuseFlat
			case prefersText(req.Header.Get("Accept")):
				refuse = edge.RefuseText
			}
			refuse(w, req, err)
		}
	}
	pattern := r.Method + " " + r.Pattern()
	rt.mux.HandleFunc(pattern, handler)
	if r.html {
		rt.pages[pattern] = true
	}
	if r.Permission == Visitor {
		rt.visitors[pattern] = true
	}
	if r.raw != nil && !strings.Contains(r.Pattern(), "{") {
		rt.exact[routeKey{r.Method, r.Pattern()}] = exactRoute{pattern, handler}
	}
	return nil
}

// A routeKey identifies a route without wildcards, and an exactRoute serves it. The inference routes have no
// wildcards and are called most: they are found without the mux.
type (
	routeKey   struct{ method, path string }
	exactRoute struct {
		pattern string
		handler http.HandlerFunc
	}
)

// Routes lists what is served. The access matrix and the documentation are built from it.
func (rt *Router) Routes() []Route { return rt.routes }

// ServeHTTP serves a request that an edge has admitted.
func (rt *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if found, ok := rt.exact[routeKey{r.Method, r.URL.Path}]; ok && r.URL.RawPath == "" {
		r.Pattern = found.pattern
		found.handler(w, r)
		return
	}
	rt.mux.ServeHTTP(w, r)
}

// serve runs one route for an admitted request: permission, abuse guard, body, handler, answer.
func (rt *Router) serve(w http.ResponseWriter, r *http.Request, route *Route) error {
	caller, err := rt.caller(r, route)
	switch {
	case err != nil:
		return err
	case route.raw != nil:
		return route.raw(w, r)
	default:
		return rt.operate(w, r, route, caller)
	}
}

// caller returns who calls a route, or refuses a caller who may not.
func (rt *Router) caller(r *http.Request, route *Route) (tenant.Caller, error) {
	caller := edge.Caller(r.Context())
	if route.Permission == Worker {
		worker, err := rt.worker(r)
		if err != nil {
			return caller, edge.Unidentified(r, err)
		}
		edge.IdentifyWorker(r, worker)
		caller = tenant.Caller{Worker: &worker}
	}
	if err := route.admits(&caller); err != nil {
		return caller, err
	}
	if caller.InferenceOnly && !route.inference {
		return caller, fault.ScopeNotAllowed.New(
			"the scope of this API key is inference: it may call models and list them",
		)
	}
	return caller, nil
}

// operate reads the body, calls the handler and sends its answer, within the bounds of all such operations.
func (rt *Router) operate(w http.ResponseWriter, r *http.Request, route *Route, caller tenant.Caller) error {
	if !rt.Bounds.Operations.Take(1) {
		return fault.RateLimited.New("too many operations at once").In(time.Second)
	}
	done := sync.OnceFunc(func() { rt.Bounds.Operations.Give(1) })
	defer done()
	if route.spends {
		if err := rt.guarded(r.Context(), caller.Workspace); err != nil {
			return err
		}
	}
	ctx := audit.WithRequest(r.Context(), edge.RequestID(r.Context()))
	if !route.long {
		bounded, cancel := context.WithTimeout(ctx, time.Duration(rt.Bounds.Timeout.Load()))
		defer cancel()
		ctx = bounded
	}
	read, err := rt.Bounds.Read(r, min(route.input.large.most(), rt.Bounds.Body.Load()))
	if err != nil {
		return err
	}
	defer read.Release()
	if len(read.Bytes) > managementBody {
		if !rt.large.Take(1) {
			return fault.RateLimited.New("too many large bodies at once").In(time.Second)
		}
		defer rt.large.Give(1)
	}
	body := bytes.Clone(read.Bytes) // the decoded value may alias parts of it
	in, err := route.input.read(rt.registry, r, body)
	if err != nil {
		return err
	}
	if key := r.Header.Get("Idempotency-Key"); key != "" && route.Method == http.MethodPost {
		given, err := rt.idempotent(ctx, r, route, caller.Workspace, key, body, in)
		if err != nil {
			return err
		}
		given.send(w)
		return nil
	}
	out, err := route.call(ctx, caller, in)
	if err == nil && route.finish != nil {
		out, err = rt.awaited(ctx, route, out)
	}
	if err != nil {
		return err
	}
	if events, ok := out.(EventStream); ok {
		done()
		rt.stream(w, r, events)
		return nil
	}
	return rt.send(w, r, route, out)
}

// guarded counts a start of spending, and refuses one that is too many for the abuse guard.
func (rt *Router) guarded(ctx context.Context, ws tenant.ID) error {
	bounded, cancel := context.WithTimeout(ctx, time.Duration(rt.Bounds.Timeout.Load()))
	defer cancel()
	wait, ok, err := rt.guard.Allow(bounded, string(ws))
	if err != nil {
		return err
	}
	if !ok {
		return fault.AbuseGuard.New(
			"more than %d operations that start spending in %v", guardStarts, guardWindow,
		).In(wait)
	}
	return nil
}

// worker returns the training worker of a request.
func (rt *Router) worker(r *http.Request) (tenant.Worker, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if len(r.Header["Authorization"]) != 1 || !strings.EqualFold(scheme, "Bearer") || rt.Worker == nil {
		return tenant.Worker{}, fault.InvalidKey.New("send one header Authorization: Bearer %s…", apikey.WorkerPrefix)
	}
	return rt.Worker(r.Context(), token)
}

// admits refuses a caller who may not call the route. To a session, a workspace in which its person has no role is one
// that does not exist, and a route that answers by itself is not there: the dashboard calls no models with a cookie.
func (r *Route) admits(caller *tenant.Caller) error {
	session := caller.Session != ""
	switch {
	case r.Permission == Operator, r.Permission == Worker && caller.Worker != nil:
		return nil
	case r.Permission.ofSession() && r.Permission != Visitor && !session:
		return fault.NotSignedIn.New("sign in at /dashboard")
	case session && caller.Workspace != "" && caller.Role == "" && r.Permission != SessionReviewer:
		return fault.Missing.New("no workspace %q", caller.Workspace)
	case session && r.raw != nil && !r.sessions && !r.Permission.ofSession():
		return fault.Missing.New("this is not served to the dashboard: use an API key")
	case r.Permission.grants(caller.Role):
		return nil
	case r.Permission == SessionOwner:
		return fault.Forbidden.New("this needs an owner of the workspace")
	case session:
		return fault.Forbidden.New("this needs an owner or admin of the workspace")
	default:
		return fault.Forbidden.New("this needs a key whose user is an owner or admin of the workspace")
	}
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
		for name, value := range out.Headers {
			w.Header().Set(name, value)
		}
		w.WriteHeader(route.status)
		if err := out.Write(w); err != nil {
			rt.Log.Error("answer broke off", "request_id", edge.RequestID(r.Context()), "err", err)
			panic(http.ErrAbortHandler) // the caller must see an aborted answer, not a short one
		}
		return nil
	default:
		made, err := render(r, route.statusOf(out), out)
		if err != nil {
			return fmt.Errorf("render %s: %w", route.Pattern(), err)
		}
		if headed, ok := out.(Headed); ok {
			for name, value := range headed.Headers() {
				w.Header().Set(name, value)
			}
		}
		made.send(w)
		return nil
	}
}

// Visitor reports whether the route of a request needs no session: see edge.Dashboard.
func (rt *Router) Visitor(r *http.Request) bool {
	_, pattern := rt.mux.Handler(r)
	return rt.visitors[pattern]
}

// unknown answers a request that no route matches: 405 with Allow where another method would match, else 404. A browser
// that asks for the root is sent to the dashboard, or to the documentation where there is none.
func (rt *Router) unknown(w http.ResponseWriter, r *http.Request) {
	if allowed := strings.Join(rt.methods(r.URL), ", "); allowed != "" {
		w.Header().Set("Allow", allowed)
		edge.Refuse(w, r, fault.MethodNotAllowed.New("this path takes %s", allowed))
		return
	}
	if r.URL.Path != "/" || len(rt.methods(documentation)) == 0 {
		asked, meant := edge.AskedPath(r), ""
		if asked == r.URL.Path {
			meant = rt.meant(asked)
		}
		edge.Refuse(w, r, edge.NoPath(asked, meant))
		return
	}
	if r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html") {
		w.Header().Set("Location", rt.front().Path)
		w.WriteHeader(http.StatusFound)
		return
	}
	edge.Refuse(
		w, r, fault.Missing.New("no such path: /; the API is below /v1, and described at %s", documentation.Path),
	)
}

// Pages for people.
var (
	documentation = &url.URL{Path: "/docs"}
	dashboard     = &url.URL{Path: "/dashboard"}
)

// front is the first page that a person sees.
func (rt *Router) front() *url.URL {
	if len(rt.pages) > 0 {
		return dashboard
	}
	return documentation
}

// methods returns the methods that a path takes: none if there is no such path.
func (rt *Router) methods(path *url.URL) (allowed []string) {
	for _, method := range []string{
		http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	} {
		probe := &http.Request{Method: method, URL: path}
		if _, pattern := rt.mux.Handler(probe); pattern != "" && pattern != "/" && !rt.pages[pattern] {
			allowed = append(allowed, method)
		}
	}
	return allowed
}

// meant returns the path that a caller probably meant, or nothing: one without the version, with it twice, with another
// prefix or with a slash at the end.
func (rt *Router) meant(path string) string {
	const mostSegments = 6 // that are tried, since a caller without a key can ask
	path = strings.TrimRight(path, "/")
	for range mostSegments {
		for _, candidate := range []string{path, "/v1" + path} {
			if len(rt.methods(&url.URL{Path: candidate})) > 0 {
				return candidate
			}
		}
		next := strings.IndexByte(strings.TrimPrefix(path, "/"), '/')
		if next < 0 {
			break
		}
		path = path[next+1:]
	}
	return ""
}
