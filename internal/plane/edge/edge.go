// Package edge is the first handler of every request, for the inference and the management API alike. It assigns the
// request id, authenticates the key, bounds body and connections, and writes metrics, span and log line. It reads the
// live directory and reaches no database.
package edge

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"sovereign/internal/base/apikey"
	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/limit"
	"sovereign/internal/base/panics"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/net/admission"
	"sovereign/internal/net/pace"
)

// A Config holds what an edge depends on.
type Config struct {
	Directory  *live.Directory
	Limits     *live.AllLimits // of keys and workspaces; nil limits nothing
	Log        *slog.Logger
	Metrics    prometheus.Registerer // nil counts nothing
	Tracer     trace.Tracer          // nil traces nothing
	Gate       func() error          // nil error while serving; otherwise the refusal of every API request
	Bounds     *Bounds
	Dashboard  *Dashboard  // nil serves no sessions
	Closing    func() bool // true while stopping: every connection is closed after its response
	ShowCauses bool        // for operators: a 5xx response includes its cause
}

// Bounds are the limits that a reload may change while requests run.
type Bounds struct {
	Connections *admission.Table         // that are open
	Body        atomic.Int64             // bytes of one body
	Buffered    *limit.Shares[tenant.ID] // bytes of all bodies in memory at once, by workspace
	Operations  *limit.Budget            // management operations that run at once
	Timeout     atomic.Int64             // nanoseconds for a management operation, and for one write to any client
	Proxies     atomic.Pointer[[]netip.Prefix]
	Unlimited   atomic.Pointer[[]netip.Prefix] // addresses without limits per address

	Pace pace.Limit // of bodies; no reload changes it
}

// NewBounds returns bounds that refuse everything until they are set.
func NewBounds() *Bounds {
	return &Bounds{
		Connections: admission.NewTable(), Buffered: limit.NewShares[tenant.ID](0), Operations: limit.NewBudget(0),
	}
}

// An Edge wraps a handler.
type Edge struct {
	Config
	next    http.Handler
	metrics *httpMetrics
}

// New wraps next. A request below /v1 or /v2, with or without /api before it, reaches next only with a valid key, and
// one below /dashboard/api or /dashboard/v1 only with a session, but for the routes of visitors. Caller returns whose
// it is.
func New(c Config, next http.Handler) *Edge {
	return &Edge{Config: c, next: next, metrics: newHTTPMetrics(c.Metrics)}
}

// ServeHTTP serves one request with a request id, metrics, a span and, where it matters, a log line.
func (e *Edge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	call := &call{
		Context: r.Context(), edge: e, conn: connectionOf(r.Context()), id: id.At("req", now), started: now,
		showCauses: e.ShowCauses,
	}
	r, span := e.begin(r, call) //nolint:contextcheck // a call wraps the request's own
	defer span.End()
	out := &call.out
	*out = recorder{
		ResponseWriter: w, timeout: time.Duration(e.Bounds.Timeout.Load()),
		setsDeadlines: call.conn == nil || r.ProtoMajor > 1,
	}
	header := w.Header()
	call.idHeader[0] = call.id
	header["X-Request-Id"] = call.idHeader[:]
	header["X-Content-Type-Options"] = nosniff
	header["Cache-Control"] = noStore
	if e.Closing != nil && e.Closing() {
		header.Set("Connection", "close")
	}
	defer func() {
		p := recover()
		broken := p == http.ErrAbortHandler //nolint:errorlint // as net/http compares it
		if p != nil && !broken {
			panics.Note(e.Log, "a request", p, "request_id", call.id)
			if broken = out.status != 0; !broken {
				Refuse(out, r, fmt.Errorf("panic: %v", p))
			}
		}
		e.finish(out, r, call, span)
		if broken {
			panic(http.ErrAbortHandler) // a response that has begun must break off visibly
		}
	}()
	if err := e.admit(out, r, call); err != nil {
		Refuse(out, r, err)
	}
}

// Values of headers that are the same in every response. They are shared and never changed in place.
var (
	nosniff = []string{"nosniff"}
	noStore = []string{"no-store"}
)

// admit decides by path and key alone, before any route is looked up: without a key, every path below /v1 and /v2 is
// 401 and none is 404.
func (e *Edge) admit(w http.ResponseWriter, r *http.Request, call *call) error {
	if call.conn != nil && call.conn.refused {
		call.closes = true
		return fault.RateLimited.New("too many connections").In(time.Second)
	}
	where, ok := canonical(r)
	if !ok {
		return NoPath(r.URL.EscapedPath(), path.Clean("/"+r.URL.Path))
	}
	keyed, tokened, session := needsKey(where.URL.Path), below(where.URL.Path, tokenPaths) ||
		below(where.URL.Path, workerPaths), needsSession(where.URL.Path)
	if e.Gate != nil && (keyed || tokened || below(where.URL.Path, "/admin") || below(where.URL.Path, "/dashboard")) {
		if err := e.Gate(); err != nil {
			return err
		}
	}
	switch {
	case session:
		var err error
		if where, err = e.admitSession(where, call); err != nil {
			return err
		}
	case keyed:
		caller, err := e.authenticate(r, call)
		if err != nil {
			return cmp.Or(e.countKeyless(r, call), err)
		}
		if !call.conn.prove(caller.Workspace) {
			call.closes = true
			return fault.RateLimited.New("the workspace has too many open connections").In(time.Second)
		}
		call.caller = caller
	default:
		if !tokened { // see Identify
			if err := e.countKeyless(r, call); err != nil {
				return err
			}
		}
		call.caller = tenant.Caller{User: peer(r.Context())}
	}
	defer func() { call.route = where.Pattern }() // the next handler sets it, and may panic
	e.next.ServeHTTP(w, where)
	return nil
}

// NoPath returns the refusal of a path that is not served. It names one that was probably meant, unless that is empty.
func NoPath(asked, meant string) *fault.Fault {
	const longest = 200
	for _, path := range [...]string{asked, meant} { // asked may be escaped
		if shown := withoutToken(path); shown != path {
			asked, meant = shown, ""
		}
	}
	if len(asked) > longest {
		asked, meant = asked[:longest]+"…", ""
	}
	if meant == "" || meant == asked {
		return fault.Missing.New("no such path: %s", asked)
	}
	return fault.Missing.New("no such path: %s; did you mean %s?", asked, meant)
}

// needsKey reports whether every path below this one needs a key.
func needsKey(path string) bool { return below(path, "/v1") || below(path, "/v2") }

// countKeyless counts a request without a valid key against its sender's address, and refuses those beyond the limit.
func (e *Edge) countKeyless(r *http.Request, call *call) error {
	if call.conn == nil {
		return nil
	}
	wait, ok := e.Bounds.Connections.Start(e.Bounds.limited(e.Bounds.sender(r)), call.started)
	if ok {
		return nil
	}
	call.closes = !call.conn.proxied
	return fault.RateLimited.New("too many requests without a valid key").In(wait)
}

func below(path, mount string) bool { return path == mount || strings.HasPrefix(path, mount+"/") }

// canonical returns r with /api/v1 rewritten to /v1, and /api/v2 to /v2. It returns false for a path that is not in
// canonical form (//, dots, an encoded slash where it would change the path). Redirecting such a path would answer a
// caller without a key.
func canonical(r *http.Request) (*http.Request, bool) {
	if isPlainPath(r.URL) {
		return r, true
	}
	decoded, raw := r.URL.Path, r.URL.EscapedPath()
	if decoded == "" || decoded[0] != '/' || path.Clean(decoded) != strings.TrimSuffix(decoded, "/") && decoded != "/" {
		return nil, false
	}
	if inner, ok := strings.CutPrefix(decoded, "/api"); ok && needsKey(inner) {
		rest := strings.TrimPrefix(raw, "/api")
		if rest == raw || !strings.HasPrefix(rest, inner[:len("/v1")]) {
			return nil, false
		}
		clone := *r
		address := *r.URL
		address.Path, address.RawPath = inner, rest
		clone.URL = &address
		return &clone, true
	}
	return r, true
}

// isPlainPath reports whether a path below /v1 or /v2 is certainly in canonical form. It is a fast check that most
// paths pass.
func isPlainPath(u *url.URL) bool {
	if u.RawPath != "" || !strings.HasPrefix(u.Path, "/v1/") && !strings.HasPrefix(u.Path, "/v2/") {
		return false
	}
	before := byte(0)
	for i := range len(u.Path) {
		c := u.Path[i]
		if before == '/' && (c == '/' || c == '.') || c == '%' {
			return false
		}
		before = c
	}
	return before != '/'
}

// authenticate returns whose key the request carries.
func (e *Edge) authenticate(r *http.Request, call *call) (tenant.Caller, error) {
	header := r.Header["Authorization"]
	if len(header) != 1 {
		return tenant.Caller{}, fault.InvalidKey.New("send one header Authorization: Bearer %s…", apikey.Prefix)
	}
	digest, err := call.readKey(header[0], r.ProtoMajor == 1)
	if err != nil {
		return tenant.Caller{}, err
	}
	call.grant = e.Directory.Grant(digest)
	caller, status := e.Directory.Authenticate(digest, clock.Of(call.started))
	switch status {
	case live.Granted:
		err := e.limit(r, call, &caller)
		return caller, err
	case live.Departed:
		return caller, fault.Forbidden.New("the key's user is no longer a member of the workspace")
	default:
		return tenant.Caller{}, fault.InvalidKey.New("the API key is not known, or was revoked")
	}
}

// limit refuses a key that has expired, or that may not be used from where the request comes, and notes its scope.
func (e *Edge) limit(r *http.Request, call *call, caller *tenant.Caller) error {
	key, workspace := e.Limits.Of(caller)
	for _, l := range [...]*live.Limits{key, workspace} {
		switch {
		case l == nil:
		case l.Expired(clock.Of(call.started)):
			return fault.KeyExpired.New("the API key, or its workspace, expired at %s", l.ExpiresAt)
		case len(l.Addresses) > 0 && !l.Addresses.Allow(e.Bounds.sender(r)):
			return fault.AddressNotAllowed.New("the API key may not be used from this address")
		default:
			caller.InferenceOnly = caller.InferenceOnly || l.InferenceOnly
		}
	}
	return nil
}

// readKey returns the digest of the key in a header. A connection with one request at a time (alone) caches the last
// header and its digest, since most connections send the same key in every request. The cache leaks nothing by its
// timing: the random part of a key is compared in one step, or nearly so, and only with the key that this same
// connection sent.
func (c *call) readKey(header string, alone bool) (apikey.Digest, error) {
	alone = alone && c.conn != nil
	if alone && c.conn.lastHeader.Reveal() == header && header != "" {
		return c.conn.lastDigest, nil
	}
	scheme, key, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return apikey.Digest{}, fault.InvalidKey.New("the Authorization header must be Bearer and a key")
	}
	digest, ok := apikey.Parse(key)
	if !ok {
		return apikey.Digest{}, fault.InvalidKey.New("the API key is malformed: a key begins with %s", apikey.Prefix)
	}
	if alone {
		c.conn.lastHeader, c.conn.lastDigest = secret.New(header), digest
	}
	return digest, nil
}
