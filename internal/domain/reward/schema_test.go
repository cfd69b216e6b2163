package reward_test

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

// A schema is a JSON schema, as far as those in testdata need it. A keyword that is not known fails.
type schema map[string]any

func readSchema(t *testing.T, name string) schema {
	t.Helper()
	text, err := os.ReadFile("testdata/export-" + name + ".schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var s schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// check returns what is wrong with a value, or nil. defs are the definitions of the whole schema.
func (s schema) check(v any, defs map[string]any) error {
	for keyword, want := range s {
		rule := keywords[keyword]
		if rule == nil {
			return fmt.Errorf("the keyword %s is not known", keyword)
		}
		if err := rule(s, want, v, defs); err != nil {
			return err
		}
	}
	return nil
}

type keyword func(s schema, want, v any, defs map[string]any) error

func ignored(schema, any, any, map[string]any) error { return nil }

var keywords map[string]keyword

func init() {
	keywords = map[string]keyword{
		"$schema": ignored, "title": ignored, "$defs": ignored, "properties": checkMembers, "additionalProperties": ignored,
		"type": func(_ schema, want, v any, _ map[string]any) error {
			got := map[reflect.Kind]any{
				reflect.String: "string", reflect.Float64: "number", reflect.Slice: "array", reflect.Map: "object",
			}[reflect.ValueOf(v).Kind()]
			if got != want {
				return fmt.Errorf("%v is no %v", v, want)
			}
			return nil
		},
		"required": func(_ schema, want, v any, _ map[string]any) error {
			for _, name := range want.([]any) {
				if _, ok := v.(map[string]any)[name.(string)]; !ok {
					return fmt.Errorf("%v is missing", name)
				}
			}
			return nil
		},
		"enum": func(_ schema, want, v any, _ map[string]any) error {
			if !slices.Contains(want.([]any), v) {
				return fmt.Errorf("%v is none of %v", v, want)
			}
			return nil
		},
		"pattern": func(_ schema, want, v any, _ map[string]any) error {
			if !regexp.MustCompile(want.(string)).MatchString(v.(string)) {
				return fmt.Errorf("%v does not match %v", v, want)
			}
			return nil
		},
		"minimum": func(_ schema, want, v any, _ map[string]any) error { return within(v, want, 1e300) },
		"maximum": func(_ schema, want, v any, _ map[string]any) error { return within(v, -1e300, want) },
		"items": func(_ schema, want, v any, defs map[string]any) error {
			for _, one := range v.([]any) {
				if err := schema(want.(map[string]any)).check(one, defs); err != nil {
					return err
				}
			}
			return nil
		},
		"anyOf": func(_ schema, want, v any, defs map[string]any) (err error) {
			for _, one := range want.([]any) {
				if err = schema(one.(map[string]any)).check(v, defs); err == nil {
					return nil
				}
			}
			return err
		},
		"$ref": func(_ schema, want, v any, defs map[string]any) error {
			return schema(defs[strings.TrimPrefix(want.(string), "#/$defs/")].(map[string]any)).check(v, defs)
		},
	}
}

func within(v, low, high any) error {
	if v.(float64) < low.(float64) || v.(float64) > high.(float64) {
		return fmt.Errorf("%v is not within %v and %v", v, low, high)
	}
	return nil
}

// checkMembers checks the members of an object. The schemas here allow no others.
func checkMembers(_ schema, want, v any, defs map[string]any) error {
	for name, member := range v.(map[string]any) {
		of, ok := want.(map[string]any)[name].(map[string]any)
		if !ok {
			return fmt.Errorf("there is a member %s", name)
		}
		if err := schema(of).check(member, defs); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
