// Package edge is what every request meets first, whichever plane answers it: an id, a key, a bound, a log line. It
// reads the live directory and reaches no database.
package edge

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"runtime/debug"
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
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
)

// A Config is what an edge stands on.
type Config struct {
	Directory *live.Directory
	Log       *slog.Logger
	Metrics   prometheus.Registerer // nil counts nothing
	Tracer    trace.Tracer          // nil traces nothing
	Gate      func() error          // nil while serving; else why not
	Bounds    *Bounds
	Closing   func() bool // true while stopping: connections are ended with their answer
	Candid    bool        // for operators: a fault of ours is told with its cause
}

// Bounds are the limits that a reload may change while requests run.
type Bounds struct {
	Body       atomic.Int64  // bytes of one body
	Buffered   *limit.Budget // bytes of all bodies held at once
	Operations *limit.Budget // management operations that run at once
	Timeout    atomic.Int64  // nanoseconds that a management operation may take
	Proxies    atomic.Pointer[[]netip.Prefix]
}

// NewBounds are bounds that refuse everything until they are set.
func NewBounds() *Bounds {
	return &Bounds{Buffered: limit.NewBudget(0), Operations: limit.NewBudget(0)}
}

// An Edge stands before a handler.
type Edge struct {
	Config
	next  http.Handler
	watch *watch
}

// New stands before next. What is below /v1, or /api/v1, reaches it only with a key in force; Caller names whose.
func New(c Config, next http.Handler) *Edge {
	return &Edge{Config: c, next: next, watch: newWatch(c.Metrics)}
}

// ServeHTTP answers one request, and leaves a request id, a metric, a span and, where it matters, a log line.
func (e *Edge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	call := &call{Context: r.Context(), conn: on(r.Context()), id: id.At("req", now), started: now, candid: e.Candid}
	r, span := e.begin(r, call) //nolint:contextcheck // a call stands on the request's own
	defer span.End()
	out := &call.out
	*out = recorder{ResponseWriter: w, patience: time.Duration(e.Bounds.Timeout.Load()), careful: call.conn == nil || r.ProtoMajor > 1}
	header := w.Header()
	call.told[0] = call.id
	header["X-Request-Id"] = call.told[:]
	header["X-Content-Type-Options"] = nosniff
	header["Cache-Control"] = noStore
	if e.Closing != nil && e.Closing() {
		header.Set("Connection", "close")
	}
	defer func() {
		p := recover()
		broken := p == http.ErrAbortHandler //nolint:errorlint // what net/http compares, and how
		if p != nil && !broken {
			e.Log.Error("panic", "request_id", call.id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			if broken = out.status != 0; !broken {
				Refuse(out, r, fmt.Errorf("panic: %v", p))
			}
		}
		e.finish(out, r, call, span)
		if broken {
			panic(http.ErrAbortHandler) // an answer that has begun must be seen to break off, not to end
		}
	}()
	if err := e.admit(out, r, call); err != nil {
		Refuse(out, r, err)
	}
}

// Headers that are always the same. Nobody changes the value of one in place.
var (
	nosniff = []string{"nosniff"}
	noStore = []string{"no-store"}
)

// admit decides by path and key alone, before any route is looked up: below /v1 nothing exists for who has no key.
func (e *Edge) admit(w http.ResponseWriter, r *http.Request, call *call) error {
	if call.conn != nil && call.conn.over { // it is only kept to be refused
		w.Header().Set("Connection", "close")
		return fault.RateLimited.New("too many connections").In(time.Second)
	}
	where, ok := canonical(r)
	if !ok {
		return fault.Missing.New("no such path")
	}
	keyed := below(where.URL.Path, "/v1")
	if e.Gate != nil && (keyed || below(where.URL.Path, "/admin")) {
		if err := e.Gate(); err != nil {
			return err
		}
	}
	if keyed {
		caller, err := e.authenticate(r, call)
		if err != nil {
			return err
		}
		call.caller = caller
	} else {
		call.caller = tenant.Caller{User: peer(r.Context())}
	}
	defer func() { call.route = where.Pattern }() // the next handler finds it, and may panic
	e.next.ServeHTTP(w, where)
	return nil
}

func below(path, mount string) bool { return path == mount || strings.HasPrefix(path, mount+"/") }

// canonical is r with /api/v1 read as /v1. A path that is not written plainly (//, dots, an encoded slash in a place
// where it would make another path) is nobody's: redirecting it would answer a caller without a key.
func canonical(r *http.Request) (*http.Request, bool) {
	if plainly(r.URL) {
		return r, true
	}
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

// plainly reports whether a path below /v1 is surely written plainly: most are.
func plainly(u *url.URL) bool {
	if u.RawPath != "" || !strings.HasPrefix(u.Path, "/v1/") {
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

func (e *Edge) authenticate(r *http.Request, call *call) (tenant.Caller, error) {
	header := r.Header["Authorization"]
	if len(header) != 1 {
		return tenant.Caller{}, fault.InvalidKey.New("send one header Authorization: Bearer %s…", apikey.Prefix)
	}
	digest, err := call.read(header[0], r.ProtoMajor == 1)
	if err != nil {
		return tenant.Caller{}, err
	}
	caller, verdict := e.Directory.Authenticate(digest, clock.Of(call.started))
	switch verdict {
	case live.Granted:
		return caller, nil
	case live.Departed:
		return caller, fault.Forbidden.New("the key's user is no longer a member of the workspace")
	default:
		return tenant.Caller{}, fault.InvalidKey.New("the API key is not known, or was revoked")
	}
}

// read is the digest of the key in a header. A connection that has one request at a time remembers what it read last: most of them show
// the same key for as long as they last. Nobody learns another's key from how long that takes: a key's random part is compared at once, or
// nearly so.
func (c *call) read(header string, alone bool) (apikey.Digest, error) {
	alone = alone && c.conn != nil
	if alone && c.conn.shown.Reveal() == header && header != "" {
		return c.conn.digest, nil
	}
	scheme, key, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return apikey.Digest{}, fault.InvalidKey.New("the Authorization header must be Bearer and a key")
	}
	digest, ok := apikey.Parse(key)
	if !ok {
		return apikey.Digest{}, fault.InvalidKey.New("the API key is malformed")
	}
	if alone {
		c.conn.shown, c.conn.digest = secret.New(header), digest
	}
	return digest, nil
}
