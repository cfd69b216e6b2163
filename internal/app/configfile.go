package app

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"sovereign/internal/domain/catalog"
)

// A file is a configuration file: every value with its key and its line.
type file struct {
	path   string
	values map[string]setting // by flag name
}

type setting struct {
	key  string
	line int
	text string
}

// readFile reads a configuration file. An unknown key, a value that its key does not take and a key that is given
// twice are errors that name the line.
func readFile(path string) (*file, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the operator's own path
	if err != nil {
		return nil, fmt.Errorf("config file: %w", err)
	}
	var root yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&root); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if decoder.Decode(&yaml.Node{}) == nil {
		return nil, fmt.Errorf("%s: holds more than one document", path)
	}
	f := &file{path: path, values: map[string]setting{}}
	if len(root.Content) == 0 {
		return f, nil
	}
	if err := f.walk(root.Content[0], ""); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *file) walk(node *yaml.Node, prefix string) error {
	if node.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: %s must be a mapping of keys to values", f.path, node.Line, cmp.Or(
			strings.TrimSuffix(prefix, "."), "the file",
		))
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		key := prefix + name.Value
		flag, known := keys()[key]
		section := sections[key]
		switch {
		case !known && !section:
			return fmt.Errorf("%s:%d: unknown key %s", f.path, name.Line, key)
		case value.Tag == "!!null":
			continue // a key without a value counts as absent
		case section:
			if err := f.walk(value, key+"."); err != nil {
				return err
			}
			continue
		}
		if _, twice := f.values[flag]; twice {
			return fmt.Errorf("%s:%d: %s is given twice", f.path, name.Line, key)
		}
		text, line, err := f.value(key, flag, value)
		if err != nil {
			return fmt.Errorf("%s:%d: %s: %w", f.path, cmp.Or(line, name.Line), key, err)
		}
		f.values[flag] = setting{key: key, line: name.Line, text: text}
	}
	return nil
}

// lists are the keys whose values are lists of entries, with what reads them.
var lists = map[string]func(*yaml.Node) error{
	"providers": func(n *yaml.Node) error { return new(catalog.Providers).Decode(n) },
	"models":    func(n *yaml.Node) error { return new(catalog.Models).Decode(n) },

	"serving.engines": func(n *yaml.Node) error { return new(Engines).Decode(n) },
}

// value is the text of a value as its flag takes it, or an error with its line, if that is known.
func (f *file) value(key, flag string, node *yaml.Node) (text string, line int, err error) {
	decode, entries := lists[key]
	if !entries {
		if text, err = scalar(node); err == nil {
			err = try(flag, text)
		}
		return text, 0, err
	}
	if err := decode(node); err != nil {
		var placed *catalog.ErrLine
		if errors.As(err, &placed) {
			line = placed.Line
		}
		return "", line, err
	}
	encoded, err := yaml.Marshal(catalog.Numbered(node))
	return string(encoded), 0, err
}

// scalar is a value as a flag takes it; a list of plain values is joined.
func scalar(node *yaml.Node) (string, error) {
	switch node.Kind {
	case yaml.ScalarNode:
		return node.Value, nil
	case yaml.SequenceNode:
		var parts []string
		for _, item := range node.Content {
			if item.Kind != yaml.ScalarNode {
				return "", errors.New("must be a list of plain values")
			}
			parts = append(parts, item.Value)
		}
		return strings.Join(parts, ","), nil
	default:
		return "", errors.New("must be a plain value")
	}
}

// Resolve implements kong.Resolver: a flag that neither the command line nor the environment sets is as in the file.
func (f *file) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	for _, name := range flag.Envs {
		if _, set := os.LookupEnv(name); set {
			return nil, nil //nolint:nilnil // kong's way to say that there is no value
		}
	}
	if value, ok := f.values[flag.Name]; ok {
		return value.text, nil
	}
	return nil, nil //nolint:nilnil // as above
}

// Validate implements kong.Resolver.
func (f *file) Validate(*kong.Application) error { return nil }

// locate adds the file and the line to an error about a key that the file sets.
func (f *file) locate(err error) error {
	var placed *catalog.ErrLine
	if f != nil && errors.As(err, &placed) && placed.Line > 0 {
		return fmt.Errorf("%s:%d: %w", f.path, placed.Line, err)
	}
	var b *badKey
	if f == nil || !errors.As(err, &b) {
		return err
	}
	line := 0 // of a section: the first key of it that the file sets
	for _, value := range f.values {
		if (value.key == b.key || strings.HasPrefix(value.key, b.key+".")) && (line == 0 || value.line < line) {
			line = value.line
		}
	}
	if line == 0 {
		return err
	}
	return fmt.Errorf("%s:%d: %w", f.path, line, err)
}

// sections are the keys that hold keys.
var sections = map[string]bool{
	"tls": true, "limits": true, "dashboard": true, "dashboard.oidc": true, "stripe": true, "smtp": true,
	"training": true, "training.s3": true, "serving": true, "serving.pool": true, "kubernetes": true,
	"kubernetes.trainer": true,
}

// keys maps every key of a file to its flag.
var keys = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	for _, group := range probe(&Config{}).Model.AllFlags(false) {
		for _, flag := range group {
			all[inSections(strings.ReplaceAll(flag.Name, "-", "_"))] = flag.Name
		}
	}
	delete(all, "help")
	return all
})

// inSections returns a key with the sections that it stands in: limits_body is limits.body.
func inSections(key string) string {
	section, rest := "", key
	for {
		first, after, ok := strings.Cut(rest, "_")
		if !ok || !sections[section+first] {
			return section + rest
		}
		section, rest = section+first+".", after
	}
}

// probe returns a parser of the configuration's flags into c.
func probe(c *Config) *kong.Kong {
	parser, err := kong.New(c, kong.Exit(func(int) {}))
	if err != nil {
		panic(err) // the struct is a constant of the program
	}
	return parser
}

// try reports whether a flag takes a value.
func try(flag, text string) error {
	_, err := probe(&Config{}).Parse([]string{"--" + flag + "=" + text})
	if err == nil {
		return nil
	}
	_, reason, found := strings.Cut(err.Error(), ": ")
	if !found {
		reason = err.Error()
	}
	return errors.New(reason)
}

// defaults is the configuration of an admin command that runs without a server.
func defaults(s Storage) *Config {
	var c Config
	if _, err := probe(&c).Parse(nil); err != nil {
		panic(err) // as above
	}
	c.Storage = s
	return &c
}
