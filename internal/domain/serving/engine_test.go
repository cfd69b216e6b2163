package serving_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sovereign/internal/domain/serving"
)

func TestBuiltInTemplatesAreWhole(t *testing.T) {
	for _, name := range []string{"small", "llama", "vllm"} {
		e := serving.Template(name)
		if len(e.BaseModels) == 0 {
			e.BaseModels = []string{"some/*"}
		}
		if len(e.GPUTypes) == 0 {
			e.GPUTypes = []string{"h200"}
		}
		if err := e.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestABadTemplateIsRefusedWithItsKey(t *testing.T) {
	for want, change := range map[string]func(*serving.Engine){
		"name: must be":                 func(e *serving.Engine) { e.Name = "Small" },
		"base_models: must name":        func(e *serving.Engine) { e.BaseModels = nil },
		"base_models: \"[\" is not":     func(e *serving.Engine) { e.BaseModels = []string{"["} },
		"command: must be a program":    func(e *serving.Engine) { e.Command = nil },
		"command: must pass {port}":     func(e *serving.Engine) { e.Command = []string{"run"} },
		"command: {ports} is none of":   func(e *serving.Engine) { e.Command = []string{"run", "{port}", "{ports}"} },
		"env: {x} is none of":           func(e *serving.Engine) { e.Env = map[string]string{"A": "{x}"} },
		"env: \"A B\" is not":           func(e *serving.Engine) { e.Env = map[string]string{"A B": ""} },
		"adapters: must be none or":     func(e *serving.Engine) { e.Adapters = "some" },
		"gpu_types: must name":          func(e *serving.Engine) { e.GPUTypes = nil },
		"health and api: must be paths": func(e *serving.Engine) { e.Health = "health" },
		"start_timeout: must be above":  func(e *serving.Engine) { e.StartTimeout = 0 },
	} {
		e := serving.Template("small")
		change(&e)
		if err := e.Check(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("want %s, got %v", want, err)
		}
	}
	twice := serving.Engines{serving.Template("small"), serving.Template("small")}
	if at, err := twice.Check(); at != 1 || err == nil {
		t.Errorf("two of a name: %d %v", at, err)
	}
}

func TestAnEngineServesWhatItsPatternsName(t *testing.T) {
	small, large := serving.Template("small"), serving.Template("vllm")
	small.BaseModels, large.BaseModels, large.GPUTypes = []string{"tiny/*"}, []string{"qwen/qwen3-8b", "tiny/llama"}, []string{"h200"}
	all := serving.Engines{small, large}
	for _, c := range []struct{ model, gpu, want string }{
		{"tiny/bigram", "cpu", "small"},
		{"tiny/llama", "cpu", "small"},
		{"tiny/llama", "h200", "vllm"},
		{"tiny/llama", "", "small"},
		{"qwen/qwen3-8b", "h200", "vllm"},
		{"qwen/qwen3-8b", "cpu", ""},
		{"tiny/a/b", "cpu", ""},
		{"other/x", "", ""},
	} {
		got := ""
		if e := all.For(c.model, c.gpu); e != nil {
			got = e.Name
		}
		if got != c.want {
			t.Errorf("%s on %s: want %q, got %q", c.model, c.gpu, c.want, got)
		}
	}
}

func TestTheCommandFollowsWhatAVersionIs(t *testing.T) {
	whole, adapter := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(adapter, "adapter_config.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := serving.Template("vllm")
	e.Models = map[string]string{"qwen/qwen3-8b": "/models/q"}
	at := serving.Place{Host: "127.0.0.1", Port: 4711}
	spec := serving.Spec{BaseModel: "qwen/qwen3-8b", Model: "dedicated/k", GPUCount: 2}
	command := func(folder string, adapters int) string {
		s, place := spec, at
		s.Folder, place.Folder, s.Adapters = folder, folder, adapters
		l, err := e.Launch(s, place)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(l.Args, " ")
	}
	const rest = " --host 127.0.0.1 --port 4711 --tensor-parallel-size 2"
	const loras = " --enable-lora --max-loras "
	for _, c := range []struct {
		folder   string
		adapters int
		want     string
	}{
		{"", 0, "vllm serve /models/q --served-model-name dedicated/k" + rest},
		{whole, 0, "vllm serve " + whole + " --served-model-name dedicated/k" + rest},
		{"", 4, "vllm serve /models/q --served-model-name dedicated/k" + rest + loras + "4 --max-lora-rank 64"},
		{
			adapter, 0, "vllm serve /models/q --served-model-name qwen/qwen3-8b" + rest + loras +
				"1 --max-lora-rank 64 --lora-modules dedicated/k=" + adapter,
		},
	} {
		if got := command(c.folder, c.adapters); got != c.want {
			t.Errorf("want %s\n got %s", c.want, got)
		}
	}
	plain := serving.Template("small")
	if _, err := plain.Launch(serving.Spec{Folder: adapter, Version: "mv_1"}, at); err == nil {
		t.Error("an engine without version_args takes an adapter")
	}
}

// What a caller names is one argument, whatever it has in it, and is not read as a placeholder.
func TestValuesAreNotReadAsPlaceholders(t *testing.T) {
	e := serving.Template("small")
	l, err := e.Launch(serving.Spec{Model: "{port} --x", BaseModel: "b"}, serving.Place{Host: "h", Port: 1})
	if err != nil || !slices.Contains(l.Args, "{port} --x") {
		t.Errorf("%q %v", l.Args, err)
	}
}
