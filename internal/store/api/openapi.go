package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	stdjson "encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	_ "embed"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/edge"
)

// Version is the version of the interface, as docs/contract.md states it.
const Version = "1.0.0"

// schemas is the location of the schemas in the document.
const schemas = "#/components/schemas/"

// newRegistry returns a schema registry that knows the JSON types of our own types.
func newRegistry() huma.Registry {
	registry := huma.NewMapRegistry(schemas, schemaName)
	registry.RegisterTypeAlias(reflect.TypeFor[clock.Time](), reflect.TypeFor[time.Time]())
	registry.RegisterTypeAlias(reflect.TypeFor[money.Nano](), reflect.TypeFor[float64]())
	registry.RegisterTypeAlias(reflect.TypeFor[money.Rate](), reflect.TypeFor[float64]())
	registry.RegisterTypeAlias(reflect.TypeFor[jsontext.Value](), reflect.TypeFor[stdjson.RawMessage]())
	return registry
}

// A description shows routes: as an OpenAPI document, and as a page for people.
type description struct{ spec, page []byte }

// document serves the OpenAPI documents, and a page that shows the one of the public API. They are routes themselves,
// so that nothing is served that is not listed. Each is made when it is first asked for: to make all of them takes as
// long as the rest of a start.
func (rt *Router) document() error {
	public, own := sync.OnceValues(rt.publicDocument), sync.OnceValues(rt.dashboardDocument)
	spec := func(made func() (description, error)) func(context.Context, tenant.Caller, None) (Document, error) {
		return func(context.Context, tenant.Caller, None) (Document, error) {
			doc, err := made()
			return Document{ContentType: jsonType, Body: doc.spec}, err
		}
	}
	page := func(context.Context, tenant.Caller, None) (Document, error) {
		doc, err := public()
		return Document{ContentType: "text/html; charset=utf-8", Body: doc.page, Headers: map[string]string{
			"Content-Security-Policy": "default-src 'none'; style-src 'sha256-" + styleSum() +
				"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		}}, err
	}
	for _, r := range []Route{
		Get("/openapi.json", Public, spec(public), "This interface as an OpenAPI 3.1 document", Produces(jsonType)),
		Get("/docs", Public, page, "This interface as a page to read", Produces("text/html")),
		Get(
			"/openapi.json", Visitor, spec(own), "The dashboard's own interface as an OpenAPI 3.1 document",
			Produces(jsonType),
		),
	} {
		if err := rt.add(r); err != nil {
			return err
		}
	}
	return nil
}

// publicDocument describes the routes for keys and the public ones.
func (rt *Router) publicDocument() (description, error) {
	public, err := rt.described(func(p Permission) bool { return !p.ofSession() })
	if err != nil {
		return description{}, err
	}
	described := public.openAPI()
	spec, err := stdjson.Marshal(described)
	if err != nil {
		return description{}, fmt.Errorf("write the OpenAPI document: %w", err)
	}
	page, err := public.page(described)
	if err != nil {
		return description{}, fmt.Errorf("write the documentation page: %w", err)
	}
	return description{spec, page}, nil
}

// dashboardDocument describes the routes for sessions.
func (rt *Router) dashboardDocument() (description, error) {
	own, err := rt.described(Permission.ofSession)
	if err != nil {
		return description{}, err
	}
	doc := own.openAPI()
	doc.Info.Title, doc.Info.Description = "Sovereign's dashboard", "What the dashboard calls beside the API, with the cookie of a session. It changes with the page."
	doc.Servers = []*huma.Server{{URL: "/"}}
	doc.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"session": {
		Type: "apiKey", In: "cookie", Name: "__Host-sovereign",
	}}
	spec, err := stdjson.Marshal(doc)
	if err != nil {
		return description{}, fmt.Errorf("write the dashboard's OpenAPI document: %w", err)
	}
	return description{spec: spec}, nil
}

// described returns a router of some of the routes with a registry of their own, so that a document has their schemas
// alone.
func (rt *Router) described(which func(Permission) bool) (*Router, error) {
	some := &Router{Config: rt.Config, registry: newRegistry()}
	for _, r := range rt.routes {
		if !which(r.Permission) {
			continue
		}
		in, err := newInput(r, some.registry)
		if err != nil {
			return nil, err
		}
		r.input = in
		some.routes = append(some.routes, r)
	}
	return some, nil
}

// refusalHeaders are the headers of a refusal.
var refusalHeaders = map[string]*huma.Param{
	"X-Request-Id":   {Description: "On every answer; quote it", Schema: &huma.Schema{Type: huma.TypeString}},
	"Retry-After":    {Description: "Seconds; on 429 and 503", Schema: &huma.Schema{Type: huma.TypeInteger}},
	"X-Should-Retry": {Description: "false where repeating is of no use", Schema: &huma.Schema{Type: huma.TypeString}},
}

// nameFaults lists every code and type in the refusal's schema.
func (rt *Router) nameFaults() {
	refusal := rt.registry.SchemaFromRef(rt.registry.Schema(reflect.TypeFor[edge.Refusal](), true, "").Ref)
	codes, types := []any{nil}, []any{} // a code may be null
	for _, kind := range fault.Kinds() {
		if kind.Code != "" && !slices.Contains(codes, any(kind.Code)) {
			codes = append(codes, kind.Code)
		}
		if !slices.Contains(types, any(kind.Type)) {
			types = append(types, kind.Type)
		}
	}
	refusal.Properties["code"].Enum = codes
	refusal.Properties["type"].Enum = types
}

func (rt *Router) openAPI() *huma.OpenAPI {
	rt.nameFaults()
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "Sovereign", Version: Version,
			Description: "Model improvement gateway and management API. " +
				"Every path under /v1 is served under /api/v1 as well, and /v2 under /api/v2.",
		},
		Servers: []*huma.Server{{URL: "/"}, {URL: "/api", Description: "The control plane and the older base path"}},
		Paths:   map[string]*huma.PathItem{},
		Components: &huma.Components{Schemas: rt.registry, SecuritySchemes: map[string]*huma.SecurityScheme{"key": {
			Type: "http", Scheme: "bearer", Description: "A workspace API key",
		}}},
	}
	for i := range rt.routes {
		r := &rt.routes[i]
		if r.html {
			continue
		}
		path := documented(r.URL())
		item := doc.Paths[path]
		if item == nil {
			item = &huma.PathItem{}
			doc.Paths[path] = item
		}
		op := rt.operation(r)
		switch r.Method {
		case http.MethodGet:
			item.Get = op
		case http.MethodPost:
			item.Post = op
		case http.MethodPut:
			item.Put = op
		case http.MethodPatch:
			item.Patch = op
		case http.MethodDelete:
			item.Delete = op
		}
	}
	rt.markNullable()
	return doc
}

// documented returns a pattern in OpenAPI's notation, which has no trailing wildcard.
func documented(pattern string) string { return strings.ReplaceAll(pattern, "...}", "}") }

func operationID(r Route) string {
	path := r.Path
	switch {
	case r.version2:
		path = r.Pattern() // the first version may have the same path
	case r.Permission.ofWorkspace():
		path = "/workspace" + path // as may a route without a workspace
	}
	words := strings.FieldsFunc(path, func(c rune) bool { return strings.ContainsRune("/{}._", c) })
	return strings.ToLower(r.Method) + "-" + strings.Join(words, "-")
}

func (rt *Router) operation(r *Route) *huma.Operation {
	op := &huma.Operation{
		OperationID: operationID(*r), Summary: r.Summary, Description: "Permission: " + r.Permission.String() + ".",
		Responses: map[string]*huma.Response{},
	}
	if segments := strings.Split(strings.Trim(r.Path, "/"), "/"); r.Permission == Public {
		op.Tags = []string{"server"}
	} else {
		op.Tags = []string{segments[0]}
	}
	switch {
	case r.Permission.ofSession() && r.Permission != Visitor:
		op.Security = []map[string][]string{{"session": {}}}
	case !r.Permission.ofSession() && r.Permission.mount() != "":
		op.Security = []map[string][]string{{"key": {}}}
	}
	op.Parameters = r.documentedParams()
	if r.input.takes {
		op.RequestBody = &huma.RequestBody{
			Required: !r.input.optional, Content: map[string]*huma.MediaType{jsonType: {Schema: r.input.schema}},
		}
	}
	op.Responses[strconv.Itoa(r.status)] = rt.success(r, r.status)
	if r.Method == http.MethodPost && r.out.Implements(reflect.TypeFor[Made]()) {
		op.Responses[strconv.Itoa(http.StatusCreated)] = rt.success(r, http.StatusCreated)
	}
	refusal := reflect.TypeFor[edge.Envelope]()
	op.Responses["default"] = &huma.Response{
		Description: "A refusal", Headers: refusalHeaders,
		Content: map[string]*huma.MediaType{jsonType: {Schema: rt.registry.Schema(refusal, true, "")}},
	}
	if r.flat {
		op.Responses["400"] = &huma.Response{
			Description: "The body breaks a rule",
			Content: map[string]*huma.MediaType{jsonType: {Schema: rt.registry.Schema(
				reflect.TypeFor[edge.Flat](), true, "",
			)}},
		}
	}
	return op
}

// documentedParams describes what a route takes in its path, its query and its headers.
func (r *Route) documentedParams() (all []*huma.Param) {
	if r.Permission.ofWorkspace() {
		all = append(all, &huma.Param{
			Name: "workspace", In: "path", Required: true, Description: "The workspace's id",
			Schema: &huma.Schema{Type: huma.TypeString},
		})
	}
	for _, p := range r.input.params {
		all = append(all,
			&huma.Param{Name: p.name, In: p.in, Required: p.required, Description: p.doc, Schema: p.schema})
	}
	if r.Method == http.MethodPost && !r.outside && r.raw == nil {
		all = append(all, &huma.Param{
			Name: "Idempotency-Key", In: "header",
			Schema:      &huma.Schema{Type: huma.TypeString, MaxLength: &idempotencyKeyLength},
			Description: "Within 24 hours the same key and request get the same answer, and one effect; another request with it is a 409.",
		})
	}
	for _, h := range r.requestHeaders {
		all = append(all,
			&huma.Param{Name: h.name, In: "header", Description: h.doc, Schema: &huma.Schema{Type: huma.TypeString}})
	}
	return all
}

func (rt *Router) success(r *Route, status int) *huma.Response {
	response := &huma.Response{Description: http.StatusText(status), Content: map[string]*huma.MediaType{}}
	switch r.out {
	case reflect.TypeFor[Document](), reflect.TypeFor[Stream](), reflect.TypeFor[EventStream]():
		response.Content[cmp.Or(r.produces, "*/*")] = &huma.MediaType{}
	default:
		response.Content[jsonType] = &huma.MediaType{Schema: rt.answerSchema(r)}
		if r.out.Implements(reflect.TypeFor[Plain]()) {
			response.Content["text/plain"] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
		}
		if r.events {
			response.Content["text/event-stream"] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Description: "Server-sent events: chat's are data: {chunk} and end with data: [DONE]; those of a response have names (event: response.…) and end with response.completed, .incomplete or .failed"}}
		}
	}
	for _, h := range r.responseHeaders {
		if response.Headers == nil {
			response.Headers = map[string]*huma.Param{}
		}
		response.Headers[h.name] = &huma.Param{Description: h.doc, Schema: &huma.Schema{Type: huma.TypeString}}
	}
	return response
}

// answerSchema is the schema of a route's JSON answer.
func (rt *Router) answerSchema(r *Route) *huma.Schema {
	if len(r.shapes) == 0 {
		return rt.registry.Schema(r.out, true, operationID(*r)+"-answer")
	}
	var either huma.Schema
	for _, t := range r.shapes {
		either.OneOf = append(either.OneOf, rt.registry.Schema(t, true, ""))
	}
	return &either
}

//go:embed docs.html
var pageText string

//go:embed docs.css
var pageStyle string

func styleSum() string {
	sum := sha256.Sum256([]byte(pageStyle))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// page renders the document for people: plain HTML, no script, nothing fetched from elsewhere.
func (rt *Router) page(doc *huma.OpenAPI) ([]byte, error) {
	type operation struct {
		Method, Path, Permission string
		*huma.Operation
	}
	type section struct {
		Name       string
		Operations []operation
	}
	var sections []section
	for i := range rt.routes {
		r := &rt.routes[i]
		if r.html {
			continue
		}
		op := operation{
			Method: r.Method, Path: documented(r.Pattern()), Permission: r.Permission.String(),
			Operation: rt.operation(r),
		}
		at := slices.IndexFunc(sections, func(s section) bool { return s.Name == op.Tags[0] })
		if at < 0 {
			at = len(sections)
			sections = append(sections, section{Name: op.Tags[0]})
		}
		sections[at].Operations = append(sections[at].Operations, op)
	}
	slices.SortFunc(sections, func(a, b section) int { return strings.Compare(a.Name, b.Name) })
	parsed, err := template.New("docs").Funcs(template.FuncMap{"shape": rt.shape, "shapes": shapes}).Parse(pageText)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, map[string]any{
		"Info": doc.Info, "Style": template.CSS(pageStyle), "Sections": sections, "Faults": fault.Kinds(), //nolint:gosec // our own file
	})
	return out.Bytes(), err
}

// shapes returns the schemas of which a value has one.
func shapes(schema *huma.Schema) []*huma.Schema {
	if schema == nil || len(schema.OneOf) == 0 {
		return []*huma.Schema{schema}
	}
	return schema.OneOf
}

// A field is one line of a shape on the page.
type field struct {
	Name, Type, Doc string
	Required        bool
}

// shape lists the fields of a schema, those of nested objects with a dotted name.
func (rt *Router) shape(schema *huma.Schema) []field { return rt.fields(schema, "", 0) }

func (rt *Router) fields(schema *huma.Schema, prefix string, depth int) []field {
	if schema == nil || depth > 4 {
		return nil
	}
	for schema.Ref != "" {
		schema = rt.registry.SchemaFromRef(schema.Ref)
	}
	names := make([]string, 0, len(schema.Properties))
	for name := range schema.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	var all []field
	for _, name := range names {
		property := schema.Properties[name]
		doc := property.Description
		for property.Ref != "" {
			property = rt.registry.SchemaFromRef(property.Ref)
		}
		kind, inner := property.Type, property
		if kind == huma.TypeArray && property.Items != nil {
			inner = property.Items
			for inner.Ref != "" {
				inner = rt.registry.SchemaFromRef(inner.Ref)
			}
			kind = "array of " + inner.Type
		}
		if kind == "" {
			kind = "any"
		}
		if property.Format != "" {
			kind += " (" + property.Format + ")"
		}
		all = append(all, field{
			Name: prefix + name, Type: kind, Doc: doc, Required: slices.Contains(schema.Required, name),
		})
		all = append(all, rt.fields(inner, prefix+name+".", depth+1)...)
	}
	return all
}
