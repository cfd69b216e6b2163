package sim

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// generate is a value that satisfies a JSON schema, drawn from rng. It knows type, enum, const, properties, required,
// additionalProperties, items and the bounds of numbers, texts and arrays, references inside the schema, allOf, anyOf,
// and oneOf where at most one of its schemas can hold. A schema with another rule is an error, not a value that breaks
// it; words that are not rules are passed over.
//
// Where the schema's outermost object declares every member of given, they have those values.
//
// What is read and written is taken off left, which bounds schemas that refer to themselves.
func generate(schema jsontext.Value, rng *rand.Rand, left *int, given map[string]jsontext.Value) (jsontext.Value, error) {
	g := &generator{root: schema, rng: rng, left: left, given: given}
	outer, err := g.shape(schema)
	if err != nil {
		return nil, err
	}
	for name := range given {
		if _, declared := outer.declared[name]; !declared {
			g.given = nil
		}
	}
	return g.value(outer, 0)
}

// effort is how many bytes of schemas may be read, and of their values written, for one answer; a step is what looking
// at a schema and making a value cost besides.
const (
	effort = 4 << 20
	step   = 256
)

// Values keep to what is required when they are deeper than shallow, and are refused deeper than deepest.
const (
	shallow = 4
	deepest = 64
)

// A misfit is why a schema has no value here.
type misfit string

func (m misfit) Error() string { return string(m) }

var errEffort = errors.New("the schema is too large, or refers to itself without end")

type generator struct {
	root  jsontext.Value
	rng   *rand.Rand
	left  *int
	given map[string]jsontext.Value
}

// A shape is a schema with its references and the schemas of its allOf merged into it.
type shape struct {
	types      []string // nil: any
	rules      map[string]jsontext.Value
	properties []member
	declared   map[string]jsontext.Value // the same, by name
	required   []string
	closed     bool // some schema in it restricts additional properties,
	sources    int  // and so many declare properties
}

type member struct {
	name  string
	value jsontext.Value
}

var types = []string{"null", "boolean", "string", "number", "integer", "object", "array"}

// rules are kept in a shape and looked at when a value is made.
var rules = []string{
	"enum", "const", "anyOf", "oneOf", "additionalProperties", "items", "minItems", "maxItems", "uniqueItems",
	"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "format",
}

// strangers are rules that are not known how to keep.
var strangers = []string{
	"not", "if", "then", "else", "pattern", "patternProperties", "propertyNames", "minProperties", "maxProperties",
	"dependencies", "dependentRequired", "dependentSchemas", "contains", "minContains", "maxContains", "prefixItems",
	"unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef",
}

func (g *generator) spend(n int) error {
	if *g.left -= n; *g.left < 0 {
		return errEffort
	}
	return nil
}

func (g *generator) shape(schema jsontext.Value) (*shape, error) {
	sh := &shape{rules: map[string]jsontext.Value{}, declared: map[string]jsontext.Value{}}
	return sh, g.add(sh, schema)
}

// add merges a schema into sh: what satisfies sh then satisfies the schema, too.
func (g *generator) add(sh *shape, schema jsontext.Value) error {
	if err := g.spend(step); err != nil {
		return err
	}
	if schema.Kind() == 't' {
		return nil
	}
	if schema.Kind() == 'f' {
		return misfit("false allows no value")
	}
	words, err := g.members(schema)
	if err != nil {
		return err
	}
	for _, w := range words {
		if err := g.word(sh, w); err != nil {
			return err
		}
	}
	if sh.closed && sh.sources > 1 {
		return misfit("additionalProperties is not supported beside the properties of another schema")
	}
	return nil
}

func (g *generator) word(sh *shape, w member) error {
	switch {
	case w.name == "$ref":
		target, err := g.resolve(w.value)
		if err != nil {
			return err
		}
		return g.add(sh, target)
	case w.name == "allOf":
		all, err := list[jsontext.Value](g, w)
		for i := 0; err == nil && i < len(all); i++ {
			err = g.add(sh, all[i])
		}
		return err
	case w.name == "type":
		return g.restrict(sh, w)
	case w.name == "properties":
		properties, err := g.members(w.value)
		if err != nil {
			return err
		}
		sh.sources++
		for _, p := range properties {
			before, declared := sh.declared[p.name]
			if declared && !bytes.Equal(before, p.value) {
				return misfit("the property " + p.name + " is declared twice")
			}
			if !declared {
				sh.properties = append(sh.properties, p)
				sh.declared[p.name] = p.value
			}
		}
	case w.name == "required":
		names, err := list[string](g, w)
		sh.required = append(sh.required, names...)
		return err
	case slices.Contains(strangers, w.name):
		return misfit(w.name + " is not supported")
	case slices.Contains(rules, w.name):
		if before, ok := sh.rules[w.name]; ok && !bytes.Equal(before, w.value) {
			return misfit(w.name + " is given twice")
		}
		sh.rules[w.name] = w.value
		sh.closed = sh.closed || w.name == "additionalProperties" && w.value.Kind() != 't'
	}
	return nil
}

// restrict keeps the types that w allows. A number may be an integer.
func (g *generator) restrict(sh *shape, w member) error {
	var one string
	allowed := []string{}
	if json.Unmarshal(w.value, &one) == nil {
		allowed = append(allowed, one)
	} else if many, err := list[string](g, w); err == nil {
		allowed = many
	} else {
		return err
	}
	for _, t := range allowed {
		if !slices.Contains(types, t) {
			return misfit("there is no type " + t)
		}
	}
	if slices.Contains(allowed, "number") && !slices.Contains(allowed, "integer") {
		allowed = append(allowed, "integer")
	}
	if sh.types != nil {
		allowed = slices.DeleteFunc(allowed, func(t string) bool { return !slices.Contains(sh.types, t) })
	}
	sh.types = allowed
	return nil
}

// members are those of an object, in order.
func (g *generator) members(object jsontext.Value) (all []member, err error) {
	if err := g.spend(len(object)); err != nil {
		return nil, err
	}
	if object.Kind() != '{' {
		return nil, misfit("a schema, and what declares properties, must be an object")
	}
	dec := jsontext.NewDecoder(bytes.NewReader(object))
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		key := name.String()
		value, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		all = append(all, member{key, value.Clone()})
	}
	return all, nil
}

// list is the value of a word that must be an array.
func list[T any](g *generator, w member) (all []T, err error) {
	if err := g.spend(len(w.value)); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(w.value, &all); err != nil {
		return nil, misfit(w.name + " must be an array")
	}
	return all, nil
}

// resolve is what a reference points at.
func (g *generator) resolve(ref jsontext.Value) (jsontext.Value, error) {
	var text string
	if err := json.Unmarshal(ref, &text); err != nil {
		return nil, misfit("$ref must be a text")
	}
	fragment, ok := strings.CutPrefix(text, "#")
	path, err := url.PathUnescape(fragment)
	if !ok || err != nil || (path != "" && path[0] != '/') {
		return nil, misfit("$ref must point inside the schema: " + text)
	}
	at := g.root
	for token := range jsontext.Pointer(path).Tokens() {
		all, err := g.members(at)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(all, func(m member) bool { return m.name == token })
		if i < 0 {
			return nil, misfit("$ref points at nothing: " + text)
		}
		at = all[i].value
	}
	return at, g.spend(len(text))
}

// value is one that satisfies sh.
func (g *generator) value(sh *shape, depth int) (jsontext.Value, error) {
	if depth > deepest {
		return nil, misfit("values are nested too deeply")
	}
	if v, ok := sh.rules["const"]; ok {
		return g.pick(sh, []jsontext.Value{v})
	}
	if v, ok := sh.rules["enum"]; ok {
		all, err := list[jsontext.Value](g, member{"enum", v})
		if err != nil {
			return nil, err
		}
		return g.pick(sh, all)
	}
	for _, name := range []string{"anyOf", "oneOf"} {
		if v, ok := sh.rules[name]; ok {
			branches, err := list[jsontext.Value](g, member{name, v})
			if err != nil {
				return nil, err
			}
			return g.branch(sh.without(name), branches, depth)
		}
	}
	allowed := sh.types
	if allowed == nil {
		allowed = []string{sh.likely()}
	}
	deeper := func(i int) bool { return allowed[i] == "object" || allowed[i] == "array" }
	return g.first(len(allowed), depth, deeper, func(i int) (jsontext.Value, error) { return g.make(allowed[i], sh, depth) })
}

// pick is one of some values that the types allow.
func (g *generator) pick(sh *shape, from []jsontext.Value) (jsontext.Value, error) {
	from = slices.DeleteFunc(from, func(v jsontext.Value) bool {
		return sh.types != nil && !slices.ContainsFunc(kindTypes[v.Kind()], func(t string) bool {
			return slices.Contains(sh.types, t) && (t != "integer" || !bytes.ContainsAny(v, ".eE"))
		})
	})
	if len(from) == 0 {
		return nil, misfit("no value of enum or const has the right type")
	}
	v := from[g.rng.IntN(len(from))]
	return v, g.spend(len(v))
}

// kindTypes are the types that a kind of JSON value can have.
var kindTypes = map[jsontext.Kind][]string{
	'n': {"null"}, 't': {"boolean"}, 'f': {"boolean"}, '"': {"string"}, '0': {"number", "integer"}, '{': {"object"}, '[': {"array"},
}

// branch is a value of sh and one more schema.
func (g *generator) branch(sh *shape, schemas []jsontext.Value, depth int) (jsontext.Value, error) {
	deeper := func(i int) bool {
		return slices.ContainsFunc([]string{`"$ref"`, `"object"`, `"array"`, `"properties"`, `"items"`, `Of"`}, func(word string) bool {
			return bytes.Contains(schemas[i], []byte(word))
		})
	}
	return g.first(len(schemas), depth, deeper, func(i int) (jsontext.Value, error) {
		if err := g.spend(step + len(sh.properties) + len(sh.required)); err != nil {
			return nil, err
		}
		merged := sh.clone()
		if err := g.add(merged, schemas[i]); err != nil {
			return nil, err
		}
		return g.value(merged, depth)
	})
}

// first tries n ways to make a value, in any order, and deep down those last that lead deeper.
func (g *generator) first(n, depth int, deeper func(int) bool, try func(int) (jsontext.Value, error)) (jsontext.Value, error) {
	order := g.rng.Perm(n)
	if depth >= shallow {
		slices.SortStableFunc(order, func(a, b int) int {
			switch {
			case deeper(a) == deeper(b):
				return 0
			case deeper(a):
				return 1
			default:
				return -1
			}
		})
	}
	var last error = misfit("no type or no schema is left to satisfy")
	for _, i := range order {
		v, err := try(i)
		if err == nil || errors.Is(err, errEffort) {
			return v, err
		}
		last = err
	}
	return nil, last
}

func (sh *shape) clone() *shape {
	c := *sh
	c.rules, c.declared = maps.Clone(sh.rules), maps.Clone(sh.declared)
	c.properties, c.required = slices.Clone(sh.properties), slices.Clone(sh.required)
	return &c
}

func (sh *shape) without(rule string) *shape {
	c := sh.clone()
	delete(c.rules, rule)
	return c
}

// likely is the type that the rules of a shape without one speak of.
func (sh *shape) likely() string {
	if len(sh.properties)+len(sh.required) > 0 {
		return "object"
	}
	for _, hint := range []struct{ rule, kind string }{
		{"additionalProperties", "object"},
		{"items", "array"},
		{"minItems", "array"},
		{"maxItems", "array"},
		{"minimum", "number"},
		{"maximum", "number"},
		{"exclusiveMinimum", "number"},
		{"exclusiveMaximum", "number"},
		{"multipleOf", "number"},
	} {
		if _, ok := sh.rules[hint.rule]; ok {
			return hint.kind
		}
	}
	return "string"
}
