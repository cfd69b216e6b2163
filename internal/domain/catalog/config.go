// Package catalog builds the catalog of models that can be called: those of the configuration, on top of those that are
// built in.
package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"sovereign/internal/base/secret"
	"sovereign/internal/live"
)

// Providers is the configuration's list of providers.
type Providers []Provider

// Models is the configuration's list of models.
type Models []Model

// A Provider is one entry of the configuration.
type Provider struct {
	live.Provider
	key                 secret.Text // as it is written: the key itself, env:NAME or file:PATH
	responses, newLimit *bool       // where the entry says so
	line                int
}

// A Model is one entry of the configuration.
type Model struct {
	live.Model
	provider string
	priced   bool
	line     int
}

// A rule reads one key of an entry.
type rule[T any] map[string]func(*T, *yaml.Node) error

// lineKey is where an entry keeps the line of the file that it stood on, on its way through a flag.
const lineKey = "_line"

// Numbered is a list whose entries know their lines.
func Numbered(list *yaml.Node) *yaml.Node {
	numbered := *list
	numbered.Content = slices.Clone(list.Content)
	for i, n := range list.Content {
		one := *n
		one.Content = append(slices.Clone(n.Content), &yaml.Node{Kind: yaml.ScalarNode, Value: lineKey}, &yaml.Node{
			Kind: yaml.ScalarNode, Value: strconv.Itoa(n.Line),
		})
		numbered.Content[i] = &one
	}
	return &numbered
}

var providerRules = rule[Provider]{
	lineKey:     func(p *Provider, n *yaml.Node) error { return n.Decode(&p.line) },
	"name":      func(p *Provider, n *yaml.Node) error { return text(&p.Name, n) },
	"kind":      func(p *Provider, n *yaml.Node) error { return text((*string)(&p.Protocol), n) },
	"base_url":  func(p *Provider, n *yaml.Node) error { return text(&p.BaseURL, n) },
	"api_key":   func(p *Provider, n *yaml.Node) error { return key(&p.key, n) },
	"ca_file":   func(p *Provider, n *yaml.Node) error { return text(&p.CAFile, n) },
	"responses": func(p *Provider, n *yaml.Node) error { return either(&p.responses, n, "native", "bridged") },
	"max_tokens_field": func(p *Provider, n *yaml.Node) error {
		return either(&p.newLimit, n, "max_completion_tokens", "max_tokens")
	},
	"transport": func(p *Provider, n *yaml.Node) error {
		p.Transport = live.Transport(n.Value)
		if p.Transport != live.Lean && p.Transport != live.Standard {
			return errors.New("must be lean or standard")
		}
		return nil
	},
}

var modelRules = rule[Model]{
	lineKey:             func(m *Model, n *yaml.Node) error { return n.Decode(&m.line) },
	"id":                func(m *Model, n *yaml.Node) error { return text(&m.ID, n) },
	"provider":          func(m *Model, n *yaml.Node) error { return text(&m.provider, n) },
	"upstream_model":    func(m *Model, n *yaml.Node) error { return text(&m.Upstream, n) },
	"kind":              func(m *Model, n *yaml.Node) error { return text((*string)(&m.Kind), n) },
	"context_window":    func(m *Model, n *yaml.Node) error { return count(&m.ContextWindow, n) },
	"max_output_tokens": func(m *Model, n *yaml.Node) error { return count(&m.MaxOutput, n) },
	"stream_usage": func(m *Model, n *yaml.Node) error {
		var supported bool
		if err := n.Decode(&supported); err != nil {
			return errors.New("must be true or false")
		}
		m.NoStreamUsage = !supported
		return nil
	},
	"price": price,
	"sim": func(m *Model, n *yaml.Node) error {
		m.Behaviour = &live.Behaviour{}
		return entry(m.Behaviour, n, behaviourRules)
	},
}

var behaviourRules = rule[live.Behaviour]{
	"seed":        func(b *live.Behaviour, n *yaml.Node) error { return natural(&b.Seed, n) },
	"latency_ms":  func(b *live.Behaviour, n *yaml.Node) error { return natural(&b.LatencyMS, n) },
	"chunk_ms":    func(b *live.Behaviour, n *yaml.Node) error { return natural(&b.ChunkMS, n) },
	"chunks":      func(b *live.Behaviour, n *yaml.Node) error { return natural(&b.Chunks, n) },
	"error_rate":  func(b *live.Behaviour, n *yaml.Node) error { return share(&b.ErrorRate, n) },
	"quality":     func(b *live.Behaviour, n *yaml.Node) error { return share(&b.Quality, n) },
	"sensitivity": func(b *live.Behaviour, n *yaml.Node) error { return share(&b.Sensitivity, n) },
	"specificity": func(b *live.Behaviour, n *yaml.Node) error { return share(&b.Specificity, n) },
}

// An ErrLine is an error with the line of the file that it is about.
type ErrLine struct {
	Line int
	Err  error
}

func (e *ErrLine) Error() string { return e.Err.Error() }

func at(n *yaml.Node, format string, args ...any) error {
	return &ErrLine{Line: n.Line, Err: fmt.Errorf(format, args...)}
}

// entry reads a mapping by its rules. An unknown key, or one that is given twice, is an error.
func entry[T any](to *T, node *yaml.Node, rules rule[T]) error {
	if node.Kind != yaml.MappingNode {
		return at(node, "must be a mapping of keys to values")
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		read, known := rules[name.Value]
		switch {
		case !known:
			return at(name, "unknown key %s", name.Value)
		case seen[name.Value]:
			return at(name, "%s is given twice", name.Value)
		}
		seen[name.Value] = true
		if err := read(to, value); err != nil {
			var placed *ErrLine
			if errors.As(err, &placed) {
				return &ErrLine{Line: placed.Line, Err: fmt.Errorf("%s: %w", name.Value, placed.Err)}
			}
			return at(name, "%s: %w", name.Value, err)
		}
	}
	return nil
}

func list(node *yaml.Node) ([]*yaml.Node, error) {
	if node.Kind == yaml.DocumentNode && len(node.Content) == 1 {
		node = node.Content[0]
	}
	if node.Kind != yaml.SequenceNode {
		return nil, at(node, "must be a list")
	}
	return node.Content, nil
}

// Decode reads the list from a file.
func (p *Providers) Decode(node *yaml.Node) error {
	entries, err := list(node)
	if err != nil {
		return err
	}
	*p = nil
	for _, n := range entries {
		var one Provider
		if err := entry(&one, n, providerRules); err != nil {
			return err
		}
		*p = append(*p, one)
	}
	return nil
}

// Decode reads the list from a file. An entry of a built-in id need only say what is different.
func (m *Models) Decode(node *yaml.Node) (err error) {
	*m, err = decodeModels(node, builtin().models)
	return err
}

func decodeModels(node *yaml.Node, known map[string]*Model) (Models, error) {
	entries, err := list(node)
	if err != nil {
		return nil, err
	}
	var all Models
	for _, n := range entries {
		one := Model{Model: live.Model{Kind: live.Chat}}
		// What is left out depends on the id, and whether a price is whole on the kind, both of which may stand below.
		if base := known[peek(n, "id")]; base != nil {
			one = *base
		}
		if kind := peek(n, "kind"); kind != "" {
			one.Kind = live.Kind(kind)
		}
		if err := entry(&one, n, modelRules); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// peek is the text of a key of a mapping.
func peek(n *yaml.Node, key string) string {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1].Value
		}
	}
	return ""
}

// UnmarshalText reads the list from a flag or the environment, as YAML or JSON.
func (p *Providers) UnmarshalText(text []byte) error { return parse(text, p.Decode) }

// UnmarshalText reads the list from a flag or the environment, as YAML or JSON.
func (m *Models) UnmarshalText(text []byte) error { return parse(text, m.Decode) }

func parse(text []byte, decode func(*yaml.Node) error) error {
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if node.Kind == 0 {
		return nil
	}
	return decode(&node)
}

func text(to *string, n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode || n.Value == "" {
		return errors.New("must be a text")
	}
	*to = n.Value
	return nil
}

func key(to *secret.Text, n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode {
		return errors.New("must be a text")
	}
	if n.Tag != "!!null" {
		*to = secret.New(n.Value)
	}
	return nil
}

// reveal is a provider's key. It is read from its place when the catalog is built, and not when the file is read.
func (p *Provider) reveal() (secret.Text, error) {
	value, err := p.key.Resolve()
	if err != nil {
		return secret.Text{}, fmt.Errorf("api_key: %w", err)
	}
	return value, nil
}

// maxTokens bounds a window: more is a typing error.
const maxTokens = 1_000_000_000

func count(to *int64, n *yaml.Node) error {
	v, err := strconv.ParseInt(n.Value, 10, 64)
	if err != nil || v < 1 || v > maxTokens {
		return fmt.Errorf("must be a whole number from 1 to %d", maxTokens)
	}
	*to = v
	return nil
}

func natural[T int | int64 | uint64](to *T, n *yaml.Node) error {
	v, err := strconv.ParseUint(n.Value, 10, 31)
	if err != nil {
		return errors.New("must be a whole number of at least 0")
	}
	*to = T(v)
	return nil
}

// either reads one of two words, of which the first is true.
func either(to **bool, n *yaml.Node, yes, no string) error {
	if n.Value != yes && n.Value != no {
		return fmt.Errorf("must be %s or %s", yes, no)
	}
	is := n.Value == yes
	*to = &is
	return nil
}

func share(to *float64, n *yaml.Node) error {
	if err := n.Decode(to); err != nil || !(*to >= 0 && *to <= 1) { // which NaN is not
		return errors.New("must be a number from 0 to 1")
	}
	return nil
}
