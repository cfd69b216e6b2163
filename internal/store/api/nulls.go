package api

import (
	"encoding"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// markNullable states in the document which members of answers may be null, and that the others never are. The schema
// library derives it from the types, and cannot express it for an object at all. What counts is how the zero value of
// a type is encoded. Types that are also accepted as input keep the schema they are validated with.
func (rt *Router) markNullable() {
	asked, answered := map[reflect.Type]bool{}, map[reflect.Type]bool{}
	for i := range rt.routes {
		collectTypes(rt.routes[i].in, asked)
		collectTypes(rt.routes[i].out, answered)
		for _, shape := range rt.routes[i].shapes {
			collectTypes(shape, answered)
		}
	}
	for name, schema := range rt.registry.Map() {
		t := rt.registry.TypeFromRef(schemas + name)
		if !answered[t] || asked[t] || hasMarshaler(t) {
			continue
		}
		null := nullMembers(t)
		for member, is := range schema.Properties {
			schema.Properties[member] = orNull(is, null[member])
		}
	}
}

// collectTypes adds a type and the structs that it holds to seen.
func collectTypes(t reflect.Type, seen map[reflect.Type]bool) {
	if t == nil || seen[t] {
		return
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		collectTypes(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			collectTypes(t.Field(i).Type, seen)
		}
	default:
	}
}

// hasMarshaler reports whether a type encodes itself.
func hasMarshaler(t reflect.Type) bool {
	pointer := reflect.PointerTo(t)
	return pointer.Implements(reflect.TypeFor[json.Marshaler]()) ||
		pointer.Implements(reflect.TypeFor[json.MarshalerTo]()) ||
		pointer.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

// nullMembers returns the members that are null in the zero value of a struct. A member that is omitted there is
// never null.
func nullMembers(t reflect.Type) map[string]bool {
	var members map[string]jsontext.Value
	text, err := json.Marshal(reflect.New(t).Interface(), lenient)
	if err != nil || json.Unmarshal(text, &members, lenient) != nil {
		return nil
	}
	null := map[string]bool{}
	for name, value := range members {
		null[name] = value.Kind() == 'n'
	}
	return null
}

// orNull returns a member's schema that permits null, or does not. A schema without a type permits everything.
func orNull(is *huma.Schema, null bool) *huma.Schema {
	switch {
	case is.Ref != "" && null:
		return &huma.Schema{Description: is.Description, AnyOf: []*huma.Schema{{Ref: is.Ref}, {Type: "null"}}}
	case is.Ref != "" || is.Type == "":
		return is
	}
	is.Nullable = null
	if null && len(is.Enum) > 0 && !slices.Contains(is.Enum, nil) {
		is.Enum = append(slices.Clone(is.Enum), nil)
	}
	return is
}
