package api

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
)

// An input decodes a request to the value that a handler takes. Fields tagged path and query are parameters. The body
// is the field named Body, or the whole value when it has no tagged field and no Body.
type input struct {
	kind     reflect.Type
	params   []param
	body     []int // index of the body's field; nil when the whole value is the body
	schema   *huma.Schema
	takes    bool // takes a body
	optional bool // the body may be omitted: its field is a pointer
	large    *largeMember
	known    map[string]bool
	anyQuery bool // unknown parameters of the query are ignored
}

type param struct {
	name     string
	in       string // path or query
	index    []int
	required bool
	fallback string
	doc      string
	schema   *huma.Schema
}

func newInput(r Route, registry huma.Registry) (*input, error) {
	in := &input{kind: r.in, known: map[string]bool{}, anyQuery: r.anyQuery}
	if r.in.Kind() != reflect.Struct {
		return nil, fmt.Errorf("input of %s %s is not a struct", r.Method, r.Path)
	}
	var body *reflect.StructField
	for _, field := range reflect.VisibleFields(r.in) {
		if field.Anonymous || !field.IsExported() {
			continue
		}
		place, name := "path", field.Tag.Get("path")
		if name == "" {
			place, name = "query", field.Tag.Get("query")
		}
		switch {
		case name != "":
			p := param{
				name: name, in: place, index: field.Index, doc: field.Tag.Get("doc"),
				fallback: field.Tag.Get("default"),
			}
			p.required = place == "path" || field.Tag.Get("required") == "true"
			p.schema = huma.SchemaFromField(registry, field, "")
			in.params = append(in.params, p)
			in.known[name] = place == "query"
		case field.Name == "Body":
			body = &field
		}
	}
	sends := r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch
	switch {
	case body != nil:
		in.takes, in.body, in.optional = true, body.Index, body.Type.Kind() == reflect.Pointer
		in.schema = registry.Schema(body.Type, true, operationID(r)+"-body")
	case sends && len(in.params) == 0 && r.in.NumField() > 0:
		in.takes = true
		in.schema = registry.Schema(r.in, true, operationID(r)+"-body")
	}
	if in.takes && r.raw == nil {
		kind := r.in
		if body != nil {
			kind = body.Type
		}
		var err error
		if in.large, err = newLarge(kind); err != nil {
			return nil, err
		}
	}
	for _, segment := range strings.Split(r.Path, "/") {
		name := strings.TrimSuffix(strings.TrimPrefix(segment, "{"), "}")
		if strings.HasPrefix(segment, "{") {
			if _, ok := in.known[strings.TrimSuffix(name, "...")]; !ok {
				return nil, fmt.Errorf("%s %s: no field takes {%s}", r.Method, r.Path, name)
			}
		}
	}
	return in, nil
}

// read decodes r, whose body has been read already, to the handler's value.
func (in *input) read(registry huma.Registry, r *http.Request, body []byte) (any, error) {
	value := reflect.New(in.kind).Elem()
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fault.InvalidParameter.New("the query string is malformed")
	}
	for name, values := range query {
		if !in.known[name] && in.anyQuery {
			continue
		}
		if !in.known[name] {
			return nil, fault.Invalid(name, "is not a parameter of this operation")
		}
		if len(values) > 1 {
			return nil, fault.Invalid(name, "is given more than once")
		}
	}
	for _, p := range in.params {
		text := p.fallback
		switch {
		case p.in == "path":
			text = r.PathValue(p.name)
		case query.Has(p.name):
			text = query.Get(p.name)
		case p.required:
			return nil, fault.Invalid(p.name, "is required")
		case text == "":
			continue
		}
		if err := p.set(registry, value.FieldByIndex(p.index), text); err != nil {
			return nil, err
		}
	}
	if err := in.readBody(registry, value, body); err != nil {
		return nil, err
	}
	return value.Interface(), nil
}

func (p param) set(registry huma.Registry, field reflect.Value, text string) error {
	var checked any
	target := field
	if field.Kind() == reflect.Pointer {
		field.Set(reflect.New(field.Type().Elem()))
		target = field.Elem()
	}
	if u, ok := target.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if err := u.UnmarshalText([]byte(text)); err != nil {
			return fault.Invalid(p.name, err.Error())
		}
		return nil
	}
	switch target.Kind() {
	case reflect.String:
		target.SetString(text)
		checked = text
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fault.Invalid(p.name, "must be a whole number")
		}
		target.SetInt(n)
		checked = n
	case reflect.Float64:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
			return fault.Invalid(p.name, "must be a number")
		}
		target.SetFloat(n)
		checked = n
	case reflect.Bool:
		if text != "true" && text != "false" {
			return fault.Invalid(p.name, "must be true or false")
		}
		target.SetBool(text == "true")
		checked = text == "true"
	default:
		return fmt.Errorf("parameter %s has no reading as %s", p.name, target.Type())
	}
	return validate(registry, p.schema, p.name, checked)
}

func (in *input) readBody(registry huma.Registry, value reflect.Value, body []byte) error {
	if !in.takes {
		if text := strings.TrimSpace(string(body)); text != "" && text != "{}" {
			return fault.InvalidBody.New("this operation takes no body")
		}
		return nil
	}
	if len(body) == 0 && in.optional {
		return nil
	}
	if len(body) == 0 {
		return fault.InvalidBody.New("a JSON body is required")
	}
	var elements []jsontext.Value
	if in.large != nil {
		var err error
		if body, elements, err = in.large.cut(body); err != nil {
			return err
		}
	}
	// Duplicate names, invalid UTF-8 and anything after the value are refused here, before validation.
	var parsed any
	if err := json.Unmarshal(body, &parsed); err != nil {
		return fault.InvalidBody.New("the body is not valid JSON: %s", syntax(err))
	}
	if err := validate(registry, in.schema, "", parsed); err != nil {
		return err
	}
	target := value
	if in.body != nil {
		target = value.FieldByIndex(in.body)
	}
	if err := json.Unmarshal(body, target.Addr().Interface(), json.RejectUnknownMembers(true)); err != nil {
		return semantic(err)
	}
	if elements != nil {
		target.FieldByIndex(in.large.index).Set(reflect.ValueOf(elements))
	}
	return nil
}

// Decode decodes a body as strictly as the router does, for a Raw route. Rules of the schema are the caller's to check.
func Decode(body []byte, into any) error {
	if len(body) == 0 {
		return fault.InvalidBody.New("a JSON body is required")
	}
	err := json.Unmarshal(body, into, json.RejectUnknownMembers(true))
	var bad *json.SemanticError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &bad) && bad.JSONPointer != "":
		return semantic(err)
	case errors.As(err, &bad):
		return fault.InvalidBody.New("the body must be a JSON object")
	}
	return fault.InvalidBody.New("the body is not valid JSON: %s", syntax(err))
}

// syntax describes what is wrong with a JSON text, without quoting it: a body may hold secrets.
func syntax(err error) string {
	text := err.Error()
	if _, after, ok := strings.Cut(text, "jsontext: "); ok {
		text = after
	}
	if cut := strings.IndexAny(text, "\"`'"); cut >= 0 {
		text = strings.TrimSpace(text[:cut])
	}
	return text
}

// semantic names the member that does not fit its type, again without its value.
func semantic(err error) error {
	var s *json.SemanticError
	if errors.As(err, &s) {
		field := strings.ReplaceAll(strings.TrimPrefix(string(s.JSONPointer), "/"), "/", ".")
		if errors.Is(err, json.ErrUnknownName) {
			return fault.Invalid(field, "is not a known field")
		}
		reason := "is not a valid value"
		if s.Err != nil && s.Err.Error() != "" {
			reason = s.Err.Error()
		}
		return fault.Invalid(field, reason)
	}
	return fault.InvalidBody.New("the body does not have the shape of this operation")
}

// validate checks v against a schema and names the first field that violates it, in the order of their locations.
func validate(registry huma.Registry, schema *huma.Schema, name string, v any) error {
	var result huma.ValidateResult
	path := huma.NewPathBuffer(make([]byte, 0, 64), 0)
	path.Push("in")
	huma.Validate(registry, schema, path, huma.ModeWriteToServer, v, &result)
	if len(result.Errors) == 0 {
		return nil
	}
	// Unknown fields are found in the order of a map; the answer must not depend on it.
	slices.SortStableFunc(result.Errors, func(a, b error) int { return strings.Compare(location(a), location(b)) })
	var detail *huma.ErrorDetail
	if !errors.As(result.Errors[0], &detail) {
		return fault.Invalid(name, "is not valid")
	}
	field := strings.TrimPrefix(strings.TrimPrefix(detail.Location, "in"), ".")
	if name != "" {
		field = name
	}
	return refusal(field, detail.Message)
}

func location(err error) string {
	var detail *huma.ErrorDetail
	if errors.As(err, &detail) {
		return detail.Location
	}
	return ""
}

// refusal rephrases a validation error of the schema library.
func refusal(field, message string) error {
	if rest, ok := strings.CutPrefix(message, "expected required property "); ok {
		name := strings.TrimSuffix(rest, " to be present")
		if field != "" {
			name = field + "." + name
		}
		return fault.Invalid(name, "is required")
	}
	if field == "" {
		return fault.InvalidBody.New("the body must be a JSON object")
	}
	if message == "unexpected property" {
		return fault.Invalid(field, "is not a known field")
	}
	return fault.Invalid(field, "must be "+plain.Replace(message))
}

// plain turns the schema library's messages into a sentence.
var plain = strings.NewReplacer(
	"expected ", "", "value to be ", "", "string to be ", "", "number to be ", "", "string to match pattern ",
	"text that matches ", "array length >= ", "a list of at least ", "array length <= ", "a list of at most ",
	"length >= ", "at least this long: ", "length <= ", "at most this long: ", "number >= ", "at least ", "number <= ",
	"at most ", "number > ", "above ", "number < ", "below ",
)
