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

// generate returns a random value that satisfies a JSON schema. It supports type, enum, const, properties, required,
// additionalProperties, items, the bounds of numbers, strings and arrays, references inside the schema, allOf, anyOf,
// and oneOf where at most one of its schemas can hold. Another validating keyword is an error; annotations are ignored.
//
// If the outermost object declares every member of one of given, they get those values.
//
// The bytes that are read and written are subtracted from budget, which bounds schemas that refer to themselves.
func generate(
	schema jsontext.Value, rng *rand.Rand, left *int, given ...map[string]jsontext.Value,
) (jsontext.Value, error) {
	g := &generator{root: schema, rng: rng, budget: left}
	outer, err := g.mergeSchema(schema)
	if err != nil {
		return nil, err
	}
	for _, members := range given {
		if declaresAll(outer.declared, members) {
			g.presetMembers = members
		}
	}
	return g.value(outer, 0)
}

// declaresAll reports whether all members have names that a schema declares.
func declaresAll[T any](declared map[string]T, members map[string]jsontext.Value) bool {
	for name := range members {
		if _, ok := declared[name]; !ok {
			return false
		}
	}
	return true
}

// schemaBudget is the number of bytes of schemas and values that may be processed for one answer. stepCost is added for
// each schema that is merged and each value that is generated.
const (
	schemaBudget = 4 << 20
	stepCost     = 256
)

// Values deeper than optionalDepth have required members only. Values deeper than maxDepth are an error.
const (
	optionalDepth = 4
	maxDepth      = 64
)

// schemaError is why no value can be generated for a schema.
type schemaError string

func (m schemaError) Error() string { return string(m) }

var errSchemaBudget = errors.New("the schema is too large, or refers to itself without end")

type generator struct {
	root          jsontext.Value
	rng           *rand.Rand
	budget        *int
	presetMembers map[string]jsontext.Value
}

// mergedSchema is a schema with its references and its allOf merged into it.
type mergedSchema struct {
	types               []string // nil means any
	rules               map[string]jsontext.Value
	properties          []member
	declared            map[string]jsontext.Value // properties by name
	required            []string
	restrictsAdditional bool // some merged schema restricts additionalProperties
	propertySources     int  // number of merged schemas that declare properties
}

type member struct {
	name  string
	value jsontext.Value
}

var types = []string{"null", "boolean", "string", "number", "integer", "object", "array"}

// rules are the keywords that are applied when a value is generated.
var rules = []string{
	"enum", "const", "anyOf", "oneOf", "additionalProperties", "items", "minItems", "maxItems", "uniqueItems",
	"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "format",
}

// unsupportedKeywords are validating keywords that generate does not implement.
var unsupportedKeywords = []string{
	"not", "if", "then", "else", "pattern", "patternProperties", "propertyNames", "minProperties", "maxProperties",
	"dependencies", "dependentRequired", "dependentSchemas", "contains", "minContains", "maxContains", "prefixItems",
	"unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef",
}

func (g *generator) spend(n int) error {
	if *g.budget -= n; *g.budget < 0 {
		return errSchemaBudget
	}
	return nil
}

func (g *generator) mergeSchema(schema jsontext.Value) (*mergedSchema, error) {
	sh := &mergedSchema{rules: map[string]jsontext.Value{}, declared: map[string]jsontext.Value{}}
	return sh, g.merge(sh, schema)
}

// merge merges a schema into sh: values of sh then satisfy the schema as well.
func (g *generator) merge(sh *mergedSchema, schema jsontext.Value) error {
	if err := g.spend(stepCost); err != nil {
		return err
	}
	if schema.Kind() == 't' {
		return nil
	}
	if schema.Kind() == 'f' {
		return schemaError("false allows no value")
	}
	words, err := g.members(schema)
	if err != nil {
		return err
	}
	for _, w := range words {
		if err := g.addKeyword(sh, w); err != nil {
			return err
		}
	}
	if sh.restrictsAdditional && sh.propertySources > 1 {
		return schemaError("additionalProperties is not supported beside the properties of another schema")
	}
	return nil
}

func (g *generator) addKeyword(sh *mergedSchema, w member) error {
	switch {
	case w.name == "$ref":
		target, err := g.resolve(w.value)
		if err != nil {
			return err
		}
		return g.merge(sh, target)
	case w.name == "allOf":
		all, err := list[jsontext.Value](g, w)
		for i := 0; err == nil && i < len(all); i++ {
			err = g.merge(sh, all[i])
		}
		return err
	case w.name == "type":
		return g.restrict(sh, w)
	case w.name == "properties":
		properties, err := g.members(w.value)
		if err != nil {
			return err
		}
		sh.propertySources++
		for _, p := range properties {
			before, declared := sh.declared[p.name]
			if declared && !bytes.Equal(before, p.value) {
				return schemaError("the property " + p.name + " is declared twice")
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
	case slices.Contains(unsupportedKeywords, w.name):
		return schemaError(w.name + " is not supported")
	case slices.Contains(rules, w.name):
		if before, ok := sh.rules[w.name]; ok && !bytes.Equal(before, w.value) {
			return schemaError(w.name + " is given twice")
		}
		sh.rules[w.name] = w.value
		sh.restrictsAdditional = sh.restrictsAdditional || w.name == "additionalProperties" && w.value.Kind() != 't'
	}
	return nil
}

// restrict intersects the types with those of w. A number may be an integer.
func (g *generator) restrict(sh *mergedSchema, w member) error {
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
			return schemaError("there is no type " + t)
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

// members returns the members of an object, in order.
func (g *generator) members(object jsontext.Value) (all []member, err error) {
	if err := g.spend(len(object)); err != nil {
		return nil, err
	}
	if object.Kind() != '{' {
		return nil, schemaError("a schema, and what declares properties, must be an object")
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

// list decodes a keyword that must be an array.
func list[T any](g *generator, w member) (all []T, err error) {
	if err := g.spend(len(w.value)); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(w.value, &all); err != nil {
		return nil, schemaError(w.name + " must be an array")
	}
	return all, nil
}

// resolve returns the schema that a reference points at.
func (g *generator) resolve(ref jsontext.Value) (jsontext.Value, error) {
	var text string
	if err := json.Unmarshal(ref, &text); err != nil {
		return nil, schemaError("$ref must be a text")
	}
	fragment, ok := strings.CutPrefix(text, "#")
	path, err := url.PathUnescape(fragment)
	if !ok || err != nil || (path != "" && path[0] != '/') {
		return nil, schemaError("$ref must point inside the schema: " + text)
	}
	at := g.root
	for token := range jsontext.Pointer(path).Tokens() {
		all, err := g.members(at)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(all, func(m member) bool { return m.name == token })
		if i < 0 {
			return nil, schemaError("$ref points at nothing: " + text)
		}
		at = all[i].value
	}
	return at, g.spend(len(text))
}

// value returns a value that satisfies sh.
func (g *generator) value(sh *mergedSchema, depth int) (jsontext.Value, error) {
	if depth > maxDepth {
		return nil, schemaError("values are nested too deeply")
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
		allowed = []string{sh.impliedType()}
	}
	deeper := func(i int) bool { return allowed[i] == "object" || allowed[i] == "array" }
	return g.tryInOrder(len(allowed), depth, deeper, func(i int) (jsontext.Value, error) {
		return g.makeValue(allowed[i], sh, depth)
	})
}

// pick returns one of the given values that has an allowed type.
func (g *generator) pick(sh *mergedSchema, from []jsontext.Value) (jsontext.Value, error) {
	from = slices.DeleteFunc(from, func(v jsontext.Value) bool {
		return sh.types != nil && !slices.ContainsFunc(kindTypes[v.Kind()], func(t string) bool {
			return slices.Contains(sh.types, t) && (t != "integer" || !bytes.ContainsAny(v, ".eE"))
		})
	})
	if len(from) == 0 {
		return nil, schemaError("no value of enum or const has the right type")
	}
	v := from[g.rng.IntN(len(from))]
	return v, g.spend(len(v))
}

// kindTypes are the schema types of each kind of JSON value.
var kindTypes = map[jsontext.Kind][]string{
	'n': {"null"}, 't': {"boolean"}, 'f': {"boolean"}, '"': {"string"}, '0': {"number", "integer"}, '{': {"object"},
	'[': {"array"},
}

// branch returns a value that satisfies sh and one of the schemas.
func (g *generator) branch(sh *mergedSchema, schemas []jsontext.Value, depth int) (jsontext.Value, error) {
	deeper := func(i int) bool {
		return slices.ContainsFunc([]string{`"$ref"`, `"object"`, `"array"`, `"properties"`, `"items"`, `Of"`},
			func(word string) bool {
				return bytes.Contains(schemas[i], []byte(word))
			})
	}
	return g.tryInOrder(len(schemas), depth, deeper, func(i int) (jsontext.Value, error) {
		if err := g.spend(stepCost + len(sh.properties) + len(sh.required)); err != nil {
			return nil, err
		}
		merged := sh.clone()
		if err := g.merge(merged, schemas[i]); err != nil {
			return nil, err
		}
		return g.value(merged, depth)
	})
}

// tryInOrder tries n alternatives in random order. At optionalDepth and beyond, alternatives that nest deeper come
// last.
func (g *generator) tryInOrder(n, depth int, deeper func(int) bool,
	try func(int) (jsontext.Value, error),
) (jsontext.Value, error) {
	order := g.rng.Perm(n)
	if depth >= optionalDepth {
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
	var last error = schemaError("no type or no schema is left to satisfy")
	for _, i := range order {
		v, err := try(i)
		if err == nil || errors.Is(err, errSchemaBudget) {
			return v, err
		}
		last = err
	}
	return nil, last
}

func (sh *mergedSchema) clone() *mergedSchema {
	c := *sh
	c.rules, c.declared = maps.Clone(sh.rules), maps.Clone(sh.declared)
	c.properties, c.required = slices.Clone(sh.properties), slices.Clone(sh.required)
	return &c
}

func (sh *mergedSchema) without(rule string) *mergedSchema {
	c := sh.clone()
	delete(c.rules, rule)
	return c
}

// impliedType returns the type that the rules of a schema without a type imply.
func (sh *mergedSchema) impliedType() string {
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
