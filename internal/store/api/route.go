// Package api serves the management API. A route is declared with its permission and its types; dispatch, validation,
// the access matrix and the OpenAPI document are derived from the routes.
package api

import (
	"context"
	"io"
	"net/http"
	"reflect"

	"sovereign/internal/base/tenant"
)

// A Permission says who may call a route. Its zero value is no permission, and NewRouter refuses a route without one.
type Permission int

// The permissions.
const (
	undeclared Permission = iota
	Public                // no key needed; mounted at the root
	Token                 // a token in the path, which the handler checks; mounted at the root
	Reader                // any key of the workspace
	Admin                 // a key whose user is an owner or an admin at the time of the call
	Worker                // the token of a training worker; mounted at /workers/v1
	Operator              // served on the operator's socket only

	// The dashboard's own routes, for sessions instead of keys.
	Visitor         // no session needed; mounted at /dashboard/api
	SignedIn        // any session; mounted at /dashboard/api
	SessionReviewer // any session: the handler checks that the person may see the queue; for a workspace
	SessionMember   // the session of a member of the workspace
	SessionAdmin    // the session of an owner or an admin of the workspace
	SessionOwner    // the session of an owner of the workspace
)

// String returns the name of p in the documentation.
func (p Permission) String() string {
	return [...]string{
		"undeclared", "public", "a token in the path", "any key", "owner or admin", "a worker's token", "operator",
		"anyone", "any session", "the session of a reviewer or member", "the session of a member",
		"the session of an owner or admin", "the session of an owner",
	}[p]
}

// grants reports whether a member of that role may call the route.
func (p Permission) grants(role tenant.Role) bool {
	switch p {
	case Public, Token, Visitor, SignedIn, SessionReviewer:
		return true
	case Reader, SessionMember:
		return role.Valid()
	case Admin, SessionAdmin:
		return role.Manages()
	case SessionOwner:
		return role == tenant.Owner
	default:
		return false
	}
}

// A Route is one operation.
type Route struct {
	Method string
	// Path is below /v1 or /v2 for keys, below / for the public, below /admin for operators, below /dashboard/api for
	// sessions: see URL.
	Path       string
	Permission Permission
	Summary    string

	status          int
	version2        bool   // served below /v2
	spends          bool   // counts towards the abuse guard
	flat            bool   // validation refusals are {"error": "text"}
	secret          bool   // the answer shows a secret, and is not stored for an Idempotency-Key
	outside         bool   // has effects outside the database
	produces        string // media type of a Document or Stream
	anyQuery        bool   // ignores unknown parameters
	long            bool   // exempt from the timeout of an operation
	events          bool   // may answer with server-sent events
	inference       bool   // a key whose scope is inference may call it
	management      bool   // it may not, though the route is Raw
	sessions        bool   // it is served to sessions, though the route is Raw
	html            bool   // a page for people: not part of the documented interface
	requestHeaders  []header
	responseHeaders []header
	in, out         reflect.Type
	shapes          []reflect.Type // of the answer, for the documentation, where out does not tell
	input           *input         // decodes the request; set when the router is built
	call            func(ctx context.Context, caller tenant.Caller, in any) (any, error)
	raw             func(http.ResponseWriter, *http.Request) error // instead of call
	// finish is called after call, whose answer is a ticket: see PostAwaited.
	finish func(ctx context.Context, caller tenant.Caller, ticket []byte) (any, error)
}

// An Option refines a route.
type Option func(*Route)

// Creates sets the status to 201.
func Creates(r *Route) { r.status = http.StatusCreated }

// Accepts sets the status to 202: the work continues in the background.
func Accepts(r *Route) { r.status = http.StatusAccepted }

// Version2 serves the route below /v2 instead of /v1: it has the form of another vendor's second version.
func Version2(r *Route) { r.version2 = true }

// Spends counts the route towards the workspace's abuse guard.
func Spends(r *Route) { r.spends = true }

// Flat gives validation refusals the plain shape of the training and infrastructure endpoints.
func Flat(r *Route) { r.flat = true }

// ShowsSecret says that the answer holds a secret that is shown once.
func ShowsSecret(r *Route) { r.secret = true }

// Outside says that the operation has effects outside the database. They cannot commit together with an
// Idempotency-Key, so such a header is refused.
func Outside(r *Route) { r.outside = true }

// Produces sets the media type of an answer that is not JSON, for the documentation.
func Produces(contentType string) Option { return func(r *Route) { r.produces = contentType } }

// Shapes documents an answer that has one of several shapes.
func Shapes(types ...reflect.Type) Option { return func(r *Route) { r.shapes = types } }

// Redirects sets the status to 303: the answer is a Document whose headers say where to.
func Redirects(r *Route) { r.status = http.StatusSeeOther }

// AnyQuery ignores parameters of the query that the operation does not take, where others make the URL.
func AnyQuery(r *Route) { r.anyQuery = true }

// Long exempts the operation from the usual timeout: a backup, not a lookup.
func Long(r *Route) { r.long = true }

// RequestHeader documents a header that the operation reads.
func RequestHeader(name, doc string) Option {
	return func(r *Route) { r.requestHeaders = append(r.requestHeaders, header{name, doc}) }
}

// ResponseHeader documents a header of the answer.
func ResponseHeader(name, doc string) Option {
	return func(r *Route) { r.responseHeaders = append(r.responseHeaders, header{name, doc}) }
}

// MayStream says that the answer may also be sent as server-sent events.
func MayStream(r *Route) { r.events = true }

// Management closes a Raw route to keys whose scope is inference alone.
func Management(r *Route) { r.management = true }

// Sessions opens a Raw route to the dashboard's sessions: it calls no models.
func Sessions(r *Route) { r.sessions = true }

// Inference opens the route to keys whose scope is inference alone. Raw routes are open to them by themselves.
func Inference(r *Route) { r.inference = true }

type header struct{ name, doc string }

// A Handler does the work of a route. In is decoded from the request as described at input; Out is the answer's body.
type Handler[In, Out any] func(ctx context.Context, caller tenant.Caller, in In) (Out, error)

// Get declares a read.
func Get[In, Out any](path string, p Permission, h Handler[In, Out], summary string, options ...Option) Route {
	return route(http.MethodGet, path, p, h, summary, options)
}

// Post declares a creation or an action.
func Post[In, Out any](path string, p Permission, h Handler[In, Out], summary string, options ...Option) Route {
	return route(http.MethodPost, path, p, h, summary, options)
}

// Put declares an upsert.
func Put[In, Out any](path string, p Permission, h Handler[In, Out], summary string, options ...Option) Route {
	return route(http.MethodPut, path, p, h, summary, options)
}

// Patch declares a partial change.
func Patch[In, Out any](path string, p Permission, h Handler[In, Out], summary string, options ...Option) Route {
	return route(http.MethodPatch, path, p, h, summary, options)
}

// Delete declares a deletion.
func Delete[In, Out any](path string, p Permission, h Handler[In, Out], summary string, options ...Option) Route {
	return route(http.MethodDelete, path, p, h, summary, options)
}

// Raw declares a POST whose handler reads the request and writes the answer itself, as inference does. It is admitted
// and documented like any other route. In and Out are only for the documentation, and the handler applies limits and
// timeouts itself.
func Raw[In, Out any](
	path string, p Permission, serve func(http.ResponseWriter, *http.Request) error, summary string, options ...Option,
) Route {
	r := route[In, Out](http.MethodPost, path, p, nil, summary, options)
	r.raw, r.inference = serve, !r.management
	return r
}

// HTML declares a page for people, which anyone may read. Its handler writes the answer itself. A page is no part of
// the interface: the OpenAPI document does not list it.
func HTML(path string, serve func(http.ResponseWriter, *http.Request) error, summary string) Route {
	r := Route{
		Method: http.MethodGet, Path: path, Permission: Public, Summary: summary, status: http.StatusOK,
		in: reflect.TypeFor[pagePath](), out: reflect.TypeFor[Document](),
	}
	r.raw, r.html = serve, true
	return r
}

// pagePath takes the wildcard of a page's path.
type pagePath struct {
	Path string `path:"path"`
}

func route[In, Out any](method, path string, p Permission, h Handler[In, Out], summary string, options []Option) Route {
	r := Route{
		Method: method, Path: path, Permission: p, Summary: summary, status: http.StatusOK,
		in: reflect.TypeFor[In](), out: reflect.TypeFor[Out](),
		call: func(ctx context.Context, caller tenant.Caller, in any) (any, error) { return h(ctx, caller, in.(In)) },
	}
	for _, option := range options {
		option(&r)
	}
	return r
}

// mount returns the path prefix of routes with this permission.
func (p Permission) mount() string {
	switch p {
	case Public, Token:
		return ""
	case Worker:
		return "/workers/v1"
	case Operator:
		return "/admin"
	case Visitor, SignedIn:
		return "/dashboard/api"
	case SessionReviewer, SessionMember, SessionAdmin, SessionOwner:
		return sessionScope
	default:
		return "/v1"
	}
}

// sessionScope is the mount of the routes of sessions in a workspace, as the router sees it.
const sessionScope = "/dashboard/api/w"

// ofSession reports whether the route is the dashboard's own.
func (p Permission) ofSession() bool { return p >= Visitor }

// ofWorkspace reports whether the route of the dashboard is for one workspace.
func (p Permission) ofWorkspace() bool { return p >= SessionReviewer }

// URL returns the path of the route as a client asks for it: with a workspace, where the dashboard's paths have one.
func (r Route) URL() string {
	if r.Permission.ofWorkspace() {
		return sessionScope + "/{workspace}" + r.Path
	}
	return r.Pattern()
}

// CookieURL returns the path of a route of /v1 on the dashboard's mount of it, which serves it to sessions. It is empty
// for a route that is not there: the inference routes and those of /v2.
func (r Route) CookieURL() string {
	if r.raw != nil && !r.sessions || r.version2 || r.Permission != Reader && r.Permission != Admin {
		return ""
	}
	return "/dashboard/v1/{workspace}" + r.Path
}

// Pattern returns the route's full path, as the router sees it. The edge has taken the workspace out of a path of the
// dashboard by then: /dashboard/api/w/{workspace}/x is /dashboard/api/w/x, and /dashboard/v1/{workspace}/x is /v1/x.
func (r Route) Pattern() string {
	if r.version2 {
		return "/v2" + r.Path
	}
	return r.Permission.mount() + r.Path
}

// None is the input of a route without parameters or body.
type None struct{}

// A List is a page of a collection, newest first.
type List[T any] struct {
	Object  string `json:"object" enum:"list"`
	Data    []T    `json:"data" nullable:"false"`
	HasMore bool   `json:"has_more"`
}

// A Page holds the parameters of a list. Embed it in the route's input.
type Page struct {
	Limit  int `query:"limit" default:"50" minimum:"1" maximum:"1000" doc:"How many, at most"`
	Offset int `query:"offset" default:"0" minimum:"0" doc:"How many to pass over"`
}

// More returns how many rows to read for p: one more than asked for shows whether there are more.
func (p Page) More() int { return p.Limit + 1 }

// NewList cuts rows, which were read with More, to the page.
func NewList[T any](p Page, rows []T) List[T] {
	more := len(rows) > p.Limit
	if more {
		rows = rows[:p.Limit]
	}
	return List[T]{Object: "list", Data: rows, HasMore: more}
}

// Deleted is the answer to a deletion.
type Deleted struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}

// A Plain can also be rendered as text/plain, for callers that ask for it.
type Plain interface{ Plain() string }

// A Headed answer has headers of its own beside its JSON, such as a cookie. Its route must be Outside, since a stored
// answer has none.
type Headed interface{ Headers() map[string]string }

// A Stream is an answer that is written while it is produced.
type Stream struct {
	ContentType string
	Filename    string
	Headers     map[string]string
	Write       func(w io.Writer) error
}

// A Document is an answer with a media type and headers of its own, such as a page.
type Document struct {
	ContentType string
	Headers     map[string]string
	Body        []byte
}
