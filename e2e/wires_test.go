package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cohere "github.com/cohere-ai/cohere-go/v2"
	coheresoption "github.com/cohere-ai/cohere-go/v2/option"
	coherev2 "github.com/cohere-ai/cohere-go/v2/v2"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"sovereign/e2e/sdk/golang"
	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
)

// wireProviders is the mock provider with the wire of each vendor, by the part of a model's id before the slash.
var wireProviders = map[string]string{
	"mock":   "kind: openai, base_url: %s/v1",
	"native": "kind: openai, base_url: %s/v1, responses: native",
	"claude": "kind: anthropic, base_url: %s/anthropic/v1",
	"gemini": "kind: gemini, base_url: %s/gemini/v1beta",
	"cohere": "kind: cohere, base_url: %s/cohere",
}

// wirePrices are the prices by the kind of a model, which is in its id.
var wirePrices = map[string]string{
	"chat":      "input_per_mtok_usd: 2.5, cached_input_per_mtok_usd: 1.25, written_input_per_mtok_usd: 3, output_per_mtok_usd: 10",
	"embedding": "input_per_mtok_usd: 1",
	"rerank":    "input_per_mtok_usd: 1, search_per_million_usd: 2000",
}

// wireConfig writes a configuration in which models, by id, are at the mock provider, which speaks the wire of the
// vendor before the slash.
func wireConfig(t *testing.T, address string, models map[string]string) string {
	t.Helper()
	var text strings.Builder
	text.WriteString("providers:\n")
	for name, how := range wireProviders {
		fmt.Fprintf(&text, "  - {name: %s, %s, api_key: provider-secret, transport: %s}\n", name, fmt.Sprintf(how, address), transport())
	}
	text.WriteString("models:\n")
	for id, upstream := range models {
		vendor, name, _ := strings.Cut(id, "/")
		kind := "chat"
		if wirePrices[name] != "" {
			kind = name
		}
		fmt.Fprintf(&text, "  - {id: %s, provider: %s, upstream_model: %q, kind: %s, context_window: 128000, max_output_tokens: 4096, price: {%s}}\n", id, vendor, upstream, kind, wirePrices[kind])
	}
	path := filepath.Join(t.TempDir(), "sovereign.yaml")
	writeFile(t, path, text.String())
	return path
}

// wires starts a server with models at the mock provider, and returns the official client for it.
func wires(t *testing.T, models map[string]string, args ...string) (s *process, client openai.Client, provider string) {
	t.Helper()
	provider = startProvider(t)
	s = newInstance(t, secret.Text{}).serve(t, append([]string{"--config", wireConfig(t, provider, models), "--limits-breaker-failures", "0"}, args...)...)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the gateway logged:\n%s", s.log)
		}
		s.verifyLedger(t)
	})
	return s, openai.NewClient(option.WithBaseURL(s.address()+"/v1"), option.WithAPIKey(s.key()), option.WithMaxRetries(0), option.WithRequestTimeout(limit)), provider
}

// The scenarios of the official package that pass on OpenAI's wire pass on every other, with the same usage figures.
func TestEveryWirePassesTheScenariosOfTheOfficialPackage(t *testing.T) {
	t.Parallel()
	address := startProvider(t)
	models := map[string]string{"cohere/embedding": "mock", "gemini/embedding": "mock?in=3"}
	targets := map[string]*golang.Target{}
	for vendor, embedding := range map[string]string{"claude": "cohere/embedding", "gemini": "gemini/embedding"} {
		target := &golang.Target{Provider: address, Models: map[string]string{"embedding": embedding, "listed": vendor + "/chat"}}
		all := maps.Clone(behaviours)
		maps.Copy(all, repaired)
		for name, upstream := range all {
			if !slices.Contains([]string{"embedding", "reasoning", "plain", "inline", "unasked", "numbers", "packed"}, name) { // OpenAI's own, or asked for otherwise
				models[vendor+"/"+name], target.Models[name] = upstream, vendor+"/"+name
			}
		}
		targets[vendor] = target
	}
	p := newInstance(t, secret.Text{})
	server := p.serve(t, "--config", wireConfig(t, address, models), "--limits-breaker-failures", "0")
	poor := p.newWorkspace(t, "poor", 1000)
	for vendor, target := range targets {
		target.BaseURL, target.Key, target.PoorKey = server.address()+"/v1", server.key(), poor
		t.Run(vendor, func(t *testing.T) { golang.Run(t, *target) })
	}
	if t.Failed() {
		t.Logf("the gateway logged:\n%s", server.log)
	}
	p.verifyLedger(t)
}

// Every kind of token is reported, and charged at its own rate, whatever its name on a wire.
func TestUsageIsToldAndChargedAlikeOnEveryWire(t *testing.T) {
	t.Parallel()
	models := map[string]string{
		"mock/figures":   "mock?text=1&in=1000&cached=900&written=60&out=7",
		"claude/figures": "mock?text=1&in=1000&cached=900&written=60&out=7",
		"claude/once":    "mock?text=1&in=1000&cached=900&written=60&out=7&usage=last",
		"claude/twice":   "mock?text=1&in=1000&cached=900&written=60&out=7&usage=each",
		"gemini/figures": "mock?text=1&in=1000&cached=900&out=7",
	}
	s, client, _ := wires(t, models)
	want := map[string]money.Nano{}
	for model := range models {
		written := int64(60)
		if strings.HasPrefix(model, "gemini/") {
			written = 0
		}
		cost := money.Nano((100-written)*2500 + 900*1250 + written*3000 + 7*10000)
		talk := openai.ChatCompletionNewParams{Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("one two three")}}
		var response *http.Response
		got, err := client.Chat.Completions.New(t.Context(), talk, option.WithResponseInto(&response))
		if err != nil {
			t.Fatal(model, err)
		}
		want[response.Header.Get("X-Request-Id")] = cost
		talk.StreamOptions.IncludeUsage = openai.Bool(true)
		stream := client.Chat.Completions.NewStreaming(t.Context(), talk, option.WithResponseInto(&response))
		var last openai.ChatCompletionChunk
		for stream.Next() {
			last = stream.Current()
		}
		if stream.Err() != nil {
			t.Fatal(model, stream.Err())
		}
		want[response.Header.Get("X-Request-Id")] = cost
		for _, u := range []openai.CompletionUsage{got.Usage, last.Usage} {
			told := fmt.Sprint(u.PromptTokens, u.PromptTokensDetails.CachedTokens, u.CompletionTokens, u.TotalTokens)
			if told != "1000 900 7 1007" || written > 0 && !strings.Contains(u.RawJSON(), `"cache_write_tokens":60`) {
				t.Errorf("%s: %s", model, u.RawJSON())
			}
		}
	}
	eventually(t, "all is charged", func() bool { return len(s.usage(t, "default")) == len(want) })
	for id, row := range s.usage(t, "default") {
		if row.Charged != want[id] || !row.Counted && row.Input != 1000 {
			t.Errorf("%s: charged %s for %+v, and not %s", row.Model, row.Charged, row, want[id])
		}
	}
}

// Finish reasons are OpenAI's, whatever a wire calls them.
func TestFinishReasonsAreOpenAIsOnEveryWire(t *testing.T) {
	t.Parallel()
	reasons := map[string]string{
		"claude/end_turn": "stop", "claude/stop_sequence": "stop", "claude/max_tokens": "length", "claude/refusal": "content_filter",
		"gemini/STOP": "stop", "gemini/MAX_TOKENS": "length", "gemini/SAFETY": "content_filter", "gemini/PROHIBITED_CONTENT": "content_filter",
	}
	models := map[string]string{"gemini/blocked": "mock?block=SAFETY"}
	for id := range reasons {
		models[id] = "mock?text=1&finish=" + strings.SplitN(id, "/", 2)[1]
	}
	reasons["gemini/blocked"] = "content_filter"
	_, client, _ := wires(t, models)
	for model, want := range reasons {
		talk := openai.ChatCompletionNewParams{Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("one two three")}}
		for _, stream := range []bool{false, true} {
			if got := reply(t, client, talk, stream); got.finish != want {
				t.Errorf("%s, streamed %t: %s", model, stream, got.finish)
			}
		}
	}
}

// Ranks come best first and with their documents, whatever the provider's order.
func TestRanksComeBestFirstOnEveryWire(t *testing.T) {
	t.Parallel()
	s, _, _ := wires(t, map[string]string{"mock/rerank": "mock", "cohere/rerank": "mock"})
	for model, usage := range map[string]string{"mock/rerank": `"total_tokens":`, "cohere/rerank": `"search_units":1`} {
		a, err := s.caller().post(t.Context(), "/v1/rerank", fmt.Sprintf(`{"model":%q,"query":"red fish","documents":["a cat",{"text":"blue fish"},"red fish swim"],"top_n":2,"return_documents":true}`, model), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			ID      string
			Results []struct {
				Index    int
				Score    float64 `json:"relevance_score"`
				Document struct{ Text string }
			}
			Usage json.RawMessage
		}
		if err := json.Unmarshal(a.body, &got); err != nil || a.status != http.StatusOK {
			t.Fatalf("%s: %d %s", model, a.status, a.body)
		}
		if told := fmt.Sprint(got.Results); told != "[{2 1 {red fish swim}} {1 0.5 {blue fish}}]" || got.ID == "" || !strings.Contains(string(got.Usage), usage) {
			t.Errorf("%s: %s", model, a.body)
		}
		if refused, _ := s.caller().post(t.Context(), "/v1/rerank", fmt.Sprintf(`{"model":%q,"query":"q"}`, model), nil); refused.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", model, refused.status, refused.body)
		}
	}
}

// Cohere's own client ranks with any reranker, on both mounts, and reads what was billed.
func TestCoheresClientRanksOnEveryWire(t *testing.T) {
	t.Parallel()
	s, _, _ := wires(t, map[string]string{"mock/rerank": "mock", "cohere/rerank": "mock"})
	for _, mount := range []string{"", "/api"} {
		client := coherev2.NewClient(coheresoption.WithBaseURL(s.address()+mount), coheresoption.WithToken(s.key()), coheresoption.WithMaxAttempts(1))
		for _, model := range []string{"mock/rerank", "cohere/rerank", "sim/rerank"} {
			asked := &cohere.V2RerankRequest{Model: model, Query: "red fish", Documents: []string{"a cat", "blue fish", "red fish swim"}, TopN: cohere.Int(2)}
			got, err := client.Rerank(t.Context(), asked)
			if err != nil {
				t.Fatalf("%s: %v", model, err)
			}
			if len(got.Results) != 2 || got.Results[0].Index != 2 || got.Results[1].Index != 1 || got.Results[0].RelevanceScore <= got.Results[1].RelevanceScore ||
				got.Id == nil || *got.Meta.BilledUnits.SearchUnits != 1 || got.Meta.ApiVersion.Version != "2" {
				t.Errorf("%s: %s", model, got)
			}
			tokens := got.Meta.BilledUnits.InputTokens
			if reports := model != "cohere/rerank"; reports != (tokens != nil && *tokens > 0) {
				t.Errorf("%s: %s", model, got)
			}
		}
		var badRequest *cohere.BadRequestError
		if _, err := client.Rerank(t.Context(), &cohere.V2RerankRequest{Model: "mock/rerank", Query: "q"}); !errors.As(err, &badRequest) {
			t.Errorf("no documents: %v", err)
		}
		var notFound *cohere.NotFoundError
		if _, err := client.Rerank(t.Context(), &cohere.V2RerankRequest{Model: "none", Query: "q", Documents: []string{"d"}}); !errors.As(err, &notFound) {
			t.Errorf("no model: %v", err)
		}
		var unauthorized *cohere.UnauthorizedError
		_, err := client.Rerank(t.Context(), &cohere.V2RerankRequest{Model: "mock/rerank", Query: "q", Documents: []string{"d"}}, coheresoption.WithToken("sk_sovereign_wrong"))
		if !errors.As(err, &unauthorized) {
			t.Errorf("a wrong key: %v", err)
		}
	}
}

// The Responses API works with models whose provider has it, and with those whose provider has not.
func TestResponsesAreNativeOrBridged(t *testing.T) {
	t.Parallel()
	models := map[string]string{}
	for _, vendor := range []string{"native", "mock", "claude", "gemini"} {
		models[vendor+"/text"], models[vendor+"/tools"], models[vendor+"/short"] = "mock?text=5", "mock?tool&text=1", "mock?text=9"
	}
	_, client, provider := wires(t, models)
	for _, vendor := range []string{"native", "mock", "claude", "gemini"} {
		t.Run(vendor, func(t *testing.T) {
			ask := responses.ResponseNewParams{Model: vendor + "/text", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("one two " + vendor)}, Store: openai.Bool(false)}
			respond(t, client, ask, "completed", func(r *responses.Response) bool {
				return r.OutputText() == "every request is held before" && r.Usage.InputTokens == 3 && r.Usage.OutputTokens == 5
			})
			ask.Model, ask.MaxOutputTokens = vendor+"/short", openai.Int(4)
			respond(t, client, ask, "incomplete", func(r *responses.Response) bool {
				return r.OutputText() == "every request is held" && r.IncompleteDetails.Reason == "max_output_tokens"
			})
			ask.Model, ask.MaxOutputTokens = vendor+"/tools", param.Opt[int64]{}
			ask.Tools = []responses.ToolUnionParam{responses.ToolParamOfFunction("today", where, true), responses.ToolParamOfFunction("tomorrow", where, true)}
			items := responses.ResponseInputParam{responses.ResponseInputItemParamOfMessage("one two "+vendor, "user")}
			respond(t, client, ask, "completed", func(r *responses.Response) bool {
				calls := slices.DeleteFunc(slices.Clone(r.Output), func(o responses.ResponseOutputItemUnion) bool { return o.Type != "function_call" })
				items = items[:1]
				for _, item := range r.Output {
					items = append(items, param.Override[responses.ResponseInputItemUnionParam](json.RawMessage(item.RawJSON())))
				}
				for _, call := range calls {
					items = append(items, param.Override[responses.ResponseInputItemUnionParam](map[string]string{"type": "function_call_output", "call_id": call.CallID, "output": "fine weather"}))
				}
				return len(calls) == 2 && calls[1].Name == "tomorrow" && calls[1].Arguments.OfString == `{"city":"Ulm"}`
			})
			ask.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: items}
			respond(t, client, ask, "completed", func(r *responses.Response) bool { return r.OutputText() == "every" })
		})
	}
	for _, one := range seenBy(t, provider, "one two native") {
		if strings.Contains(one.Body, `"messages"`) {
			t.Errorf("it was bridged: %s", one.Body)
		}
	}
}

// respond asks for a response, whole and streamed. Both must end with the status, and be right.
func respond(t *testing.T, client openai.Client, ask responses.ResponseNewParams, status string, right func(*responses.Response) bool) {
	t.Helper()
	whole, err := client.Responses.New(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	stream := client.Responses.NewStreaming(t.Context(), ask)
	var last responses.ResponseStreamEventUnion
	for n := int64(0); stream.Next(); n++ {
		last = stream.Current()
		if last.SequenceNumber != n || n == 0 && last.Type != "response.created" {
			t.Errorf("event %d: %s", n, last.RawJSON())
		}
	}
	if stream.Err() != nil || last.Type != "response."+status {
		t.Fatalf("%v: %s", stream.Err(), last.RawJSON())
	}
	for _, r := range []*responses.Response{&last.Response, whole} {
		if string(r.Status) != status || !right(r) {
			t.Errorf("%s", r.RawJSON())
		}
	}
}
