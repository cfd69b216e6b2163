package api

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

// A Named type has another name in the OpenAPI document than in Go. Generated clients use the name in the document, so
// that it stays when the Go type is renamed.
type Named interface{ SchemaName() string }

// schemaName names a type in the OpenAPI document.
func schemaName(t reflect.Type, hint string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if named, ok := reflect.Zero(t).Interface().(Named); ok {
		return named.SchemaName()
	}
	return huma.DefaultSchemaNamer(t, hint)
}
