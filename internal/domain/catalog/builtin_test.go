package catalog_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
	"sovereign/internal/domain/catalog"
	"sovereign/internal/live"
)

// builtin is the file as it is, read by nothing of ours.
func builtin(t *testing.T) (file struct {
	Source    []string
	Made      string
	Providers []struct{ Name string }
	Models    []struct {
		ID, Provider, Kind string
		Upstream           string `json:"upstream_model"`
		Window             int64  `json:"context_window"`
		Output             int64  `json:"max_output_tokens"`
		Price              map[string]any
	}
},
) {
	t.Helper()
	text, err := os.Open("builtin.json")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = text.Close() }()
	decoder := json.NewDecoder(text)
	decoder.UseNumber()
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	return file
}

// rates are the prices of a JSON object, under their keys.
func rates(t *testing.T, price any) map[string]string {
	t.Helper()
	text, err := json.Marshal(price)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	if err := decoder.Decode(&all); err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{}
	for key, v := range all {
		if n, ok := v.(json.Number); ok {
			shown[key] = n.String()
		}
	}
	return shown
}

func TestEveryBuiltInPriceIsReadExactly(t *testing.T) {
	file, c := builtin(t), good(t, "")
	var ids []string
	for _, m := range file.Models {
		ids = append(ids, m.ID)
		got := find(t, c, m.ID)
		if got.Provider.Name != m.Provider || got.Upstream != m.Upstream || m.ID != m.Provider+"/"+m.Upstream || string(got.Kind) != m.Kind || got.ContextWindow != m.Window || got.MaxOutput != m.Output {
			t.Errorf("%+v is %+v", m, got)
		}
		written, read := []any{m.Price}, []any{got.Price.Rates}
		if tiers, ok := m.Price["tiers"].([]any); ok {
			written = append(written, tiers...)
		}
		for _, tier := range got.Price.Tiers {
			read = append(read, tier)
		}
		if len(written) != len(read) {
			t.Fatalf("%s has %d tiers, want %d", m.ID, len(read)-1, len(written)-1)
		}
		for i := range written {
			want, shown := rates(t, written[i]), rates(t, read[i])
			for key, text := range want {
				if shown[key] != text {
					t.Errorf("%s: %s is %s, want %s", m.ID, key, shown[key], text)
				}
				delete(shown, key)
			}
			for key, text := range shown { // what is left out
				of := "output_per_mtok_usd"
				if strings.Contains(key, "input") {
					of = "input_per_mtok_usd"
				}
				if base := want[of]; text != base && text != "0" || base != "" && key != "search_per_million_usd" && text != base {
					t.Errorf("%s: %s is %s, and %s is %q", m.ID, key, text, of, base)
				}
			}
		}
	}
	if !slices.IsSorted(ids) || len(slices.Compact(ids)) != len(file.Models) || len(ids) < 400 {
		t.Errorf("%d ids are in no order, or not unique", len(ids))
	}
	if len(c.Models()) != len(file.Models)+len(simulated(c)) {
		t.Errorf("%d models, of %d", len(c.Models()), len(file.Models))
	}
}

func simulated(c *live.Catalog) (all []*live.Model) {
	for _, m := range c.Models() {
		if m.Provider.Protocol == live.Sim {
			all = append(all, m)
		}
	}
	return all
}

// What is built in stands in the words of a configuration, so that as one it is refused nothing and changes nothing.
func TestWhatIsBuiltInIsAConfiguration(t *testing.T) {
	text, err := os.ReadFile("builtin.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Providers, Models yaml.Node }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var providers catalog.Providers
	var models catalog.Models
	if err := providers.Decode(&file.Providers); err != nil {
		t.Fatal(err)
	}
	if err := models.Decode(&file.Models); err != nil {
		t.Fatal(err)
	}
	c, err := catalog.Build(providers, models)
	if err != nil {
		t.Fatal(err)
	}
	plain := good(t, "")
	for name, p := range plain.Providers() {
		if p.Configured != (name == "sim") {
			t.Errorf("%s is configured: %v", name, p.Configured)
		}
		if diff := cmp.Diff(p, c.Providers()[name], cmp.Comparer(secret.Text.Equal)); diff != "" {
			t.Error(diff)
		}
	}
	for _, m := range plain.Models() {
		one := *m
		one.Provider = c.Providers()[m.Provider.Name]
		if diff := cmp.Diff(&one, find(t, c, m.ID), cmp.Comparer(secret.Text.Equal)); diff != "" {
			t.Error(diff)
		}
	}
}

// One model of every provider, at the price that is published. Both sources of the catalog have it, but where one is
// named.
func TestBuiltInPricesAreThePublishedOnes(t *testing.T) {
	const cent, mill = money.Rate(money.Dollar / 100), money.Rate(money.Dollar / 1000)
	c, pinned := good(t, ""), map[string]bool{}
	for id, want := range map[string]live.Rates{
		"anthropic/claude-opus-5":                     {Input: 500 * cent, CachedInput: 50 * cent, WrittenInput: 625 * cent, Output: 2500 * cent},
		"baseten/zai-org/GLM-5.3":                     {Input: 140 * cent, CachedInput: 14 * cent, Output: 440 * cent},
		"cerebras/gpt-oss-120b":                       {Input: 35 * cent, CachedInput: 35 * cent, Output: 75 * cent},
		"cohere/embed-v4.0":                           {Input: 12 * cent, CachedInput: 12 * cent},                    // genai-prices
		"deepseek/deepseek-flash":                     {Input: 30 * cent, CachedInput: 6 * mill, Output: 120 * cent}, // pi-ai
		"fireworks/accounts/fireworks/models/kimi-k3": {Input: 300 * cent, CachedInput: 30 * cent, Output: 1500 * cent},
		"google/gemini-2.5-flash":                     {Input: 30 * cent, CachedInput: 3 * cent, AudioInput: 100 * cent, Output: 250 * cent},
		"groq/llama-3.3-70b-versatile":                {Input: 59 * cent, CachedInput: 59 * cent, Output: 79 * cent},
		"minimax/MiniMax-M2.7":                        {Input: 30 * cent, CachedInput: 6 * cent, WrittenInput: 375 * mill, Output: 120 * cent},
		"mistral/mistral-small-2603":                  {Input: 15 * cent, CachedInput: 15 * mill, Output: 60 * cent},
		"moonshotai/kimi-k3":                          {Input: 300 * cent, CachedInput: 30 * cent, Output: 1500 * cent},
		"openai/gpt-4o":                               {Input: 250 * cent, CachedInput: 125 * cent, Output: 1000 * cent},
		"openrouter/z-ai/glm-4.5":                     {Input: 60 * cent, CachedInput: 11 * cent, Output: 220 * cent},
		"together/openai/gpt-oss-120b":                {Input: 15 * cent, CachedInput: 15 * cent, Output: 60 * cent}, // pi-ai
		"xai/grok-4.5":                                {Input: 200 * cent, CachedInput: 30 * cent, Output: 600 * cent},
		"zai/glm-5.3":                                 {Input: 140 * cent, CachedInput: 26 * cent, Output: 440 * cent},
	} {
		if want.WrittenInput == 0 {
			want.WrittenInput = want.Input
		}
		if want.AudioInput == 0 {
			want.AudioInput = want.Input
		}
		want.Reasoning, want.AudioOutput = want.Output, want.Output
		m := find(t, c, id)
		pinned[m.Provider.Name] = true
		if m.Price.Rates != want {
			t.Errorf("%s: %+v, want %+v", id, m.Price.Rates, want)
		}
	}
	for name := range c.Providers() {
		if !pinned[name] && name != "sim" {
			t.Errorf("no price of %s is held", name)
		}
	}
}

func TestATierIsForInputOverItsThreshold(t *testing.T) {
	c := good(t, provider+`
models:
  - id: up/m
    provider: up
    context_window: 1000
    max_output_tokens: 5
    price:
      input_per_mtok_usd: 1
      cached_input_per_mtok_usd: 0.1
      output_per_mtok_usd: 2
      tiers:
        - {over_input_tokens: 100, input_per_mtok_usd: 3, output_per_mtok_usd: 4, written_input_per_mtok_usd: 3.5}
        - {over_input_tokens: 500, input_per_mtok_usd: 5, output_per_mtok_usd: 6, reasoning_per_mtok_usd: 7}
`)
	const dollar = money.Rate(money.Dollar)
	first, second, third := live.Flat(1*dollar, 2*dollar), live.Flat(3*dollar, 4*dollar), live.Flat(5*dollar, 6*dollar)
	first.CachedInput, second.WrittenInput, third.Reasoning = dollar/10, 35*dollar/10, 7*dollar // a tier has no key of another's
	for input, want := range map[int64]live.Rates{0: first, 100: first, 101: second, 500: second, 501: third, 1 << 40: third} {
		if got := find(t, c, "up/m").Price.At(input); got != want {
			t.Errorf("%d: %+v, want %+v", input, got, want)
		}
	}
	pro := find(t, c, "google/gemini-2.5-pro").Price
	if below, above := pro.At(200_000), pro.At(200_001); below.Input != 125*dollar/100 || above.Input != 25*dollar/10 || above.Output != 15*dollar {
		t.Errorf("%+v %+v", below, above)
	}
}

func TestARowOfABuiltInModelNeedOnlySayWhatIsDifferent(t *testing.T) {
	plain := good(t, "")
	c := good(t, provider+`
models:
  - {id: openai/gpt-4o, max_output_tokens: 1000}
  - {id: google/gemini-2.5-pro, price: {input_per_mtok_usd: 1, output_per_mtok_usd: 2}}
  - {price: {input_per_mtok_usd: 0.01}, id: openai/text-embedding-3-small}
  - {id: anthropic/claude-opus-5, provider: up, stream_usage: false}
`)
	want := func(id string, change func(*live.Model)) {
		t.Helper()
		m := *find(t, plain, id)
		m.Provider = c.Providers()[m.Provider.Name]
		change(&m)
		if diff := cmp.Diff(&m, find(t, c, id), cmp.Comparer(secret.Text.Equal)); diff != "" {
			t.Error(diff)
		}
	}
	const dollar = money.Rate(money.Dollar)
	want("openai/gpt-4o", func(m *live.Model) { m.MaxOutput = 1000 })
	want("google/gemini-2.5-pro", func(m *live.Model) { m.Price = live.Price{Rates: live.Flat(dollar, 2*dollar)} })
	want("openai/text-embedding-3-small", func(m *live.Model) { m.Price = live.Price{Rates: live.Flat(dollar/100, 0)} })
	want("anthropic/claude-opus-5", func(m *live.Model) { m.Provider, m.NoStreamUsage = c.Providers()["up"], true })
	want("openai/gpt-4.1", func(*live.Model) {})
	if len(plain.Models()) != len(c.Models()) {
		t.Errorf("%d models, were %d", len(c.Models()), len(plain.Models()))
	}
}

// count is how many models a provider has.
func count(c *live.Catalog, provider string) (n int) {
	for _, m := range c.Models() {
		if m.Provider.Name == provider {
			n++
		}
	}
	return n
}

func TestAProviderOfABuiltInNameNeedsOnlyAKey(t *testing.T) {
	plain := good(t, "")
	c := good(t, `
providers:
  - {name: anthropic, api_key: sk-a}
  - {name: openai, api_key: sk-o, responses: bridged, max_tokens_field: max_tokens}
  - {name: google, base_url: 'https://proxy.example/v1beta/'}
  - {name: groq, kind: sim}
  - {name: mine, kind: cohere}
  - {name: other, kind: openai, base_url: 'https://other.example/v1', responses: native, max_tokens_field: max_completion_tokens}
`)
	for _, want := range []live.Provider{
		{Name: "anthropic", Protocol: live.Anthropic, BaseURL: "https://api.anthropic.com/v1", APIKey: secret.New("sk-a"), Configured: true},
		{Name: "openai", Protocol: live.OpenAI, BaseURL: "https://api.openai.com/v1", APIKey: secret.New("sk-o"), Configured: true},
		{Name: "google", Protocol: live.Gemini, BaseURL: "https://proxy.example/v1beta", Configured: true},
		{Name: "groq", Protocol: live.Sim, Configured: true},
		{Name: "mine", Protocol: live.Cohere, BaseURL: "https://api.cohere.com", Configured: true},
		{Name: "other", Protocol: live.OpenAI, BaseURL: "https://other.example/v1", Responses: true, Modern: true, Configured: true},
		{Name: "xai", Protocol: live.OpenAI, BaseURL: "https://api.x.ai/v1", Responses: true},
		{Name: "sim", Protocol: live.Sim, Configured: true},
	} {
		if diff := cmp.Diff(&want, c.Providers()[want.Name], cmp.Comparer(secret.Text.Equal)); diff != "" {
			t.Error(diff)
		}
	}
	if p := plain.Providers()["openai"]; p.Configured || !p.Responses || !p.Modern {
		t.Errorf("%+v", p)
	}
	for _, m := range c.Models() {
		if m.Provider != c.Providers()[m.Provider.Name] {
			t.Errorf("%s is not at the provider of the catalog", m.ID)
		}
	}
	for _, name := range []string{"anthropic", "openai", "google", "mistral"} {
		if count(c, name) == 0 || count(c, name) != count(plain, name) {
			t.Errorf("%s has %d models, had %d", name, count(c, name), count(plain, name))
		}
	}
	if count(plain, "groq") == 0 || count(c, "groq") != 0 { // a provider of another kind has none of them
		t.Errorf("groq has %d models, had %d", count(c, "groq"), count(plain, "groq"))
	}
}

func TestARerankerIsPaidForByTheTokenOrBySearch(t *testing.T) {
	c := good(t, `
models:
  - {id: cohere/rerank-a, provider: cohere, kind: rerank, context_window: 4096, price: {search_per_million_usd: 2000}}
  - {id: cohere/rerank-b, provider: cohere, kind: rerank, context_window: 4096, price: {input_per_mtok_usd: 0.05}}
`)
	if got := find(t, c, "cohere/rerank-a").Price.Rates; got != (live.Rates{Search: 2000 * money.Rate(money.Dollar)}) {
		t.Errorf("%+v", got)
	}
	if got := find(t, c, "cohere/rerank-b"); got.Price.Rates != live.Flat(money.Rate(money.Dollar/20), 0) || got.Provider.Configured {
		t.Errorf("%+v", got)
	}
}

func TestPricesAreOldAfterNinetyDays(t *testing.T) {
	made, err := time.Parse(time.DateOnly, builtin(t).Made)
	if err != nil {
		t.Fatal(err)
	}
	const day = 24 * time.Hour
	for age, days := range map[time.Duration]int{0: 0, day - 1: 0, 90 * day: 90, 91*day - 1: 90} {
		if got := catalog.Age(made.Add(age)); got != days || catalog.Old(made.Add(age)) != "" {
			t.Errorf("after %v: %d days, %q", age, got, catalog.Old(made.Add(age)))
		}
	}
	if says := catalog.Old(made.Add(91 * day)); !strings.HasPrefix(says, "the built-in prices are of "+made.Format(time.DateOnly)+", 91 days old: ") {
		t.Error(says)
	}
}
