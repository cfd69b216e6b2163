package catalog_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
	"sovereign/internal/domain/catalog"
	"sovereign/internal/live"
)

// born is when models of a configuration count as made: a date that never changes, for clients that show one.
var born = clock.Of(time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC))

// read is a configuration file's lists, on the way that they take: from the file into a flag, and from there into the
// catalog.
func read(text string) (*live.Catalog, error) {
	var file struct{ Providers, Models yaml.Node }
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		return nil, err
	}
	var providers catalog.Providers
	var models catalog.Models
	for _, list := range []struct {
		node *yaml.Node
		file interface{ Decode(node *yaml.Node) error }
		flag interface{ UnmarshalText(text []byte) error }
	}{{&file.Providers, &catalog.Providers{}, &providers}, {&file.Models, &catalog.Models{}, &models}} {
		if list.node.Kind == 0 {
			continue
		}
		if err := list.file.Decode(list.node); err != nil {
			return nil, err
		}
		flag, err := yaml.Marshal(catalog.Numbered(list.node))
		if err != nil {
			return nil, err
		}
		if err := list.flag.UnmarshalText(flag); err != nil {
			return nil, fmt.Errorf("through a flag: %w", err)
		}
	}
	return catalog.Build(providers, models)
}

func good(t *testing.T, text string) *live.Catalog {
	t.Helper()
	c, err := read(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func find(t *testing.T, c *live.Catalog, id string) *live.Model {
	t.Helper()
	m, err := c.Find(id)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const (
	provider = `
providers:
  - name: up
    kind: openai
    base_url: https://api.example.com/v1
`
	model = `
models:
  - id: up/small
    provider: up
    context_window: 128000
    max_output_tokens: 4096
    price: {input_per_mtok_usd: 0.15, output_per_mtok_usd: 0.6}
`
)

func TestEveryRuleNamesTheLineOfItsBreach(t *testing.T) {
	p := func(lines string) string { return "providers:\n  - name: first\n    kind: sim\n  - " + lines }
	m := func(lines string) string { return provider + "models:\n  - " + lines }
	entry := "id: up/m\n    provider: up\n    context_window: 10\n    max_output_tokens: 5\n    "
	price := "price: {input_per_mtok_usd: 1, output_per_mtok_usd: 1}\n    "
	tiers := "id: up/m\n    price:\n      input_per_mtok_usd: 1\n      output_per_mtok_usd: 1\n      tiers: "
	for _, c := range []struct {
		text string
		line int
		says string
	}{
		{"providers: up", 1, "must be a list"},
		{"providers:\n  - up", 2, "must be a mapping"},
		{p("name: up\n    kind: openai\n    base_url: https://a.example/v1\n    region: eu"), 7, "unknown key region"},
		{p("name: up\n    kind: openai\n    name: down"), 6, "name is given twice"},
		{p("name: [up]\n    kind: openai"), 4, "name: must be a text"},
		{p("name: ''\n    kind: openai"), 4, "name: must be a text"},
		{p("kind: sim"), 4, "name must be letters"},
		{p("kind: sim\n    name: a b"), 4, "name must be letters"},
		{p("kind: sim\n    name: -a"), 4, "name must be letters"},
		{p("kind: sim\n    name: " + strings.Repeat("a", 65)), 4, "name must be letters"},
		{p("kind: sim\n    name: first"), 4, "name is taken"},
		{p("kind: sim\n    name: sim"), 4, "name is kept for the simulated models"},
		{p("kind: sim\n    name: dedicated"), 4, "kept for models and endpoints of workspaces"},
		{p("kind: sim\n    name: endpoint"), 4, "kept for models and endpoints of workspaces"},
		{p("kind: sim\n    name: ft"), 4, "kept for models and endpoints of workspaces"},
		{p("name: up"), 4, "kind must be one of"},
		{p("name: up\n    kind: azure"), 4, "kind must be one of [openai anthropic gemini cohere sim]"},
		{p("name: up\n    kind: anthropic\n    base_url: nowhere"), 4, "base_url must be a URL"},
		{p("name: anthropic\n    base_url: nowhere"), 4, "base_url must be a URL"},
		{p("name: anthropic\n    kind: openai"), 4, "base_url must be a URL"},
		{p("name: openai\n  - name: openai"), 5, "name is taken"},
		{p("name: up\n    kind: openai\n    responses: maybe"), 6, "responses: must be native or bridged"},
		{p("name: up\n    kind: gemini\n    responses: native"), 4, "responses must be bridged"},
		{p("name: up\n    kind: openai\n    max_tokens_field: limit"), 6, "max_tokens_field: must be max_completion_tokens or max_tokens"},
		{p("name: up\n    kind: cohere\n    max_tokens_field: max_completion_tokens"), 4, "max_tokens_field is for providers of kind openai"},
		{p("name: up\n    kind: openai"), 4, "base_url must be a URL"},
		{p("name: up\n    kind: openai\n    base_url: api.example.com/v1"), 4, "base_url must be a URL"},
		{p("name: up\n    kind: openai\n    base_url: ftp://api.example.com/v1"), 4, "base_url must be a URL"},
		{p("name: up\n    kind: openai\n    base_url: https:///v1"), 4, "base_url must be a URL"},
		{p("name: up\n    kind: openai\n    base_url: https://a.example/v1?key=x"), 4, "base_url must be a URL"},
		{p("name: up\n    kind: openai\n    base_url: 'https://a.example/v1?'"), 4, "base_url must be a URL"},
		{p("name: up\n    kind: openai\n    base_url: 'https://a.example/v1#top'"), 4, "base_url must be a URL"},
		{p("name: up\n    kind: openai\n    base_url: https://user:pass@a.example/v1"), 4, "base_url must be a URL"},
		{p("name: up\n    kind: openai\n    base_url: 'https://a.example/%zz'"), 4, "base_url must be a URL"},
		{p("name: up\n    kind: openai\n    transport: warp"), 6, "transport: must be lean or standard"},
		{p("name: up\n    kind: openai\n    api_key: {a: b}"), 6, "api_key: must be a text"},
		{p("name: up\n    kind: sim\n    api_key: env:SOVEREIGN_TEST_NO_SUCH"), 4, "api_key: the environment has no SOVEREIGN_TEST_NO_SUCH"},
		{p("name: up\n    kind: sim\n    api_key: file:/no/such/file"), 4, "api_key: open /no/such/file"},
		{p("name: up\n    kind: sim\n    api_key: file:/dev/null"), 4, "api_key: /dev/null is empty"},
		{"models: {}", 1, "must be a list"},
		{m("4"), 7, "must be a mapping"},
		{m(entry + price + "\n  - " + entry + price), 13, "id is given twice"},
		{m(entry + price + "colour: red"), 12, "unknown key colour"},
		{m(entry + price + "id: up/n"), 12, "id is given twice"},
		{m("provider: up\n    " + price), 7, "id must be letters"},
		{m("id: up m\n    provider: up\n    " + price), 7, "id must be letters"},
		{m("id: " + strings.Repeat("m", 129) + "\n    provider: up\n    " + price), 7, "id must be letters"},
		{m("id: dedicated/m\n    provider: up\n    " + price), 7, "must not begin with dedicated/"},
		{m("id: ft/m\n    provider: up\n    " + price), 7, "must not begin with ft/"},
		{m("id: endpoint/m\n    provider: up\n    " + price), 7, "must not begin with endpoint/"},
		{m("id: m\n    provider: down\n    " + price), 7, `provider "down" is not configured`},
		{m("id: m\n    " + price), 7, "provider is missing"},
		{m(entry + price + "kind: image"), 7, "kind must be one of [chat embedding rerank]"},
		{m("id: m\n    provider: cohere\n    context_window: 10\n    max_output_tokens: 5\n    " + price), 7, "kind must be one of [embedding rerank]: a provider of kind cohere"},
		{m("id: m\n    provider: anthropic\n    kind: embedding\n    context_window: 10\n    " + price), 7, "kind must be one of [chat]: a provider of kind anthropic"},
		{m("id: m\n    provider: anthropic\n    kind: rerank\n    context_window: 10\n    " + price), 7, "kind must be one of [chat]"},
		{m("id: m\n    provider: google\n    kind: rerank\n    context_window: 10\n    " + price), 7, "kind must be one of [chat embedding]: a provider of kind gemini"},
		{m("id: anthropic/claude-opus-5\n    kind: embedding"), 7, "kind must be one of [chat]"},
		{m("id: openai/gpt-4o\n    max_output_tokens: 128001"), 7, "max_output_tokens is more than context_window"},
		{m("id: openai/gpt-4o\n    price: {input_per_mtok_usd: 1}"), 8, "price: needs input_per_mtok_usd and output_per_mtok_usd"},
		{m("id: openai/no-such-model"), 7, "price is missing: the model is not built in"},
		{m("id: up/m\n    provider: up\n    context_window: 10\n    max_output_tokens: 5"), 7, "price is missing"},
		{m("id: up/m\n    provider: up\n    max_output_tokens: 5\n    " + price), 7, "context_window is missing"},
		{m("id: up/m\n    provider: up\n    context_window: 10\n    " + price), 7, "max_output_tokens is missing"},
		{m(entry + price + "sim: {seed: 1}"), 7, "sim is for models of a simulated provider"},
		{m("id: sim/m\n    provider: up\n    context_window: 10\n    max_output_tokens: 5\n    " + price), 7, "must not look like a simulated model's"},
		{m("id: up/m\n    provider: up\n    context_window: 10\n    max_output_tokens: 11\n    " + price), 7, "max_output_tokens is more than context_window"},
		{m("id: up/m\n    context_window: 0"), 8, "context_window: must be a whole number from 1"},
		{m("id: up/m\n    context_window: 1.5"), 8, "context_window: must be a whole number"},
		{m("id: up/m\n    context_window: 1_000"), 8, "context_window: must be a whole number"},
		{m("id: up/m\n    max_output_tokens: -1"), 8, "max_output_tokens: must be a whole number"},
		{m("id: up/m\n    max_output_tokens: 1000000001"), 8, "max_output_tokens: must be a whole number"},
		{m("id: up/m\n    stream_usage: maybe"), 8, "stream_usage: must be true or false"},
		{m("id: up/m\n    price: 5"), 8, "price: must be a mapping"},
		{m("id: up/m\n    price: {}"), 8, "price: needs input_per_mtok_usd and output_per_mtok_usd"},
		{m("id: up/m\n    price:\n      input_per_mtok_usd: 1"), 8, "price: needs input_per_mtok_usd and output_per_mtok_usd"},
		{m("id: up/m\n    price:\n      output_per_mtok_usd: 1"), 8, "price: needs input_per_mtok_usd and output_per_mtok_usd"},
		{m("id: up/m\n    price:\n      input_per_mtok_usd: -1"), 9, "price: input_per_mtok_usd: must be dollars per million"},
		{m("id: up/m\n    price:\n      input_per_mtok_usd: 1\n      output_per_mtok_usd: 1.0000000001"), 10, "price: output_per_mtok_usd: must be dollars"},
		{m("id: up/m\n    price:\n      input_per_mtok_usd: 10000.000000001"), 9, "price: input_per_mtok_usd: must be dollars"},
		{m("id: up/m\n    price:\n      cached_input_per_mtok_usd: cheap"), 9, "price: cached_input_per_mtok_usd: must be dollars"},
		{m("id: up/m\n    price:\n      search_per_million_usd: 10001"), 9, "price: search_per_million_usd: must be dollars per million"},
		{m("id: up/m\n    kind: embedding\n    price: {output_per_mtok_usd: 1}"), 9, "price: needs input_per_mtok_usd;"},
		{m("id: up/m\n    price: {output_per_mtok_usd: 1}\n    kind: rerank"), 8, "price: needs input_per_mtok_usd or search_per_million_usd"},
		{m(tiers + "5"), 11, "price: tiers: must be a list"},
		{m(tiers + "\n        - 5"), 12, "price: tiers: must be a mapping"},
		{m(tiers + "\n        - {input_per_mtok_usd: 1, output_per_mtok_usd: 1}"), 12, "price: tiers: over_input_tokens is missing"},
		{m(tiers + "\n        - {over_input_tokens: 5, output_per_mtok_usd: 1}"), 12, "price: tiers: needs input_per_mtok_usd and"},
		{m(tiers + "\n        - over_input_tokens: 0"), 12, "price: tiers: over_input_tokens: must be a whole number from 1"},
		{m(tiers + "\n        - over_input_tokens: 5\n          colour: red"), 13, "price: tiers: unknown key colour"},
		{m(tiers + "\n        - over_input_tokens: 5\n          tiers: []"), 13, "price: tiers: unknown key tiers"},
		{m(tiers + "\n        - {over_input_tokens: 5, input_per_mtok_usd: 1, output_per_mtok_usd: 1}\n        - {over_input_tokens: 5, input_per_mtok_usd: 1, output_per_mtok_usd: 1}"), 13, "price: tiers: over_input_tokens must be more than that of the tier before"},
		{m("id: up/m\n    price:\n      over_input_tokens: 1"), 9, "price: unknown key over_input_tokens"},
		{m("id: up/m\n    price:\n      input: 1"), 9, "price: unknown key input"},
		{m("id: up/m\n    sim:\n      quality: 1.1"), 9, "sim: quality: must be a number from 0 to 1"},
		{m("id: up/m\n    sim:\n      error_rate: -0.1"), 9, "sim: error_rate: must be a number from 0 to 1"},
		{m("id: up/m\n    sim:\n      error_rate: .nan"), 9, "sim: error_rate: must be a number from 0 to 1"},
		{m("id: up/m\n    sim:\n      sensitivity: high"), 9, "sim: sensitivity: must be a number from 0 to 1"},
		{m("id: up/m\n    sim:\n      seed: one"), 9, "sim: seed: "},
		{m("id: up/m\n    sim:\n      mood: good"), 9, "sim: unknown key mood"},
	} {
		built, err := read(c.text)
		var placed *catalog.ErrLine
		if built != nil || !errors.As(err, &placed) || placed.Line != c.line || !strings.Contains(err.Error(), c.says) {
			line := 0
			if placed != nil {
				line = placed.Line
			}
			t.Errorf("%s\nis refused on line %d with %v, want line %d and %q", c.text, line, err, c.line, c.says)
		}
	}
}

func TestWhatIsLeftOutHasItsDefault(t *testing.T) {
	c := good(t, provider+model+`
  - id: plain
    provider: up
    context_window: 8192
    price: {input_per_mtok_usd: 0.02}
    kind: embedding
  - id: up/other/name
    provider: up
    upstream_model: their-name
    context_window: 10
    max_output_tokens: 5
    stream_usage: false
    price:
      output_per_mtok_usd: 0
      input_per_mtok_usd: 0.3
      cached_input_per_mtok_usd: 0.03
  - id: up/up/x
    provider: up
    context_window: 10
    max_output_tokens: 5
    price: {input_per_mtok_usd: 10000, output_per_mtok_usd: 0.000000001}
`)
	const cent = money.Rate(money.Dollar / 100)
	up := c.Providers()["up"]
	for _, want := range []*live.Model{
		{ID: "up/small", Provider: up, Upstream: "small", Kind: live.Chat, ContextWindow: 128_000, MaxOutput: 4096, Price: live.Price{Rates: live.Flat(15*cent, 60*cent)}, Created: born},
		{ID: "plain", Provider: up, Upstream: "plain", Kind: live.Embedding, ContextWindow: 8192, Price: live.Price{Rates: live.Flat(2*cent, 0)}, Created: born},
		{ID: "up/other/name", Provider: up, Upstream: "their-name", Kind: live.Chat, ContextWindow: 10, MaxOutput: 5, Price: live.Price{Rates: live.Rates{Input: 30 * cent, CachedInput: 3 * cent, WrittenInput: 30 * cent, AudioInput: 30 * cent}}, NoStreamUsage: true, Created: born},
		{ID: "up/up/x", Provider: up, Upstream: "up/x", Kind: live.Chat, ContextWindow: 10, MaxOutput: 5, Price: live.Price{Rates: live.Flat(money.MaxRate, 1)}, Created: born},
	} {
		if diff := cmp.Diff(want, find(t, c, want.ID), cmp.Comparer(secret.Text.Equal)); diff != "" {
			t.Error(diff)
		}
	}
	if !up.Configured || up.Responses || up.Modern || up.Protocol != live.OpenAI || !up.APIKey.Empty() || up.CAFile != "" || up.BaseURL != "https://api.example.com/v1" {
		t.Errorf("%+v", up)
	}
}

func TestABaseURLEndsWithoutASlash(t *testing.T) {
	c := good(t, "providers:\n  - {name: up, kind: openai, base_url: 'http://127.0.0.1:9/v1/', ca_file: /etc/ca.pem, transport: standard}")
	if got := c.Providers()["up"]; got.BaseURL != "http://127.0.0.1:9/v1" || got.CAFile != "/etc/ca.pem" {
		t.Errorf("%+v", got)
	}
}

func TestTheConfigurationStandsOnTopOfWhatIsBuiltIn(t *testing.T) {
	plain := good(t, "")
	built := plain.Models()
	if len(built) == 0 || plain.Providers()["sim"] == nil {
		t.Fatal("nothing is built in")
	}
	c := good(t, provider+`
models:
  - id: sim/chat
    provider: sim
    context_window: 77
    max_output_tokens: 7
    price: {input_per_mtok_usd: 3, output_per_mtok_usd: 4}
    sim: {seed: 9, latency_ms: 5, chunk_ms: 6, chunks: 7, error_rate: 0.25, quality: 0.5, sensitivity: 1, specificity: 0}
  - id: sim/chat-large
    provider: sim
    context_window: 88
    max_output_tokens: 8
    price: {input_per_mtok_usd: 3, output_per_mtok_usd: 4}
`)
	if len(c.Models()) != len(built) {
		t.Errorf("%d models, and %d are built in", len(c.Models()), len(built))
	}
	want := &live.Behaviour{Seed: 9, LatencyMS: 5, ChunkMS: 6, Chunks: 7, ErrorRate: 0.25, Quality: 0.5, Sensitivity: 1}
	if m := find(t, c, "sim/chat"); m.ContextWindow != 77 || m.Price.Output != money.Rate(4*money.Dollar) || cmp.Diff(m.Behaviour, want) != "" {
		t.Errorf("%+v %+v", m, m.Behaviour)
	}
	if m := find(t, c, "sim/chat-large"); m.ContextWindow != 88 || m.Behaviour != nil {
		t.Errorf("%+v", m)
	}
	for _, m := range built {
		if m.ID != "sim/chat" && m.ID != "sim/chat-large" {
			if diff := cmp.Diff(m, find(t, c, m.ID), cmp.Comparer(secret.Text.Equal)); diff != "" {
				t.Error(diff)
			}
		}
	}
}

func keyed(key string) string { return provider + "    api_key: " + key }

func TestAKeyStandsInTheFileInTheEnvironmentOrInAFileOfItsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte("sk-from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOVEREIGN_TEST_KEY", "sk-from-env")
	for text, want := range map[string]string{
		"sk-plain": "sk-plain", "'env:SOVEREIGN_TEST_KEY'": "sk-from-env", "file:" + path: "sk-from-file", "''": "", "'12345'": "12345", "~": "", "null": "",
	} {
		if got := good(t, keyed(text)).Providers()["up"].APIKey.Reveal(); got != want {
			t.Errorf("%s is %q, want %q", text, got, want)
		}
	}
}

// A canary stands where a key belongs, beside every kind of mistake, and shows in no error.
func TestAKeyIsInNoError(t *testing.T) {
	const canary = "sk-canary-7Zq"
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(canary), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOVEREIGN_TEST_KEY", canary)
	for _, key := range []string{canary, "env:SOVEREIGN_TEST_KEY", "file:" + path, "[" + canary + "]", "{a: " + canary + "}", "'" + canary} {
		for _, rest := range []string{
			"", "\n    kind: none", "\n    colour: red", "\n    api_key: " + canary, "\n    transport: warp", "\n    base_url: nowhere", "\n  - name: up", "\n  - 5", "\n\t- x", "\nmodels:\n  - id: m",
		} {
			_, err := read("providers:\n  - name: up\n    api_key: " + key + rest)
			if err == nil {
				t.Errorf("%s%s is accepted", key, rest)
			} else if strings.Contains(err.Error(), canary) || strings.Contains(fmt.Sprintf("%+v %#v", err, err), canary) {
				t.Errorf("%s%s: %v", key, rest, err)
			}
		}
	}
	var providers catalog.Providers
	if err := providers.UnmarshalText([]byte(`[{"name":"up","kind":"openai","base_url":"https://a.example","api_key":"` + canary + `"}]`)); err != nil {
		t.Fatal(err)
	}
	if shown := fmt.Sprintf("%v %+v %#v", providers, providers, providers); strings.Contains(shown, canary) {
		t.Error(shown)
	}
	for _, base := range []string{"https://user:" + canary + "@a.example/v1", "https://a.example/v1?key=" + canary} {
		if _, err := read("providers:\n  - {name: up, kind: openai, base_url: '" + base + "'}"); err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("%v", err)
		}
	}
}

func TestAFlagTakesJSONAndYAMLAlike(t *testing.T) {
	const asJSON = `[
	{"id": "up/m", "provider": "up", "kind": "chat", "context_window": 10, "max_output_tokens": 5,
		"price": {"input_per_mtok_usd": 0.25, "output_per_mtok_usd": 1.5}, "stream_usage": false}
]`
	const asYAML = "- id: up/m\n  provider: up\n  kind: chat\n  context_window: 10\n  max_output_tokens: 5\n  price:\n    input_per_mtok_usd: 0.25\n    output_per_mtok_usd: 1.5\n  stream_usage: no\n"
	var providers catalog.Providers
	if err := providers.UnmarshalText([]byte(`[{"name":"up","kind":"openai","base_url":"https://a.example/v1","api_key":"k"}]`)); err != nil {
		t.Fatal(err)
	}
	var shown []*live.Model
	for _, text := range []string{asJSON, asYAML, strings.ReplaceAll(asJSON, "\n", " ")} {
		var models catalog.Models
		if err := models.UnmarshalText([]byte(text)); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		c, err := catalog.Build(providers, models)
		if err != nil {
			t.Fatal(err)
		}
		shown = append(shown, find(t, c, "up/m"))
	}
	for _, m := range shown[1:] {
		if diff := cmp.Diff(shown[0], m, cmp.Comparer(secret.Text.Equal)); diff != "" {
			t.Error(diff)
		}
	}
	if m := shown[0]; !m.NoStreamUsage || m.Price.Output != money.Rate(1_500_000_000) || m.Provider.APIKey.Reveal() != "k" {
		t.Errorf("%+v", m)
	}
}

func TestWhatAFlagSetsTakesThePlaceOfWhatWasThere(t *testing.T) {
	var providers catalog.Providers
	for _, text := range []string{`[{"name":"a","kind":"sim"},{"name":"b","kind":"sim"}]`, `[{"name":"c","kind":"sim"}]`} {
		if err := providers.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if len(providers) != 1 || providers[0].Name != "c" {
		t.Errorf("%+v", providers)
	}
	for _, text := range []string{"", "  \n"} {
		var models catalog.Models
		if err := models.UnmarshalText([]byte(text)); err != nil || models != nil {
			t.Errorf("%q: %v %v", text, models, err)
		}
	}
	for _, text := range []string{"{", "[", "a: [", "x", "{}", "[1]", "\x00", "[{id: a}, {id: ]"} {
		var models catalog.Models
		if err := models.UnmarshalText([]byte(text)); err == nil || strings.Contains(err.Error(), "yaml:") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzAConfigurationNeverPanics(f *testing.F) {
	for _, seed := range []string{provider + model, "providers: [{name: a, kind: sim}]", "models: [{}]", "providers: [&a {name: b}, *a]", "models: [{price: {input_per_mtok_usd: 1e5}}]", "providers: [{<<: {name: a}}]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := read(text)
		if err == nil && len(c.Models()) == 0 {
			t.Fatal("a catalog without what is built in")
		}
	})
}
