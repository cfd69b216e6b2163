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

// make is a value of one type that keeps the rules of sh.
func (g *generator) make(kind string, sh *shape, depth int) (jsontext.Value, error) {
	if err := g.spend(step); err != nil {
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

// object has every member that is required and, near the surface, those that may be left out too.
func (g *generator) object(sh *shape, depth int) (jsontext.Value, error) {
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
		if !needed[p.name] && depth >= shallow {
			continue
		}
		value := g.given[p.name]
		if value == nil || depth > 0 {
			var err error
			value, err = g.at(p.value, depth+1)
			if err != nil && (needed[p.name] || errors.Is(err, errEffort)) {
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

// at is a value of a schema inside the one before it.
func (g *generator) at(schema jsontext.Value, depth int) (jsontext.Value, error) {
	sh, err := g.shape(schema)
	if err != nil {
		return nil, err
	}
	return g.value(sh, depth)
}

// array has as few items as it may, and near the surface one or two.
func (g *generator) array(sh *shape, depth int) (jsontext.Value, error) {
	low, high, err := sh.lengths("minItems", "maxItems")
	if err != nil {
		return nil, err
	}
	unique := sh.rules["uniqueItems"].Kind() == 't'
	if unique && low > 1 {
		return nil, misfit("uniqueItems is not supported with a minItems above 1")
	}
	n := low
	if n == 0 && depth < shallow {
		n = min(1+g.rng.IntN(2), high)
	}
	if unique {
		n = min(n, 1)
	}
	items := jsontext.Value(cmp.Or(string(sh.rules["items"]), "true"))
	text := jsontext.Value("[")
	for i := range n {
		value, err := g.at(items, depth+1)
		switch {
		case err != nil && low == 0 && !errors.Is(err, errEffort):
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

func (g *generator) text(sh *shape) (jsontext.Value, error) {
	low, high, err := sh.lengths("minLength", "maxLength")
	if err != nil {
		return nil, err
	}
	if err := g.spend(low); err != nil {
		return nil, err
	}
	var format string
	if raw, ok := sh.rules["format"]; ok && json.Unmarshal(raw, &format) != nil {
		return nil, misfit("format must be a text")
	}
	text, fixed := formats[format]
	if !fixed {
		text = "Simulated " + vocabulary[g.rng.IntN(len(vocabulary))]
		text += strings.Repeat(".", max(0, low-len(text)))
		text = text[:min(len(text), high)]
	}
	if n := utf8.RuneCountInString(text); n < low || n > high {
		return nil, misfit("format is not supported with these lengths")
	}
	return encode(text), g.spend(len(text))
}

// lengths are two bounds of a length.
func (sh *shape) lengths(least, most string) (low, high int, err error) {
	high = math.MaxInt32
	for name, into := range map[string]*int{least: &low, most: &high} {
		if raw, ok := sh.rules[name]; ok && (json.Unmarshal(raw, into) != nil || *into < 0) {
			return 0, 0, misfit(name + " must be a whole number")
		}
	}
	if low > high {
		return 0, 0, misfit(least + " is above " + most)
	}
	return low, high, nil
}

// span is where numbers are taken from where a schema leaves it open.
const span = 100

// exact is how far a float64 counts in whole numbers.
const exact = 1 << 53

// A between is the bounds of a number.
type between struct{ low, high float64 }

// bounds are those of a number. A bound that is excluded is moved by the smallest step there is.
func (sh *shape) bounds() (b between, err error) {
	b = between{math.Inf(-1), math.Inf(1)}
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
			return b, misfit(rule.name + " must be a number")
		}
		rule.apply(x)
	}
	switch {
	case math.IsInf(b.low, -1) && math.IsInf(b.high, 1):
		b = between{0, span}
	case math.IsInf(b.low, -1):
		b.low = b.high - span
	case math.IsInf(b.high, 1):
		b.high = b.low + span
	}
	if b.low > b.high {
		return b, misfit("no number is between the bounds")
	}
	return b, nil
}

// number is one of 129 between the bounds.
func (g *generator) number(sh *shape) (jsontext.Value, error) {
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

// integer is a whole multiple of multipleOf. Every whole number is a multiple of a fraction such as 0.01 or 0.25.
func (g *generator) integer(sh *shape) (jsontext.Value, error) {
	b, err := sh.bounds()
	if err != nil {
		return nil, err
	}
	unit := 1.0
	if raw, ok := sh.rules["multipleOf"]; ok {
		if err := json.Unmarshal(raw, &unit); err != nil || unit <= 0 {
			return nil, misfit("multipleOf must be a number above 0")
		}
		if parts := 1 / unit; unit < 1 && parts == math.Trunc(parts) {
			unit = 1
		}
		if unit != math.Trunc(unit) {
			return nil, misfit("this multipleOf is not supported")
		}
	}
	least, most := math.Ceil(b.low/unit), math.Floor(b.high/unit)
	if least*unit < b.low { // by less than the division can tell
		least++
	}
	if most*unit > b.high {
		most--
	}
	if math.Abs(least*unit) >= exact || math.Abs(most*unit) >= exact {
		return nil, misfit("whole numbers of more than 53 bits are not supported")
	}
	if least > most {
		return nil, misfit("no whole number is between the bounds")
	}
	most = min(most, least+span)
	return encode(int64((least + float64(g.rng.IntN(int(most-least)+1))) * unit)), nil
}
