package edge

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
)

// The mounts of the dashboard's API. Every path below them is for sessions: a key is ignored there, as a cookie is
// ignored elsewhere.
const (
	sessionAPI   = "/dashboard/api"  // the dashboard's own routes
	sessionScope = sessionAPI + "/w" // those of a workspace: its id is the next segment
	sessionV1    = "/dashboard/v1"   // the routes of /v1, again with the id of a workspace as the next segment
	// of the cookie: a browser takes one of that name over TLS alone, for this host alone
	sessionName  = "__Host-sovereign"
	stateName    = "__Host-sovereign-oidc"
	secretLength = 32  // bytes of a session's secret
	agentLength  = 200 // of a User-Agent header that is kept
)

// A Dashboard is what an edge knows of sessions. An edge without one serves nobody below the dashboard's mounts.
type Dashboard struct {
	Sessions *live.Sessions
	Visitor  func(*http.Request) bool // whether the route of a request needs no session
	Hosts    atomic.Pointer[[]string] // names that the dashboard is reached by, beside this machine's own
	origins  http.CrossOriginProtection
}

// A Visit is what is known of a request to the dashboard's API beside its caller.
type Visit struct {
	Address string // of the sender
	Agent   string // the browser, as it calls itself
	State   string // of a sign-in that was begun at an identity provider, from its cookie
	Secure  bool   // a cookie that is Secure may be set: the request came over TLS, or within this machine

	digest live.SessionDigest
}

// VisitOf returns the visit of a request's context.
func VisitOf(ctx context.Context) Visit { return callOf(ctx).visit }

// NewSecret returns the text of a session's cookie and its digest, of 32 random bytes.
func NewSecret(random [secretLength]byte) (string, live.SessionDigest) {
	text := base64.RawURLEncoding.EncodeToString(random[:])
	return text, sha256.Sum256([]byte(text))
}

// SessionCookie returns the header that gives a browser a session's secret until then; an empty secret takes it away.
func SessionCookie(secret string, until time.Duration) string {
	cookie := http.Cookie{ //nolint:gosec // every attribute is set
		Name: sessionName, Value: secret, Path: "/", MaxAge: int(until.Seconds()),
		Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	}
	if secret == "" {
		cookie.MaxAge = -1
	}
	return cookie.String()
}

// StateCookie returns the header that gives a browser the state of a sign-in at an identity provider. The browser
// brings it back when the provider sends it here, so it is Lax.
func StateCookie(state string, until time.Duration) string {
	return (&http.Cookie{
		Name: stateName, Value: state, Path: "/", MaxAge: int(until.Seconds()), Secure: true, HttpOnly: true,
		SameSite: http.SameSiteLaxMode,
	}).String()
}

// SessionEnded reports whether the session of a request has ended, or its person has lost the role in the workspace
// with which the request was admitted. An answer that lasts must ask now and then. It is false for a caller without a
// session.
func SessionEnded(ctx context.Context) bool {
	c := callOf(ctx)
	if c.caller.Session == "" || c.edge == nil || c.edge.Dashboard == nil {
		return false
	}
	if !c.edge.Dashboard.Sessions.InForce(c.visit.digest, clock.Now()) {
		return true
	}
	return c.caller.Role != "" && RoleNow(ctx) != c.caller.Role
}

// RoleNow returns the present role of a session's person in the workspace of the request.
func RoleNow(ctx context.Context) tenant.Role {
	c := callOf(ctx)
	if c.edge == nil || c.caller.Workspace == "" {
		return ""
	}
	return c.edge.Directory.Role(live.Member{Workspace: c.caller.Workspace, User: c.caller.User})
}

// AskedPath returns the path that a client asked for, before the edge took the workspace out of it.
func AskedPath(r *http.Request) string { return cmp.Or(callOf(r.Context()).asked, r.URL.Path) }

// needsSession reports whether a path is one of the dashboard's API.
func needsSession(path string) bool { return below(path, sessionAPI) || below(path, sessionV1) }

// admitSession decides about a request to the dashboard's API by its host, its origin and its cookie, before any route
// is looked up, and returns it as the router knows it. Only the routes of visitors are served without a session.
func (e *Edge) admitSession(r *http.Request, call *call) (*http.Request, error) {
	d := e.Dashboard
	if d == nil {
		return nil, NoPath(r.URL.EscapedPath(), "")
	}
	call.asked = r.URL.Path
	call.visit = Visit{Address: e.Bounds.client(r), Agent: cut(r.UserAgent(), agentLength), Secure: e.Bounds.secure(r)}
	if states := r.CookiesNamed(stateName); len(states) == 1 {
		call.visit.State = states[0].Value
	}
	if !d.serves(r) {
		return nil, cmp.Or(e.countKeyless(r, call), error(fault.CrossOrigin.New(
			"the dashboard is not served for this Host; dashboard.hosts in the configuration lists the names that it is reached by")))
	}
	if err := d.origins.Check(r); err != nil {
		return nil, cmp.Or(e.countKeyless(r, call), error(fault.CrossOrigin.Because(
			err, "a page of another site may not change anything here",
		)))
	}
	session, digest, ok := d.session(r, clock.Of(call.started))
	if !ok {
		if !below(r.URL.Path, sessionScope) && below(r.URL.Path, sessionAPI) && d.Visitor != nil && d.Visitor(r) {
			return r, e.countKeyless(r, call)
		}
		return nil, cmp.Or(e.countKeyless(r, call), error(fault.NotSignedIn.New("sign in at /dashboard")))
	}
	if !call.conn.prove(tenant.ID(session.User)) {
		call.closes = true
		return nil, fault.RateLimited.New("too many open connections of one person").In(time.Second)
	}
	call.visit.digest = digest
	call.caller = tenant.Caller{User: session.User, Session: session.ID}
	return e.inWorkspace(r, call)
}

// inWorkspace takes the workspace out of the path, and notes the role that the session's person has in it now. The
// router refuses the person who has none.
func (e *Edge) inWorkspace(r *http.Request, call *call) (*http.Request, error) {
	var mount, inner string
	switch {
	case below(r.URL.Path, sessionScope):
		mount, inner = sessionScope, sessionScope
	case below(r.URL.Path, sessionV1):
		mount, inner = sessionV1, "/v1"
	default:
		return r, nil
	}
	raw, plain := strings.CutPrefix(r.URL.EscapedPath(), mount+"/")
	name, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, mount+"/"), "/")
	rawName, rawRest, _ := strings.Cut(raw, "/")
	if !plain || name == "" || name != rawName { // an encoded slash or letter in what decides
		return nil, NoPath(r.URL.EscapedPath(), "")
	}
	caller := &call.caller
	caller.Workspace = tenant.ID(name)
	caller.Role = e.Directory.Role(live.Member{Workspace: caller.Workspace, User: caller.User})
	if _, limits := e.Limits.Of(caller); limits != nil && len(limits.Addresses) > 0 &&
		!limits.Addresses.Allow(e.Bounds.sender(r)) {
		if caller.Role == "" { // a reviewer, or a stranger, who learns nothing
			return nil, fault.Missing.New("no workspace %q", caller.Workspace)
		}
		return nil, fault.AddressNotAllowed.New("the workspace may not be used from this address")
	}
	clone := *r
	address := *r.URL
	address.Path, address.RawPath = inner+"/"+rest, inner+"/"+rawRest
	if address.RawPath == (&url.URL{Path: address.Path}).EscapedPath() {
		address.RawPath = ""
	}
	clone.URL = &address
	return &clone, nil
}

// session returns the session of the request's cookie, if it carries exactly one.
func (d *Dashboard) session(r *http.Request, now clock.Time) (*live.Session, live.SessionDigest, bool) {
	cookies := r.CookiesNamed(sessionName)
	if len(cookies) != 1 || len(cookies[0].Value) != base64.RawURLEncoding.EncodedLen(secretLength) {
		return nil, live.SessionDigest{}, false
	}
	digest := live.SessionDigest(sha256.Sum256([]byte(cookies[0].Value)))
	session, ok := d.Sessions.Of(digest, now)
	return session, digest, ok
}

// serves reports whether the request's Host is a name of the dashboard: one that is configured, a loopback name or
// address, or the address that the connection came to. A page elsewhere could otherwise reach this server through its
// visitor's browser by a name of its own (DNS rebinding).
func (d *Dashboard) serves(r *http.Request) bool {
	host := Hostname(r.Host)
	if names := d.Hosts.Load(); names != nil && slices.Contains(*names, host) {
		return true
	}
	return IsOwnHost(host, r.Context().Value(http.LocalAddrContextKey))
}

// Hostname returns the host of a Host header or a listening address, without the port, the brackets of IPv6 and the dot
// that may end a name.
func Hostname(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// IsOwnHost reports whether host is localhost, an address of the loopback interface, or the local one of a connection.
func IsOwnHost(host string, local any) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	at, ok := local.(*net.TCPAddr)
	return ip != nil && (ip.IsLoopback() || ok && at.IP.Equal(ip))
}

// secure reports whether nobody between the browser and this server can read the request: it came over TLS, here or as
// a trusted proxy says, or it did not leave the machine.
func (b *Bounds) secure(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	address := peer.Addr().Unmap()
	if b.isProxy(address) {
		return strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https") ||
			b.sender(r).IsLoopback() && IsOwnHost(Hostname(r.Host), nil)
	}
	return address.IsLoopback() && IsOwnHost(Hostname(r.Host), nil)
}

// cut returns the first bytes of a text, as far as whole characters fit.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
