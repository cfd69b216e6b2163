package sim

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// makeValue returns a value of one type that satisfies sh.
func (g *generator) makeValue(kind string, sh *mergedSchema, depth int) (jsontext.Value, error) {
	if err := g.spend(stepCost); err != nil {
		return nil, err
	}
	switch kind {
	case "object":
		return g.object(sh, depth)
	case "array":
		return g.array(sh, depth)
	case "string":
		return g.text(sh)
	case "number":
		return g.number(sh)
	case "integer":
		return g.integer(sh)
	case "boolean":
		return encode(g.rng.IntN(2) == 1), nil
	default:
		return jsontext.Value("null"), nil
	}
}

// object has all required members and, above optionalDepth, the optional ones.
func (g *generator) object(sh *mergedSchema, depth int) (jsontext.Value, error) {
	needed := map[string]bool{}
	all := slices.Clip(sh.properties)
	for _, name := range sh.required {
		if _, declared := sh.declared[name]; !declared && !needed[name] {
			all = append(all, member{name, jsontext.Value(cmp.Or(string(sh.rules["additionalProperties"]), "true"))})
		}
		needed[name] = true
	}
	text := jsontext.Value("{")
	for _, p := range all {
		if !needed[p.name] && depth >= optionalDepth {
			continue
		}
		value := g.presetMembers[p.name]
		if value == nil || depth > 0 {
			var err error
			value, err = g.nestedValue(p.value, depth+1)
			if err != nil && (needed[p.name] || errors.Is(err, errSchemaBudget)) {
				return nil, err
			}
			if err != nil {
				continue
			}
		}
		if len(text) > 1 {
			text = append(text, ',')
		}
		text = append(append(append(text, encode(p.name)...), ':'), value...)
	}
	return append(text, '}'), g.spend(len(text))
}

// nestedValue returns a value of a nested schema.
func (g *generator) nestedValue(schema jsontext.Value, depth int) (jsontext.Value, error) {
	sh, err := g.mergeSchema(schema)
	if err != nil {
		return nil, err
	}
	return g.value(sh, depth)
}

// array has as few items as allowed; above optionalDepth one or two.
func (g *generator) array(sh *mergedSchema, depth int) (jsontext.Value, error) {
	low, high, err := sh.lengths("minItems", "maxItems")
	if err != nil {
		return nil, err
	}
	unique := sh.rules["uniqueItems"].Kind() == 't'
	if unique && low > 1 {
		return nil, schemaError("uniqueItems is not supported with a minItems above 1")
	}
	n := low
	if n == 0 && depth < optionalDepth {
		n = min(1+g.rng.IntN(2), high)
	}
	if unique {
		n = min(n, 1)
	}
	items := jsontext.Value(cmp.Or(string(sh.rules["items"]), "true"))
	text := jsontext.Value("[")
	for i := range n {
		value, err := g.nestedValue(items, depth+1)
		switch {
		case err != nil && low == 0 && !errors.Is(err, errSchemaBudget):
			return jsontext.Value("[]"), nil
		case err != nil:
			return nil, err
		case i > 0:
			text = append(text, ',')
		}
		text = append(text, value...)
	}
	return append(text, ']'), g.spend(len(text))
}

var formats = map[string]string{
	"date-time": "2026-01-02T15:04:05Z", "date": "2026-01-02", "time": "15:04:05Z", "duration": "PT15M",
	"email": "simulated@example.com", "hostname": "simulated.example.com", "ipv4": "192.0.2.1", "ipv6": "2001:db8::1",
	"uuid": "01234567-89ab-4cde-8f01-23456789abcd", "uri": "https://example.com/simulated",
}

func (g *generator) text(sh *mergedSchema) (jsontext.Value, error) {
	low, high, err := sh.lengths("minLength", "maxLength")
	if err != nil {
		return nil, err
	}
	if err := g.spend(low); err != nil {
		return nil, err
	}
	var format string
	if raw, ok := sh.rules["format"]; ok && json.Unmarshal(raw, &format) != nil {
		return nil, schemaError("format must be a text")
	}
	text, fixed := formats[format]
	if !fixed {
		text = "Simulated " + vocabulary[g.rng.IntN(len(vocabulary))]
		text += strings.Repeat(".", max(0, low-len(text)))
		text = text[:min(len(text), high)]
	}
	if n := utf8.RuneCountInString(text); n < low || n > high {
		return nil, schemaError("format is not supported with these lengths")
	}
	return encode(text), g.spend(len(text))
}

// lengths returns the minimum and maximum of a length.
func (sh *mergedSchema) lengths(least, most string) (low, high int, err error) {
	high = math.MaxInt32
	for name, into := range map[string]*int{least: &low, most: &high} {
		if raw, ok := sh.rules[name]; ok && (json.Unmarshal(raw, into) != nil || *into < 0) {
			return 0, 0, schemaError(name + " must be a whole number")
		}
	}
	if low > high {
		return 0, 0, schemaError(least + " is above " + most)
	}
	return low, high, nil
}

// openRange is the width of the range of numbers if a schema has no bounds.
const openRange = 100

// maxExactInt is the largest range of whole numbers that a float64 represents exactly.
const maxExactInt = 1 << 53

// interval is the bounds of a number.
type interval struct{ low, high float64 }

// bounds returns the bounds of a number. An exclusive bound is moved to the next float64.
func (sh *mergedSchema) bounds() (b interval, err error) {
	b = interval{math.Inf(-1), math.Inf(1)}
	for _, rule := range []struct {
		name  string
		apply func(x float64)
	}{
		{"minimum", func(x float64) { b.low = max(b.low, x) }},
		{"exclusiveMinimum", func(x float64) { b.low = max(b.low, math.Nextafter(x, math.Inf(1))) }},
		{"maximum", func(x float64) { b.high = min(b.high, x) }},
		{"exclusiveMaximum", func(x float64) { b.high = min(b.high, math.Nextafter(x, math.Inf(-1))) }},
	} {
		raw, ok := sh.rules[rule.name]
		if !ok {
			continue
		}
		var x float64
		if err := json.Unmarshal(raw, &x); err != nil {
			return b, schemaError(rule.name + " must be a number")
		}
		rule.apply(x)
	}
	switch {
	case math.IsInf(b.low, -1) && math.IsInf(b.high, 1):
		b = interval{0, openRange}
	case math.IsInf(b.low, -1):
		b.low = b.high - openRange
	case math.IsInf(b.high, 1):
		b.high = b.low + openRange
	}
	if b.low > b.high {
		return b, schemaError("no number is between the bounds")
	}
	return b, nil
}

// number returns one of 129 evenly spaced numbers between the bounds.
func (g *generator) number(sh *mergedSchema) (jsontext.Value, error) {
	if _, ok := sh.rules["multipleOf"]; ok {
		return g.integer(sh)
	}
	b, err := sh.bounds()
	if err != nil {
		return nil, err
	}
	const steps = 128
	share := float64(g.rng.IntN(steps+1)) / steps
	x := b.low*(1-share) + b.high*share
	return encode(min(max(x, b.low), b.high)), nil
}

// integer returns a whole multiple of multipleOf. Every whole number is a multiple of a fraction such as 0.01 or 0.25.
func (g *generator) integer(sh *mergedSchema) (jsontext.Value, error) {
	b, err := sh.bounds()
	if err != nil {
		return nil, err
	}
	unit := 1.0
	if raw, ok := sh.rules["multipleOf"]; ok {
		if err := json.Unmarshal(raw, &unit); err != nil || unit <= 0 {
			return nil, schemaError("multipleOf must be a number above 0")
		}
		if parts := 1 / unit; unit < 1 && parts == math.Trunc(parts) {
			unit = 1
		}
		if unit != math.Trunc(unit) {
			return nil, schemaError("this multipleOf is not supported")
		}
	}
	least, most := math.Ceil(b.low/unit), math.Floor(b.high/unit)
	if least*unit < b.low { // rounding error of the division
		least++
	}
	if most*unit > b.high {
		most--
	}
	if math.Abs(least*unit) >= maxExactInt || math.Abs(most*unit) >= maxExactInt {
		return nil, schemaError("whole numbers of more than 53 bits are not supported")
	}
	if least > most {
		return nil, schemaError("no whole number is between the bounds")
	}
	most = min(most, least+openRange)
	return encode(int64((least + float64(g.rng.IntN(int(most-least)+1))) * unit)), nil
}
