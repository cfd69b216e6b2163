package sim

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

	"sovereign/internal/wire/upstream"
)

// client returns OpenAI's client, connected to the simulated provider.
func client(t *testing.T, id string) *openai.Client {
	p := New()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		response, err := p.Send(r.Context(), &upstream.Request{Model: model(id), Path: r.URL.Path, Body: [][]byte{body}})
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = response.Body.Close() }()
		w.Header().Set("Content-Type", response.ContentType)
		if response.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(response.RetryAfter/time.Second)))
		}
		w.WriteHeader(response.Status)
		_, err = io.Copy(w, response.Body)
		if http.NewResponseController(w).Flush() != nil || err != nil {
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.Client().CloseIdleConnections)
	c := openai.NewClient(option.WithBaseURL(server.URL), option.WithAPIKey("x"), option.WithHTTPClient(server.Client()), option.WithMaxRetries(0))
	return &c
}

func asking(id, text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: id, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)}}
}

func TestOpenAIsClientReadsAnswersAndStreamsAlike(t *testing.T) {
	c := client(t, "sim/chat")
	for name, change := range map[string]func(*openai.ChatCompletionNewParams){
		"plain":  func(*openai.ChatCompletionNewParams) {},
		"many":   func(p *openai.ChatCompletionNewParams) { p.N = openai.Int(3) },
		"cut":    func(p *openai.ChatCompletionNewParams) { p.MaxCompletionTokens = openai.Int(9) },
		"thinks": func(p *openai.ChatCompletionNewParams) { p.ReasoningEffort = shared.ReasoningEffortLow },
		"tools": func(p *openai.ChatCompletionNewParams) {
			for _, name := range []string{"get_weather", "clock"} {
				p.Tools = append(p.Tools, openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
					Name: name, Parameters: shared.FunctionParameters{"type": "object", "properties": map[string]any{"x": map[string]any{"type": "string"}}},
				}))
			}
		},
		"schema": func(p *openai.ChatCompletionNewParams) {
			p.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
				Name: "x", Strict: openai.Bool(true), Schema: map[string]any{"type": "object", "properties": map[string]any{"x": map[string]any{"type": "integer"}}, "required": []string{"x"}},
			}}
		},
	} {
		params := asking("sim/chat", "Ask get_weather and the clock")
		change(&params)
		answer, err := c.Chat.Completions.New(t.Context(), params)
		if err != nil {
			t.Fatal(name, err)
		}
		params.StreamOptions.IncludeUsage = openai.Bool(true)
		stream := c.Chat.Completions.NewStreaming(t.Context(), params)
		var all openai.ChatCompletionAccumulator
		for stream.Next() {
			if !all.AddChunk(stream.Current()) {
				t.Fatalf("%s: a chunk that does not fit: %s", name, stream.Current().RawJSON())
			}
		}
		if err := stream.Err(); err != nil {
			t.Fatal(name, err)
		}
		if len(all.Choices) != len(answer.Choices) || all.ID != answer.ID || all.Created != answer.Created || all.Model != answer.Model {
			t.Fatalf("%s: %+v and %+v", name, all.ChatCompletion, answer)
		}
		if u, w := all.Usage, answer.Usage; u.PromptTokens != w.PromptTokens || u.CompletionTokens != w.CompletionTokens || u.TotalTokens != w.TotalTokens ||
			u.CompletionTokensDetails.ReasoningTokens != w.CompletionTokensDetails.ReasoningTokens || w.TotalTokens == 0 || (name == "thinks") != (w.CompletionTokensDetails.ReasoningTokens > 0) {
			t.Errorf("%s: usage %+v, streamed %+v", name, w, u)
		}
		for i, want := range answer.Choices {
			got := all.Choices[i]
			if got.Message.Content != want.Message.Content || got.FinishReason != want.FinishReason || len(got.Message.ToolCalls) != len(want.Message.ToolCalls) {
				t.Errorf("%s: %+v and %+v", name, got, want)
			}
			for k, call := range want.Message.ToolCalls {
				if other := got.Message.ToolCalls[k]; other.ID != call.ID || other.Function.Name != call.Function.Name || other.Function.Arguments != call.Function.Arguments {
					t.Errorf("%s: %+v and %+v", name, other, call)
				}
			}
			if calls := len(want.Message.ToolCalls); (name == "tools") != (calls == 2) {
				t.Errorf("%s: %d calls", name, calls)
			}
		}
	}
}

func TestOpenAIsClientReadsRefusalsAndFailures(t *testing.T) {
	c := client(t, "sim/chat")
	_, err := c.Chat.Completions.New(t.Context(), asking("sim/chat", "x"), option.WithJSONSet("sim", map[string]any{"colour": 1}))
	var refused *openai.Error
	if !errors.As(err, &refused) || refused.StatusCode != http.StatusBadRequest || refused.Param != "sim.colour" || refused.Code != "unknown_parameter" || refused.Type != invalidRequest {
		t.Errorf("%+v", err)
	}
	for fail, want := range map[string]string{errorEvent: "Simulated failure", die: "unexpected EOF"} {
		stream := c.Chat.Completions.NewStreaming(t.Context(), asking("sim/chat", "x"), option.WithJSONSet("sim", map[string]any{"fail": fail, "fail_after": 3}))
		deltas := 0
		for stream.Next() {
			if stream.Current().Choices[0].Delta.Content != "" {
				deltas++
			}
		}
		if err := stream.Err(); err == nil || !strings.Contains(err.Error(), want) || deltas != 3 {
			t.Errorf("%s after %d: %v", fail, deltas, err)
		}
		_ = stream.Close()
	}
}

func TestOpenAIsClientReadsEmbeddings(t *testing.T) {
	answer, err := client(t, "sim/embedding").Embeddings.New(t.Context(), openai.EmbeddingNewParams{
		Model: "sim/embedding", Dimensions: openai.Int(16), Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"one", "two"}},
	})
	if err != nil || len(answer.Data) != 2 || len(answer.Data[1].Embedding) != 16 || answer.Data[1].Index != 1 || answer.Usage.TotalTokens != 2 {
		t.Errorf("%+v, %v", answer, err)
	}
}
