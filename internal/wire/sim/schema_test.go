package sim

import (
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"sovereign/internal/wire/upstream"
)

// breaks returns which rule of a schema v breaks; empty for none. It shares no code with the generator.
func breaks(root, schema map[string]any, v any) string {
	if ref, ok := schema["$ref"].(string); ok {
		target := any(root)
		for step := range strings.SplitSeq(strings.Trim(strings.TrimPrefix(ref, "#"), "/"), "/") {
			if step != "" {
				target = target.(map[string]any)[step]
			}
		}
		if why := breaks(root, target.(map[string]any), v); why != "" {
			return why
		}
	}
	same := func(other any) bool { return string(encode(other)) == string(encode(v)) }
	if c, ok := schema["const"]; ok && !same(c) {
		return "const"
	}
	if all, ok := schema["enum"].([]any); ok && !slices.ContainsFunc(all, same) {
		return "enum"
	}
	switch t := schema["type"].(type) {
	case string:
		if !is(t, v) {
			return "type " + t
		}
	case []any:
		if !slices.ContainsFunc(t, func(one any) bool { return is(one.(string), v) }) {
			return "types"
		}
	}
	for word, enough := range map[string]func(good, all int) bool{
		"allOf": func(good, all int) bool { return good == all },
		"anyOf": func(good, _ int) bool { return good >= 1 },
		"oneOf": func(good, _ int) bool { return good == 1 },
	} {
		if all, ok := schema[word].([]any); ok {
			good := 0
			for _, one := range all {
				if breaks(root, one.(map[string]any), v) == "" {
					good++
				}
			}
			if !enough(good, len(all)) {
				return word
			}
		}
	}
	num := func(name string, otherwise float64) float64 {
		if x, ok := schema[name].(float64); ok {
			return x
		}
		return otherwise
	}
	switch v := v.(type) {
	case float64:
		m := num("multipleOf", 0)
		if v < num("minimum", math.Inf(-1)) || v > num("maximum", math.Inf(1)) || v <= num("exclusiveMinimum", math.Inf(-1)) ||
			v >= num("exclusiveMaximum", math.Inf(1)) || (m != 0 && v/m != math.Trunc(v/m)) {
			return "bounds"
		}
	case string:
		if n := float64(utf8.RuneCountInString(v)); n < num("minLength", 0) || n > num("maxLength", math.Inf(1)) {
			return "length"
		}
		if schema["format"] == "date-time" {
			if _, err := time.Parse(time.RFC3339, v); err != nil {
				return "format"
			}
		}
	case []any:
		if n := float64(len(v)); n < num("minItems", 0) || n > num("maxItems", math.Inf(1)) || schema["uniqueItems"] == true && n > 1 {
			return "items"
		}
		if items, ok := schema["items"].(map[string]any); ok {
			for _, item := range v {
				if why := breaks(root, items, item); why != "" {
					return "item " + why
				}
			}
		}
	case map[string]any:
		properties, _ := schema["properties"].(map[string]any)
		needed, _ := schema["required"].([]any)
		for _, name := range needed {
			if _, ok := v[name.(string)]; !ok {
				return "required " + name.(string)
			}
		}
		for name, value := range v {
			declared, ok := properties[name].(map[string]any)
			if !ok && schema["additionalProperties"] == false {
				return "additional " + name
			}
			if !ok {
				declared, _ = schema["additionalProperties"].(map[string]any)
			}
			if why := breaks(root, declared, value); why != "" {
				return name + " " + why
			}
		}
	}
	return ""
}

func is(kind string, v any) bool {
	switch v := v.(type) {
	case nil:
		return kind == "null"
	case bool:
		return kind == "boolean"
	case string:
		return kind == "string"
	case float64:
		return kind == "number" || kind == "integer" && v == math.Trunc(v)
	case []any:
		return kind == "array"
	default:
		return kind == "object"
	}
}

// drawSchema draws a schema that can be satisfied.
func drawSchema(t *rapid.T, depth int) map[string]any {
	kinds := []string{"string", "integer", "number", "boolean", "null", "enum", "const", "format", "any"}
	if depth < 3 {
		kinds = append(kinds, "object", "object", "array", "anyOf", "oneOf", "allOf", "types", "ref", "self", "untyped", "map")
	}
	deeper := func() map[string]any { return drawSchema(t, depth+1) }
	switch kind := rapid.SampledFrom(kinds).Draw(t, "kind"); kind {
	case "string":
		low := rapid.IntRange(0, 30).Draw(t, "minLength")
		return map[string]any{"type": kind, "minLength": low, "maxLength": low + rapid.IntRange(0, 10).Draw(t, "room"), "description": "a text"}
	case "integer":
		low := rapid.IntRange(-1000, 1000).Draw(t, "low")
		step := rapid.IntRange(1, 7).Draw(t, "step")
		return map[string]any{"type": kind, "exclusiveMinimum": low, "maximum": low + step + rapid.IntRange(0, 300).Draw(t, "room"), "multipleOf": step}
	case "number":
		low := rapid.Float64Range(-1e6, 1e6).Draw(t, "low")
		return map[string]any{"type": kind, "exclusiveMinimum": low, "exclusiveMaximum": low + rapid.Float64Range(1e-3, 1e3).Draw(t, "room")}
	case "enum":
		return map[string]any{"type": []string{"string", "null"}, "enum": []any{5, "a", nil, "b\n"}}
	case "const":
		return map[string]any{"const": rapid.SampledFrom([]any{1.5, "x", true, nil, []any{1}, map[string]any{"a": []any{}}}).Draw(t, "const")}
	case "format":
		return map[string]any{"type": "string", "format": "date-time"}
	case "any":
		return map[string]any{}
	case "object", "untyped":
		s := map[string]any{"type": "object", "properties": map[string]any{}, "additionalProperties": false}
		names := []string{}
		for i := range rapid.IntRange(0, 4).Draw(t, "properties") {
			name := rapid.SampledFrom([]string{"a", "b\"", "ü", "$ref"}).Draw(t, "name") + strconv.Itoa(i)
			s["properties"].(map[string]any)[name] = deeper()
			if rapid.Bool().Draw(t, "required") {
				names = append(names, name)
			}
		}
		s["required"] = names
		if kind == "untyped" && len(names) > 0 {
			delete(s, "type")
			delete(s, "additionalProperties")
			s["required"] = append(names, "undeclared")
		}
		return s
	case "map":
		return map[string]any{"type": "object", "required": []string{"x", "y"}, "additionalProperties": deeper()}
	case "array":
		if rapid.Bool().Draw(t, "unique") {
			return map[string]any{"type": kind, "items": deeper(), "uniqueItems": true, "minItems": rapid.IntRange(0, 1).Draw(t, "minItems")}
		}
		low := rapid.IntRange(0, 3).Draw(t, "minItems")
		return map[string]any{"type": kind, "items": deeper(), "minItems": low, "maxItems": low + rapid.IntRange(0, 2).Draw(t, "room")}
	case "anyOf":
		return map[string]any{"anyOf": []any{deeper(), map[string]any{"type": "string", "pattern": "unknown"}, deeper()}}
	case "oneOf":
		tagged := func(tag string) map[string]any {
			return map[string]any{"type": "object", "properties": map[string]any{"tag": map[string]any{"const": tag}, "more": deeper()}, "required": []string{"tag"}}
		}
		return map[string]any{"oneOf": []any{tagged("one"), tagged("two")}, "required": []string{"more"}}
	case "allOf":
		return map[string]any{"title": "both", "allOf": []any{
			map[string]any{"properties": map[string]any{"left": deeper()}, "required": []string{"left"}},
			map[string]any{"type": "object", "properties": map[string]any{"right": deeper()}},
		}}
	case "types":
		return map[string]any{"type": []string{"null", "array", "number", "string", "object"}, "minimum": 5, "maxLength": 3, "minItems": 2}
	case "ref":
		return map[string]any{"$ref": rapid.SampledFrom([]string{"#/$defs/list", "#/$defs/tree"}).Draw(t, "ref")}
	case "self":
		return map[string]any{"type": "object", "properties": map[string]any{"again": map[string]any{"$ref": "#"}}}
	default:
		return map[string]any{"type": kind}
	}
}

// definitions are recursive schemas, as for trees and lists.
var definitions = map[string]any{
	"list": map[string]any{"type": "object", "properties": map[string]any{
		"head": map[string]any{"type": "integer"},
		"rest": map[string]any{"anyOf": []any{map[string]any{"$ref": "#/$defs/list"}, map[string]any{"type": "null"}}},
	}, "required": []string{"head", "rest"}, "additionalProperties": false},
	"tree": map[string]any{"type": "object", "properties": map[string]any{
		"left":   map[string]any{"anyOf": []any{map[string]any{"$ref": "#/$defs/tree"}, map[string]any{"type": "null"}}},
		"right":  map[string]any{"anyOf": []any{map[string]any{"$ref": "#/$defs/tree"}, map[string]any{"type": "null"}}},
		"leaves": map[string]any{"type": "array", "items": map[string]any{"$ref": "#/$defs/tree"}},
	}, "required": []string{"left", "right", "leaves"}},
}

func TestAGeneratedValueSatisfiesItsSchema(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		schema := drawSchema(t, 0)
		schema["$defs"] = definitions
		raw, left := encode(schema), schemaBudget
		v, err := generate(raw, rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), &left, nil)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		value, plain := parse[any](t, string(v)), parse[map[string]any](t, string(raw))
		if why := breaks(plain, plain, value); why != "" {
			t.Fatalf("%s does not satisfy %s: %s", v, raw, why)
		}
	})
}

func TestASchemaThatCannotBeSatisfiedIsRefused(t *testing.T) {
	defer debug.SetMaxStack(debug.SetMaxStack(128 << 20)) // a schema that refers to itself must not take more
	for schema, why := range map[string]string{
		`{"pattern":"a"}`:                     "pattern",
		`{"not":{}}`:                          "not",
		`{"type":"thing"}`:                    "thing",
		`{"type":5}`:                          "type",
		`{"type":[]}`:                         "no type",
		`false`:                               "false",
		`5`:                                   "object",
		`{"anyOf":[]}`:                        "no schema",
		`{"anyOf":{}}`:                        "anyOf",
		`{"enum":[]}`:                         "enum",
		`{"type":"integer","enum":["a",1.5]}`: "enum",
		`{"type":"integer","minimum":0.1,"maximum":0.9}`:     "whole number",
		`{"type":"number","minimum":2,"maximum":1}`:          "bounds",
		`{"type":"number","exclusiveMinimum":1,"maximum":1}`: "bounds",
		`{"type":"integer","minimum":1e300}`:                 "53 bits",
		`{"type":"number","minimum":"1"}`:                    "minimum",
		`{"type":"number","multipleOf":0}`:                   "multipleOf",
		`{"type":"number","multipleOf":1.5}`:                 "multipleOf",
		`{"type":"string","minLength":5,"maxLength":4}`:      "minLength",
		`{"type":"string","minLength":-1}`:                   "minLength",
		`{"type":"string","format":"date","maxLength":3}`:    "format",
		`{"type":"string","minLength":1e12}`:                 "minLength",
		`{"type":"string","minLength":2000000000}`:           "large",
		`{"type":"array","minItems":2000000000}`:             "large",
		`{"type":"array","uniqueItems":true,"minItems":2}`:   "uniqueItems",
		`{"required":["a"],"additionalProperties":false}`:    "false",
		`{"$ref":"#"}`:                                       "itself",
		`{"$ref":"#/nowhere"}`:                               "nothing",
		`{"$ref":"https://example.com"}`:                     "inside",
		`{"$ref":"#anchor"}`:                                 "inside",
		`{"properties":{"a":{"$ref":"#"}},"required":["a"]}`: "deeply",
		`{"allOf":[{"minimum":1},{"minimum":2}]}`:            "twice",
		`{"allOf":[{"type":"string"},{"type":"null"}]}`:      "no type",
		`{"allOf":[{"properties":{"a":{"type":"null"}}},{"properties":{"a":{}}}]}`: "declared twice",
		`{"required":"a"}`:  "required",
		`{"properties":[]}`: "properties",
		`{"allOf":[{"properties":{"a":{}},"additionalProperties":false},{"properties":{"b":{}}}]}`:                                         "additionalProperties",
		`{"properties":{"a":{"$ref":"#"},"b":{"$ref":"#"},"c":{"$ref":"#"}},"required":["c","b","a"],"anyOf":[{"$ref":"#"},{"$ref":"#"}]}`: "",
	} {
		var v jsontext.Value
		var err error
		if n := allocated(func() {
			budget := schemaBudget
			v, err = generate(jsontext.Value(schema), rand.New(rand.NewPCG(1, 2)), &budget, nil)
		}); n > maxAllocated {
			t.Errorf("%s allocates %d bytes", schema, n)
		}
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %s, %v", schema, v, err)
		}
	}
}

// maxAllocated bounds the memory that one answer may allocate for schemas, and with it the work: all work on a schema
// copies parts of it.
const maxAllocated = 64 * schemaBudget

// allocated returns how many bytes a call allocates. Unlike its duration, this does not depend on the machine's load.
func allocated(call func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	call()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestASchemaThatRefersToItselfEndsWhereItCan(t *testing.T) {
	child := `{"anyOf":[{"$ref":"#"},{"$ref":"#"},{"$ref":"#"},{"type":"null"}]}`
	for _, schema := range []string{
		`{"type":"object","properties":{"a":` + child + `,"b":` + child + `,"c":` + child + `},"required":["a","b","c"]}`,
		`{"type":"object","properties":{"a":{"$ref":"#"},"b":{"$ref":"#"},"c":{"$ref":"#"},"d":{"$ref":"#"}}}`,
		`{"type":["array","null"],"items":{"$ref":"#"},"minItems":3}`,
	} {
		for seed := range uint64(20) {
			left := schemaBudget
			if v, err := generate(jsontext.Value(schema), rand.New(rand.NewPCG(seed, 2)), &left, nil); err != nil {
				t.Errorf("%s: %.100s, %v", schema, v, err)
			}
		}
	}
}

func TestValuesRespectTheirBounds(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"integer","exclusiveMinimum":0,"maximum":10,"multipleOf":6}`:  "6",
		`{"type":"integer","minimum":-10,"exclusiveMaximum":0,"multipleOf":6}`: "-6",
		`{"type":"number","minimum":3,"exclusiveMaximum":4,"multipleOf":0.01}`: "3",
		`{"type":"number","minimum":3,"maximum":3}`:                            "3",
		`{"type":"array","uniqueItems":true,"items":{"const":1}}`:              "[1]",
	} {
		for seed := range uint64(20) {
			left := schemaBudget
			if v, err := generate(jsontext.Value(schema), rand.New(rand.NewPCG(seed, 2)), &left, nil); err != nil || string(v) != want {
				t.Errorf("%s: %s, %v", schema, v, err)
			}
		}
	}
}

func TestOptionalMembersThatCannotBeGeneratedAreLeftOut(t *testing.T) {
	schema := `{"type":"object","properties":{"a":{"pattern":"x"},"b":{"type":"null"},"c":{"type":"array","items":{"pattern":"x"}}},"required":["b"]}`
	left := schemaBudget
	v, err := generate(jsontext.Value(schema), rand.New(rand.NewPCG(1, 2)), &left, nil)
	if err != nil || string(v) != `{"b":null,"c":[]}` {
		t.Errorf("%s, %v", v, err)
	}
}

func TestManyChoicesOfAHeavySchemaAreBounded(t *testing.T) {
	schema := `{"type":"array","minItems":20000,"items":{"type":"string","minLength":20}}`
	body := chatWith(`"n":128,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":` + schema + `}}`)
	var response *upstream.Response
	var text string
	n := allocated(func() { response, text, _ = send(t, New(), model("sim/chat"), body) })
	if response.Status != 400 || n > maxAllocated {
		t.Errorf("%d after %d bytes: %.100s", response.Status, n, text)
	}
}
