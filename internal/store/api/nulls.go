package api

import (
	"encoding"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// nulls says in the document which members of answers may be null, and that the others never are. The schema library guesses it from types, and
// cannot say it of an object at all; what counts is what is written of a type's zero value. Types that are sent to us as well stay as they
// are checked.
func (rt *Router) nulls() {
	asked, answered := map[reflect.Type]bool{}, map[reflect.Type]bool{}
	for i := range rt.routes {
		reach(rt.routes[i].in, asked)
		reach(rt.routes[i].out, answered)
	}
	for name, schema := range rt.registry.Map() {
		t := rt.registry.TypeFromRef(schemas + name)
		if !answered[t] || asked[t] || written(t) {
			continue
		}
		null := nullMembers(t)
		for member, is := range schema.Properties {
			schema.Properties[member] = orNull(is, null[member])
		}
	}
}

// reach notes a type, and the structs that it holds.
func reach(t reflect.Type, seen map[reflect.Type]bool) {
	if t == nil || seen[t] {
		return
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		reach(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			reach(t.Field(i).Type, seen)
		}
	default:
	}
}

// written reports whether a type says itself how it is written.
func written(t reflect.Type) bool {
	pointer := reflect.PointerTo(t)
	return pointer.Implements(reflect.TypeFor[json.Marshaler]()) || pointer.Implements(reflect.TypeFor[json.MarshalerTo]()) || pointer.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

// nullMembers are those that are null in the zero value of a struct. One that is left out there is never null.
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

// orNull is a member's schema that allows null, or does not. One without a type allows everything.
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
