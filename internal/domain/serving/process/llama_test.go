package process_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sovereign/internal/domain/serving"
	"sovereign/internal/domain/serving/process"
)

// An answer of a model, as transformers gave it.
type answer struct {
	Model, Prompt, Answer string
	PromptTokens          int `json:"prompt_tokens"`
}

// llamaFolder is what scripts/engines has made: llama-server, the server's program, and models with their answers.
const llamaFolder = "SOVEREIGN_TEST_LLAMA"

// A model that was trained answers by a real llama-server as it does by what trained it: whole, streamed, and with
// usage.
func TestLlamaServerAnswersAsTheTrainerDoes(t *testing.T) {
	folder := os.Getenv(llamaFolder)
	if folder == "" {
		t.Skip("scripts/engines runs it")
	}
	text, err := os.ReadFile(filepath.Join(folder, "models", "answers.json"))
	if err != nil {
		t.Fatal(err)
	}
	var answers []answer
	if err := json.Unmarshal(text, &answers); err != nil {
		t.Fatal(err)
	}
	m := newMachine(t)
	c := m.config(t)
	llama := serving.Template("llama")
	llama.BaseModels, llama.Models = []string{"tiny/llama"}, map[string]string{"tiny/llama": filepath.Join(folder, "models", "base")}
	llama.Command[0] = filepath.Join(folder, "sovereign")
	llama.Env = map[string]string{"SOVEREIGN_LLAMA_SERVER": filepath.Join(folder, "llama-server"), "LLAMA_ARG_THREADS": "1"}
	c.Engines = append(c.Engines, llama)
	b, err := process.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, name := range []string{"base", "whole", "adapter"} {
		s := serving.Spec{
			Name: name, Engine: "llama", BaseModel: "tiny/llama", Model: "dedicated/" + name, GPUType: serving.CPU, GPUCount: 1, Replicas: 1,
		}
		if name != "base" {
			s.Version, s.Folder = "mv_"+name, filepath.Join(folder, "models", name)
		}
		if err := b.Apply(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	all := until(t, b, "all are ready", func(all []serving.Deployment) bool { return len(phases(all, serving.Ready)) == 3 })
	urls := map[string]string{}
	for _, d := range all {
		urls[d.Spec.Name] = phases([]serving.Deployment{d}, serving.Ready)[0].BaseURL
	}
	for _, a := range answers {
		for _, streamed := range []bool{false, true} {
			got := ask(t, urls[a.Model], "dedicated/"+a.Model, a.Prompt, streamed)
			if got != a {
				t.Errorf("streamed %v:\nwant %+v\n got %+v", streamed, a, got)
			}
		}
	}
	m.empty(t, b)
}

// ask asks an engine for its likeliest answer.
func ask(t *testing.T, url, model, prompt string, streamed bool) answer {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"model": model, "messages": []any{map[string]string{"role": "user", "content": prompt}}, "max_tokens": 24, "temperature": 0,
		"stream": streamed, "stream_options": map[string]bool{"include_usage": streamed},
	})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // it closes them without a word
	response, err := client.Post(url+"/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	got := answer{Model: strings.TrimPrefix(model, "dedicated/"), Prompt: prompt}
	add := func(text []byte) {
		var one struct {
			Model   string
			Choices []struct {
				Message, Delta struct{ Content string }
			}
			Usage struct {
				PromptTokens int `json:"prompt_tokens"`
			}
		}
		if err := json.Unmarshal(text, &one); err != nil || one.Model != model {
			t.Fatalf("%d %s: %v", response.StatusCode, text, err)
		}
		for _, choice := range one.Choices {
			got.Answer += choice.Message.Content + choice.Delta.Content
		}
		got.PromptTokens += one.Usage.PromptTokens
	}
	if !streamed {
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		add(text)
		return got
	}
	last := ""
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			if last = data; data != "[DONE]" {
				add([]byte(data))
			}
		}
	}
	if last != "[DONE]" {
		t.Errorf("the stream ends with %q", last)
	}
	return got
}
