// Package api is the frame that every operation stands in: a route is a row with its permission and its shape, and
// from the rows come the dispatch, the checks, the access matrix and the OpenAPI document.
package api

import (
	"context"
	"io"
	"net/http"
	"reflect"

	"sovereign/internal/base/tenant"
)

// A Permission says who may call a route. Its zero value is no permission, and a route without one is refused when
// the router is built.
type Permission int

// The permissions.
const (
	undeclared Permission = iota
	Public                // anybody, without a key; mounted at the root
	Reader                // any key of the workspace
	Admin                 // a key whose user is an owner or an admin now
	Operator              // whoever may open the server's own socket; not served anywhere else
)

// String names p in the documentation.
func (p Permission) String() string {
	return [...]string{"undeclared", "public", "any key", "owner or admin", "operator"}[p]
}

// grants reports whether a member of that role may pass.
func (p Permission) grants(role tenant.Role) bool {
	switch p {
	case Public:
		return true
	case Reader:
		return role.Valid()
	case Admin:
		return role.Manages()
	default:
		return false
	}
}

// A Route is one operation.
type Route struct {
	Method     string
	Path       string // below /v1 for keys, below / for the public, below /admin for operators
	Permission Permission
	Summary    string

	status   int
	spends   bool   // counted by the abuse guard
	flat     bool   // validation refusals are {"error": "text"}
	secret   bool   // the answer shows a secret and is not kept for an Idempotency-Key
	outside  bool   // has effects outside the database
	produces string // the type of a Document or Stream
	long     bool   // may take longer than an operation's time
	events   bool   // may answer with server-sent events
	takes    []header
	tells    []header
	in, out  reflect.Type
	input    *input // how the request becomes a value; made when the router is built
	call     func(ctx context.Context, caller tenant.Caller, in any) (any, error)
	raw      func(http.ResponseWriter, *http.Request) error                              // instead of call
	finish   func(ctx context.Context, caller tenant.Caller, ticket []byte) (any, error) // after call, whose answer is a ticket; see PostAwaited
}

// An Option refines a route.
type Option func(*Route)

// Creates answers 201.
func Creates(r *Route) { r.status = http.StatusCreated }

// Accepts answers 202: the work goes on in the background.
func Accepts(r *Route) { r.status = http.StatusAccepted }

// Spends puts the route under the workspace's abuse guard.
func Spends(r *Route) { r.spends = true }

// Flat gives validation refusals the plain shape of the training and infrastructure surfaces.
func Flat(r *Route) { r.flat = true }

// ShowsSecret says that the answer holds a secret that is shown once.
func ShowsSecret(r *Route) { r.secret = true }

// Outside says that the operation's effect is not in the database alone. It cannot commit together with an
// Idempotency-Key, so that one is refused rather than half kept.
func Outside(r *Route) { r.outside = true }

// Produces names the type of an answer that is not JSON, for the documentation.
func Produces(contentType string) Option { return func(r *Route) { r.produces = contentType } }

// Long lets the operation take its time: a backup, not a look-up.
func Long(r *Route) { r.long = true }

// Takes documents a header that the operation reads.
func Takes(name, doc string) Option {
	return func(r *Route) { r.takes = append(r.takes, header{name, doc}) }
}

// Tells documents a header of the answer.
func Tells(name, doc string) Option {
	return func(r *Route) { r.tells = append(r.tells, header{name, doc}) }
}

// MayStream says that the answer may also come as server-sent events.
func MayStream(r *Route) { r.events = true }

type header struct{ name, doc string }

// A Handler does the work of a route. In is read from the request as decode.go says; Out is the answer's body.
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

// Raw declares a POST whose handler reads the request and writes the answer itself, as inference does. It is admitted and
// documented like any other, and In and Out are only for the documentation; bounds and times are its own.
func Raw[In, Out any](path string, p Permission, serve func(http.ResponseWriter, *http.Request) error, summary string, options ...Option) Route {
	r := route[In, Out](http.MethodPost, path, p, nil, summary, options)
	r.raw = serve
	return r
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

// mount is where routes of a permission stand.
func (p Permission) mount() string {
	switch p {
	case Public:
		return ""
	case Operator:
		return "/admin"
	default:
		return "/v1"
	}
}

// Pattern is the route's full path.
func (r Route) Pattern() string { return r.Permission.mount() + r.Path }

// None is the input of a route that takes nothing.
type None struct{}

// A List is a page of a collection, newest first.
type List[T any] struct {
	Object  string `json:"object" enum:"list"`
	Data    []T    `json:"data" nullable:"false"`
	HasMore bool   `json:"has_more"`
}

// A Page is what a list takes. Embed it in the route's input.
type Page struct {
	Limit  int `query:"limit" default:"50" minimum:"1" maximum:"1000" doc:"How many, at most"`
	Offset int `query:"offset" default:"0" minimum:"0" doc:"How many to pass over"`
}

// More is how many rows to read for p: one more than asked for tells whether there are more.
func (p Page) More() int { return p.Limit + 1 }

// NewList cuts rows, read with More, to the page.
func NewList[T any](p Page, rows []T) List[T] {
	more := len(rows) > p.Limit
	if more {
		rows = rows[:p.Limit]
	}
	return List[T]{Object: "list", Data: rows, HasMore: more}
}

// Deleted answers a deletion.
type Deleted struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}

// A Plain can also be read as text/plain, by who asks for it.
type Plain interface{ Plain() string }

// A Stream is an answer that is written as it is made.
type Stream struct {
	ContentType string
	Filename    string
	Headers     map[string]string
	Write       func(w io.Writer) error
}

// A Document is an answer that has a type and headers of its own, such as a page.
type Document struct {
	ContentType string
	Headers     map[string]string
	Body        []byte
}
