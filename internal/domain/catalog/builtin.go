package catalog

import (
	_ "embed"
	"fmt"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"sovereign/internal/live"
)

// builtinText is the built-in providers and models. scripts/catalog writes it, in the format of a configuration.
//
//go:embed builtin.json
var builtinText []byte

// A builtinCatalog is the providers and models that are built in.
type builtinCatalog struct {
	made      time.Time
	providers map[string]*Provider
	models    map[string]*Model
}

// builtin is read once, by the rules of a configuration. A test checks the file.
var builtin = sync.OnceValue(func() *builtinCatalog {
	s, err := readBuiltin(builtinText)
	if err != nil {
		panic(fmt.Errorf("the built-in catalog: %w", err))
	}
	return s
})

func readBuiltin(text []byte) (*builtinCatalog, error) {
	var file struct {
		Source    []string
		Made      string
		Providers yaml.Node
		Models    yaml.Node
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	made, err := time.Parse(time.DateOnly, file.Made)
	if err != nil {
		return nil, err
	}
	var providers Providers
	if err := providers.Decode(&file.Providers); err != nil {
		return nil, err
	}
	models, err := decodeModels(&file.Models, nil)
	if err != nil {
		return nil, err
	}
	s := &builtinCatalog{made: made, providers: map[string]*Provider{}, models: map[string]*Model{}}
	known := map[string]*live.Provider{}
	for i := range providers {
		p := &providers[i]
		if err := p.complete(nil); err != nil {
			return nil, fmt.Errorf("provider %q: %w", p.Name, err)
		}
		s.providers[p.Name], known[p.Name] = p, &p.Provider
	}
	for i := range models {
		m := &models[i]
		if err := m.complete(known); err != nil {
			return nil, fmt.Errorf("model %q: %w", m.ID, err)
		}
		s.models[m.ID] = m
	}
	return s, nil
}

// oldAfter is how many days prices are trusted for.
const oldAfter = 90

// Age is how many days ago the built-in prices were read.
func Age(now time.Time) int { return int(now.Sub(builtin().made) / (24 * time.Hour)) }

// Old is a warning when the built-in prices are old, and else empty.
func Old(now time.Time) string {
	days := Age(now)
	if days <= oldAfter {
		return ""
	}
	return fmt.Sprintf("the built-in prices are of %s, %d days old: take a newer release, or give the prices that have changed in the configuration",
		builtin().made.Format(time.DateOnly), days)
}
