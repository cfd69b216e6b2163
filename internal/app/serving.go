package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/catalog"
	"sovereign/internal/domain/modelversion"
	"sovereign/internal/domain/serving"
	"sovereign/internal/domain/serving/process"
	"sovereign/internal/store/db"
	"sovereign/internal/store/module"
)

// Serving is how models are served by engines of the operator's own.
type Serving struct {
	Backend   string        `default:"process" help:"Where engines run: process for this machine, or kubernetes."`
	ColdStart time.Duration `default:"60s" help:"How long a request waits for an engine to start. After it, the request is refused with 503."`
	GPUs      []string      `name:"gpus" placeholder:"INDEX" help:"GPUs of this machine that engines may use, such as 0,1; by default all that it has."`
	Engines   Engines       `placeholder:"YAML" help:"Programs that serve models by OpenAI's API: a list of {name, base_models, models, command, health, adapters, env, image, gpu_types, start_timeout, memory}. The names small, llama and vllm are built in, and need only what is different. Without one, nothing can be served."`
	Pool      Pool          `embed:"" prefix:"pool-"`
}

// Pool is the engine that serves trained models (ft/…) of all workspaces.
type Pool struct {
	Engine        string  `placeholder:"NAME" help:"The engine that serves trained models, of serving.engines; empty to serve none."`
	Slots         int     `default:"4" help:"How many trained models one engine holds at once; of an engine that loads none (adapters: none), how many run at once. The least recently used one makes room."`
	GPUType       string  `name:"gpu-type" placeholder:"NAME" help:"Type of the GPUs of the pool; by default the first of its engine."`
	ContextWindow int64   `default:"32768" help:"Tokens that a request to a trained model may have, with its answer."`
	Input         Dollars `name:"input-per-million" default:"0.10" help:"What a million input tokens of a trained model cost, in dollars."`
	Output        Dollars `name:"output-per-million" default:"0.40" help:"What a million output tokens of a trained model cost, in dollars."`
}

// Engines is the configuration's list of engines.
type Engines []engineEntry

// An engineEntry is one engine, as the file has it: a built-in one with what is different.
type engineEntry struct {
	Line         int               `yaml:"_line"`
	Name         string            `yaml:"name"`
	BaseModels   []string          `yaml:"base_models"`
	Models       map[string]string `yaml:"models"`
	Command      []string          `yaml:"command"`
	AdapterArgs  []string          `yaml:"adapter_args"`
	VersionArgs  []string          `yaml:"version_args"`
	Env          map[string]string `yaml:"env"`
	Health       string            `yaml:"health"`
	API          string            `yaml:"api"`
	Adapters     string            `yaml:"adapters"`
	Image        string            `yaml:"image"`
	GPUTypes     []string          `yaml:"gpu_types"`
	StartTimeout time.Duration     `yaml:"start_timeout"`
	Memory       string            `yaml:"memory"`
}

// engineKeys are the keys of an entry.
var engineKeys = func() map[string]bool {
	all := map[string]bool{}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[engineEntry]()) {
		all[field.Tag.Get("yaml")] = true
	}
	return all
}()

// Decode reads the list from a file.
func (e *Engines) Decode(node *yaml.Node) error {
	if node.Kind == yaml.DocumentNode && len(node.Content) == 1 {
		node = node.Content[0]
	}
	if node.Kind != yaml.SequenceNode {
		return &catalog.ErrLine{Line: node.Line, Err: errors.New("must be a list")}
	}
	*e = nil
	for _, n := range node.Content {
		if n.Kind != yaml.MappingNode {
			return &catalog.ErrLine{Line: n.Line, Err: errors.New("must be a mapping of keys to values")}
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if key := n.Content[i]; !engineKeys[key.Value] {
				return &catalog.ErrLine{Line: key.Line, Err: fmt.Errorf("unknown key %s", key.Value)}
			}
		}
		one := engineEntry{Line: n.Line}
		if err := n.Decode(&one); err != nil {
			return &catalog.ErrLine{Line: n.Line, Err: errors.New(strings.TrimPrefix(oneLine(err), "yaml: "))}
		}
		*e = append(*e, one)
	}
	return nil
}

// UnmarshalText reads the list from a flag or the environment, as YAML or JSON.
func (e *Engines) UnmarshalText(text []byte) error {
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if node.Kind == 0 {
		return nil
	}
	return e.Decode(&node)
}

// template returns the engine of an entry.
func (e *engineEntry) template() (serving.Engine, error) {
	t := serving.Template(e.Name)
	for _, list := range []struct{ to, from *[]string }{
		{&t.BaseModels, &e.BaseModels},
		{&t.Command, &e.Command},
		{&t.AdapterArgs, &e.AdapterArgs},
		{&t.VersionArgs, &e.VersionArgs},
		{&t.GPUTypes, &e.GPUTypes},
	} {
		if *list.from != nil {
			*list.to = *list.from
		}
	}
	env := maps.Clone(t.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, e.Env)
	t.Env, t.Models = env, e.Models
	t.Health, t.API = cmp.Or(e.Health, t.Health), cmp.Or(e.API, t.API)
	t.Adapters, t.Image = cmp.Or(e.Adapters, t.Adapters), cmp.Or(e.Image, t.Image)
	t.StartTimeout = cmp.Or(e.StartTimeout, t.StartTimeout)
	if e.Memory != "" {
		var memory Bytes
		if err := memory.UnmarshalText([]byte(e.Memory)); err != nil {
			return t, fmt.Errorf("engine %q: memory: %w", e.Name, err)
		}
		t.Memory = int64(memory)
	}
	return t, nil
}

// templates returns the engines.
func (s *Serving) templates() (serving.Engines, error) {
	var all serving.Engines
	for i := range s.Engines {
		one, err := s.Engines[i].template()
		if err != nil {
			return nil, &catalog.ErrLine{Line: s.Engines[i].Line, Err: err}
		}
		all = append(all, one)
	}
	if at, err := all.Check(); err != nil {
		return nil, &catalog.ErrLine{Line: s.Engines[at].Line, Err: err}
	}
	return all, nil
}

// check checks what can be wrong with serving.
func (s *Serving) check() error {
	all, err := s.templates()
	if err != nil {
		return err
	}
	p := &s.Pool
	switch {
	case s.Backend != "process" && s.Backend != "kubernetes":
		return bad("serving.backend", "%q is neither process nor kubernetes", s.Backend)
	case s.ColdStart <= 0 || s.ColdStart > 10*time.Minute:
		return bad("serving.cold_start", "must be above 0, and at most 10m")
	case p.Slots < 1 || p.Slots > 1000:
		return bad("serving.pool.slots", "must be 1 to 1000")
	case money.Rate(max(p.Input, p.Output)) > money.MaxRate:
		return bad("serving.pool", "input_per_million and output_per_million are at most %s", money.MaxRate)
	case p.ContextWindow < 1 || p.ContextWindow > 1<<30:
		return bad("serving.pool.context_window", "must be 1 to %d", 1<<30)
	case p.Engine == "":
		return nil
	}
	engine := all.Find(p.Engine)
	switch {
	case engine == nil:
		return bad("serving.pool.engine", "%q is none of serving.engines", p.Engine)
	case p.GPUType != "" && !slices.Contains(engine.GPUTypes, p.GPUType):
		return bad("serving.pool.gpu_type", "%q is none of the engine's gpu_types", p.GPUType)
	}
	return nil
}

// equal reports whether two configurations are the same, but for the lines that they stood on.
func (s *Serving) equal(other *Serving) bool {
	a, b := *s, *other
	a.Engines, b.Engines = slices.Clone(a.Engines), slices.Clone(b.Engines)
	for _, list := range []Engines{a.Engines, b.Engines} {
		for i := range list {
			list[i].Line = 0
		}
	}
	return reflect.DeepEqual(a, b)
}

// openEngines opens what runs engines. Without a configured engine there is none: what earlier ones have left on this
// machine goes on, until a server with an engine ends it.
func (i *instance) openEngines(c *Config) error {
	if len(i.templates) == 0 {
		return nil
	}
	folder := filepath.Join(c.DataDir, "engines")
	var err error
	if i.engines, err = c.engines(i.templates, folder, i.leadsEngines, i.log); err != nil {
		return err
	}
	versions := modelversion.NewStore(i.storage.db, i.artifacts, i.storage.vault)
	i.folders, err = serving.OpenFolders(serving.FoldersConfig{
		Root: filepath.Join(folder, "models"), Shared: i.storage.db.Engine == db.Postgres,
		Files: func(ctx context.Context, ws tenant.ID, versionID string) ([]serving.File, error) {
			members, err := versions.Files(ctx, ws, versionID)
			files := make([]serving.File, len(members))
			for i, m := range members {
				files[i] = serving.File(m)
			}
			return files, err
		},
		Open: i.artifacts.Open, Used: i.usedFolders,
	})
	return err
}

// engines returns what runs engines.
func (c *Config) engines(
	all serving.Engines, folder string, gate func() error, log *slog.Logger,
) (serving.Backend, error) {
	if c.Serving.Backend == "kubernetes" {
		return c.Kubernetes.engines(all, c.DataDir, filepath.Join(folder, "models"), gate, log)
	}
	gpus := c.Serving.GPUs
	if len(gpus) == 0 {
		gpus = process.GPUs()
	}
	b, err := process.Open(process.Config{Folder: folder, Engines: all, GPUs: gpus, Log: log})
	if err != nil {
		return nil, err // not b: a nil of its type is not nil
	}
	return b, nil
}

// leadsEngines returns nil while this node starts, watches and ends engines: it serves, and no other does it.
func (i *instance) leadsEngines() error {
	if err := i.gate(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), leadTimeout)
	defer cancel()
	_, is, err := i.groups.Leads(ctx)
	return leads(is, err)
}

// groupsModule follows the node that leads the engines, and ends what this one has left of them.
func (i *instance) groupsModule() module.Module {
	m := module.Module{Name: "engines", Background: []module.Loop{
		{Name: "engines of other servers", Run: func(ctx context.Context) { i.groups.Run(ctx, i.gate) }},
	}}
	if b, ok := i.engines.(*process.Backend); ok {
		m.Background = append(m.Background, module.Loop{
			Name: "engines that were left", Run: func(ctx context.Context) { i.endLeft(ctx, b) },
		})
	}
	return m
}

// leftFor is how long the engines of this machine may still answer when another server leads.
const leftFor = time.Minute

// endLeft ends the processes that this node has started as the leader, when another leads: that has started others.
func (i *instance) endLeft(ctx context.Context, b serving.Backend) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	since := time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		switch err := i.leadsEngines(); { //nolint:contextcheck // it asks with a time of its own
		case !errors.Is(err, errOtherLeads):
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) >= leftFor:
			if err := endAll(ctx, b); err != nil && ctx.Err() == nil {
				i.log.Warn("cannot end the engines of this machine; it is tried again", "err", err)
			}
		}
	}
}

// endAll ends everything that a backend runs.
func endAll(ctx context.Context, b serving.Backend) error {
	listed, err := b.List(ctx)
	for _, d := range listed {
		err = errors.Join(err, b.Remove(ctx, d.Spec.Name))
		for _, r := range d.Replicas {
			if r.Phase == serving.Ended {
				err = errors.Join(err, b.Forget(ctx, d.Spec.Name, r.ID))
			}
		}
	}
	return err
}

// usedFolders returns the folders of versions that deployments name.
func (i *instance) usedFolders(ctx context.Context) ([]string, error) {
	all, err := i.engines.List(ctx)
	var used []string
	for _, d := range all {
		used = append(used, d.Spec.Folder)
	}
	return used, err
}
