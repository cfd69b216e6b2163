package main

import (
	"math"
	"strings"
)

// example is a small value that satisfies a JSON schema: the example that it gives itself, or the least that its types
// and requirements allow. It knows what schemas of tools and structured outputs are made of, and no more.
func example(schema map[string]any) any { return exampleIn(schema, schema, 0) }

// deepest bounds schemas that refer to themselves.
const deepest = 32

func exampleIn(root, schema map[string]any, depth int) any {
	if depth > deepest {
		return nil
	}
	within := func(s any) any {
		child, _ := s.(map[string]any)
		return exampleIn(root, child, depth+1)
	}
	if reference, ok := schema["$ref"].(string); ok {
		return within(resolve(root, reference))
	}
	for _, key := range []string{"const", "example", "default"} {
		if value, ok := schema[key]; ok {
			return value
		}
	}
	for _, key := range []string{"examples", "enum"} {
		if values, _ := schema[key].([]any); len(values) > 0 {
			return values[0]
		}
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		if choices, _ := schema[key].([]any); len(choices) > 0 {
			return within(choices[0])
		}
	}
	switch kind(schema) {
	case "object":
		properties, _ := schema["properties"].(map[string]any)
		required, _ := schema["required"].([]any)
		out := map[string]any{}
		for _, name := range required {
			name, _ := name.(string)
			out[name] = within(properties[name])
		}
		return out
	case "array":
		out := make([]any, least(schema, "minItems"))
		for i := range out {
			out[i] = within(schema["items"])
		}
		return out
	case "string":
		return "text" + strings.Repeat("x", max(0, least(schema, "minLength")-len("text")))
	case "integer", "number":
		x := 0.0
		if minimum, ok := schema["minimum"].(float64); ok {
			x = max(x, math.Ceil(minimum))
		}
		if above, ok := schema["exclusiveMinimum"].(float64); ok {
			x = max(x, math.Floor(above)+1)
		}
		if maximum, ok := schema["maximum"].(float64); ok {
			x = min(x, math.Floor(maximum))
		}
		return x
	case "boolean":
		return true
	}
	return nil
}

func kind(schema map[string]any) string {
	switch kind := schema["type"].(type) {
	case string:
		return kind
	case []any:
		for _, one := range kind {
			if name, _ := one.(string); name != "null" {
				return name
			}
		}
	}
	if _, ok := schema["properties"]; ok {
		return "object"
	}
	return ""
}

func least(schema map[string]any, key string) int {
	n, _ := schema[key].(float64)
	return int(min(n, 1000))
}

// resolve follows a reference into the schema itself, such as #/$defs/step.
func resolve(root map[string]any, reference string) any {
	var at any = root
	for _, step := range strings.Split(strings.TrimPrefix(reference, "#"), "/") {
		if step == "" {
			continue
		}
		in, _ := at.(map[string]any)
		at = in[step]
	}
	return at
}
