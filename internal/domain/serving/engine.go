package serving

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An Engine is the template of a program that serves a model by OpenAI's API. Texts in braces stand for what a replica
// has of its own (placeholders).
type Engine struct {
	Name string
	// what it can serve, besides versions trained from them: ids, or patterns such as tiny/*
	BaseModels   []string
	Models       map[string]string // where base models are; one without an entry is called by its id
	Command      []string
	AdapterArgs  []string // added where it is to hold adapters beside its base model
	VersionArgs  []string // added where the version is an adapter, after AdapterArgs
	Env          map[string]string
	Health       string // path that answers 200 when it can serve
	API          string // path of its API
	Adapters     string // none, or load: further versions come into a running engine by vLLM's /v1/load_lora_adapter
	Image        string // for Kubernetes
	GPUTypes     []string
	StartTimeout time.Duration // how long it may take until it is healthy
	Memory       int64         // bytes that one replica may use; 0 for no limit
}

// How further versions come into a running engine.
const (
	AdaptersNone = "none"
	AdaptersLoad = "load"
)

// CPU is the GPU type of a machine without GPUs.
const CPU = "cpu"

// placeholders are the texts that a template may have in braces, with what they stand for.
var placeholders = map[string]string{
	"model_path":   "the folder of the model's weights: of the version, or of the base model where the version is an adapter",
	"name":         "what requests call these weights: the model, or the base model where the version is an adapter",
	"adapter_path": "the folder of the version, where it is an adapter",
	"adapter_name": "what requests call the adapter",
	"adapters":     "how many adapters it is to hold",
	"base_model":   "the id of the base model",
	"host":         "the address to listen on",
	"port":         "the port to listen on",
	"gpus":         "the number of GPUs",
	"work":         "a folder for what the engine keeps, which all its replicas share",
	"sovereign":    "the server's own program",
}

// builtin are the templates that need a name and base_models alone.
var builtin = map[string]Engine{
	"small": {
		BaseModels: []string{"tiny/bigram"},
		Command: []string{
			"{sovereign}", "train", "serve", "--dir", "{work}", "--model", "{model_path}", "--name", "{name}",
			"--host", "{host}", "--port", "{port}",
		},
		Health: "/health", Adapters: AdaptersLoad, GPUTypes: []string{CPU},
	},
	"llama": {
		Command: []string{
			"{sovereign}", "train", "serve", "--dir", "{work}", "--engine", "llama", "--model", "{model_path}",
			"--name", "{name}", "--host", "{host}", "--port", "{port}",
		},
		VersionArgs: []string{"--adapter", "{adapter_path}", "--adapter-name", "{adapter_name}"},
		Health:      "/health", Adapters: AdaptersNone, GPUTypes: []string{CPU},
	},
	"vllm": {
		Command: []string{
			"vllm", "serve", "{model_path}", "--served-model-name", "{name}", "--host", "{host}", "--port", "{port}",
			"--tensor-parallel-size", "{gpus}",
		},
		AdapterArgs: []string{"--enable-lora", "--max-loras", "{adapters}", "--max-lora-rank", "64"},
		VersionArgs: []string{"--lora-modules", "{adapter_name}={adapter_path}"},
		// Adapters are loaded and unloaded by the server alone: the engine listens on an address that only it reaches.
		Env:    map[string]string{"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_NO_USAGE_STATS": "1"},
		Health: "/health", Adapters: AdaptersLoad, Image: "vllm/vllm-openai:v0.22.0",
	},
}

// Template returns the built-in template of a name, or an empty one, with what is the same for all.
func Template(name string) Engine {
	e := builtin[name]
	e.Name = name
	e.BaseModels, e.Command, e.GPUTypes = slices.Clone(e.BaseModels), slices.Clone(e.Command), slices.Clone(e.GPUTypes)
	if e.Health == "" {
		e.Health, e.Adapters = "/health", AdaptersNone
	}
	e.API, e.StartTimeout = "/v1", 10*time.Minute
	return e
}

var (
	engineName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)
	inBraces   = regexp.MustCompile(`\{([a-z_]*)\}`)
	envName    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// Check reports the first rule that e breaks, beginning with the key.
func (e *Engine) Check() error {
	switch {
	case !engineName.MatchString(e.Name):
		return errors.New("name: must be 1 to 40 lower-case letters, digits and dashes")
	case len(e.BaseModels) == 0:
		return errors.New("base_models: must name what the engine can serve, such as tiny/*")
	case len(e.Command) == 0 || e.Command[0] == "":
		return errors.New("command: must be a program with its arguments")
	case e.Adapters != AdaptersNone && e.Adapters != AdaptersLoad:
		return errors.New("adapters: must be none or load")
	case len(e.GPUTypes) == 0:
		return errors.New("gpu_types: must name at least one type, such as cpu")
	case !strings.HasPrefix(e.Health, "/") || !strings.HasPrefix(e.API, "/"):
		return errors.New("health and api: must be paths, such as /health and /v1")
	case e.StartTimeout <= 0:
		return errors.New("start_timeout: must be above 0")
	case e.Memory < 0:
		return errors.New("memory: must be 0 or more")
	}
	for _, pattern := range e.BaseModels {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			return fmt.Errorf("base_models: %q is not an id or a pattern such as tiny/*", pattern)
		}
	}
	return e.checkTexts()
}

// checkTexts checks the texts that may have placeholders.
func (e *Engine) checkTexts() error {
	whole := strings.Join(e.Command, " ")
	if !strings.Contains(whole, "{port}") {
		return errors.New("command: must pass {port}, the port to listen on")
	}
	texts := map[string][]string{"command": e.Command, "adapter_args": e.AdapterArgs, "version_args": e.VersionArgs}
	for name, value := range e.Env {
		if !envName.MatchString(name) {
			return fmt.Errorf("env: %q is not a name of a variable", name)
		}
		texts["env"] = append(texts["env"], value)
	}
	for _, key := range []string{"command", "adapter_args", "version_args", "env"} {
		for _, text := range texts[key] {
			for _, found := range inBraces.FindAllStringSubmatch(text, -1) {
				if _, known := placeholders[found[1]]; !known {
					return fmt.Errorf("%s: {%s} is none of %s", key, found[1], listed())
				}
			}
		}
	}
	return nil
}

// listed lists the placeholders.
func listed() string {
	var all []string
	for name := range placeholders {
		all = append(all, "{"+name+"}")
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// Serves reports whether the engine can serve a base model, and so what was trained from it.
func (e *Engine) Serves(baseModel string) bool {
	return slices.ContainsFunc(e.BaseModels, func(pattern string) bool {
		ok, _ := path.Match(pattern, baseModel) // checked
		return ok
	})
}

// A Place is where a replica runs.
type Place struct {
	Host      string
	Port      int
	Work      string // folder for what the engine keeps
	Sovereign string // the server's program there
	Base      string // where the base model is there; empty for what the template says
	Folder    string // where the version's files are there; empty for none
}

// A Launch is a command with its variables.
type Launch struct {
	Args []string
	Env  map[string]string
}

// IsAdapter reports whether a folder of a version has an adapter, and not whole weights.
func IsAdapter(folder string) bool {
	if folder == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(folder, "adapter_config.json"))
	return err == nil
}

// Launch returns the command of a replica of s at a place. Whether the version is an adapter, its files say.
func (e *Engine) Launch(s Spec, at Place) (Launch, error) {
	base := at.Base
	if base == "" {
		base = e.base(s.BaseModel)
	}
	adapter := IsAdapter(s.Folder)
	values := map[string]string{
		"base_model": s.BaseModel, "model_path": base, "name": s.Model, "adapters": strconv.Itoa(max(s.Adapters, 1)),
		"host": at.Host, "port": strconv.Itoa(at.Port), "gpus": strconv.Itoa(max(s.GPUCount, 1)), "work": at.Work,
		"sovereign": at.Sovereign, "adapter_path": "", "adapter_name": "",
	}
	switch {
	case adapter && len(e.VersionArgs) == 0:
		return Launch{}, fmt.Errorf("the engine %s cannot serve %s: it is an adapter, and the engine's version_args are empty",
			e.Name, s.Version)
	case adapter:
		values["adapter_path"], values["adapter_name"], values["name"] = at.Folder, s.Model, s.BaseModel
	case s.Folder != "":
		values["model_path"] = at.Folder
	}
	args := slices.Clone(e.Command)
	if adapter || s.Adapters > 0 {
		args = append(args, e.AdapterArgs...)
	}
	if adapter {
		args = append(args, e.VersionArgs...)
	}
	fill := func(text string) string {
		return inBraces.ReplaceAllStringFunc(text, func(found string) string { return values[found[1:len(found)-1]] })
	}
	l := Launch{Env: map[string]string{}}
	for _, arg := range args {
		l.Args = append(l.Args, fill(arg))
	}
	for name, value := range e.Env {
		l.Env[name] = fill(value)
	}
	return l, nil
}

// base returns where a base model is.
func (e *Engine) base(id string) string {
	if at := e.Models[id]; at != "" {
		return at
	}
	return id
}

// Engines are the templates of a server.
type Engines []Engine

// Check reports the first rule that a template breaks, and its index.
func (all Engines) Check() (int, error) {
	seen := map[string]bool{}
	for i := range all {
		if err := all[i].Check(); err != nil {
			return i, fmt.Errorf("engine %q: %w", all[i].Name, err)
		}
		if seen[all[i].Name] {
			return i, fmt.Errorf("engine %q: name: is given twice", all[i].Name)
		}
		seen[all[i].Name] = true
	}
	return 0, nil
}

// Find returns the template of a name; nil for none.
func (all Engines) Find(name string) *Engine {
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}

// For returns the first template that serves a base model on GPUs of a type; nil for none. An empty type is any.
func (all Engines) For(baseModel, gpuType string) *Engine {
	for i := range all {
		if all[i].Serves(baseModel) && (gpuType == "" || slices.Contains(all[i].GPUTypes, gpuType)) {
			return &all[i]
		}
	}
	return nil
}
