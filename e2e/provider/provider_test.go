package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"
)

func start(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(newProvider())
	t.Cleanup(server.Close) // waits for the requests that still run: one that outlives its client hangs the test
	return server.URL
}

func official(address string) openai.Client {
	return openai.NewClient(option.WithBaseURL(address+"/v1"), option.WithAPIKey(secretKey), option.WithMaxRetries(0))
}

func question(model string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("one two three")}}
}

// send sends a body and reads the answer as far as it goes.
func send(t *testing.T, ctx context.Context, address, path, body string) (*http.Response, string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+secretKey)
	request.Header.Set("Accept-Encoding", "identity")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response, string(text), err
}

func chat(model, more string) string {
	return fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"one two three"}]%s}`, model, more)
}

func records(t *testing.T, address string) (out []record) {
	t.Helper()
	response, err := http.Get(address + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

var unstable = regexp.MustCompile(`"id":"chatcmpl-\d+"|"created":\d+`)

func TestAStreamIsFramedToTheByte(t *testing.T) {
	address := start(t)
	data := func(rest string) string {
		return `data: {ID,"object":"chat.completion.chunk",AT,"model":"mock","system_fingerprint":"fp_provider","choices":` + rest + "}\n\n"
	}
	delta := func(delta, finish string) string {
		return `[{"index":0,"delta":` + delta + `,"logprobs":null,"finish_reason":` + finish + `}]`
	}
	const counted = `{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}`
	asked := data(delta(`{"role":"assistant","content":""}`, "null")+`,"usage":null`) +
		data(delta(`{"content":"every "}`, "null")+`,"usage":null`) +
		data(delta(`{"content":"request"}`, "null")+`,"usage":null`) +
		data(delta(`{}`, `"stop"`)+`,"usage":null`) +
		data(`[],"usage":`+counted) + "data: [DONE]\n\n"
	plain := strings.ReplaceAll(strings.ReplaceAll(asked, data(`[],"usage":`+counted), ""), `,"usage":null`, "")
	const usage = `,"stream":true,"stream_options":{"include_usage":true}`
	for name, c := range map[string]struct{ model, more, want string }{
		"usage asked for":     {"mock?chunks=2", usage, asked},
		"usage not asked for": {"mock?chunks=2", `,"stream":true`, plain},
		"usage never told":    {"mock?chunks=2&usage=none", usage, plain},
		"usage told unasked":  {"mock?chunks=2&usage=last", `,"stream":true`, strings.Replace(plain, "data: [DONE]", data(`[],"usage":`+counted)+"data: [DONE]", 1)},
		"usage on the finish": {"mock?chunks=2&inline_usage", `,"stream":true`, strings.Replace(plain, `"stop"}]`, `"stop"}],"usage":`+counted, 1)},
		"no end":              {"mock?chunks=2&no_done", `,"stream":true`, strings.TrimSuffix(plain, "data: [DONE]\n\n")},
		"CR LF":               {"mock?chunks=2&crlf", `,"stream":true`, strings.ReplaceAll(plain, "\n", "\r\n")},
		"in bits":             {"mock?chunks=2&split=3", `,"stream":true`, plain},
		"comments":            {"mock?chunks=2&ping", `,"stream":true`, strings.Replace(plain, data(delta(`{"content":"request"}`, "null")), ": ping\n"+data(delta(`{"content":"request"}`, "null")), 1)},
		"an error first":      {"mock?error_event_after=0", `,"stream":true`, `data: {"error":{"code":null,"message":"the provider broke down in the middle","param":null,"type":"server_error"}}` + "\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			response, got, err := send(t, t.Context(), address, "/v1/chat/completions", chat(c.model, c.more))
			if err != nil {
				t.Fatal(err)
			}
			if got := response.Header.Get("Content-Type"); got != "text/event-stream; charset=utf-8" {
				t.Error(got)
			}
			ids := unstable.FindAllString(got, -1)
			slices.Sort(ids)
			if len(slices.Compact(ids)) > 2 {
				t.Errorf("chunks of different ids or times: %v", ids)
			}
			got = unstable.ReplaceAllStringFunc(got, func(s string) string { return map[bool]string{true: "ID", false: "AT"}[strings.HasPrefix(s, `"id"`)] })
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func weather(name string) openai.ChatCompletionToolUnionParam {
	return openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: name, Parameters: shared.FunctionParameters{
		"type": "object", "required": []string{"city"}, "properties": map[string]any{"city": map[string]any{"type": "string", "enum": []string{"Ulm"}}},
	}})
}

// What is streamed and what comes in one piece is the same, whatever is asked, and the official types read both.
func TestTheOfficialTypesReadTheSameFromStreamsAndBodies(t *testing.T) {
	address := start(t)
	client := official(address)
	tools := question("mock?tool")
	tools.Tools = []openai.ChatCompletionToolUnionParam{weather("today"), weather("tomorrow")}
	chosen := tools
	chosen.ToolChoice = openai.ToolChoiceOptionFunctionToolChoice(openai.ChatCompletionNamedToolChoiceFunctionParam{Name: "tomorrow"})
	refused := tools
	refused.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: param.NewOpt("none")}
	several := question("mock?text=9&chunks=4")
	several.N = param.NewOpt[int64](3)
	short := question("mock?text=9")
	short.MaxTokens = param.NewOpt[int64](4)
	structured := question("mock?json&chunks=4")
	structured.ResponseFormat = openai.ChatCompletionNewParamsResponseFormatUnion{OfJSONSchema: &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
		Name: "verdict", Schema: map[string]any{"type": "object", "required": []string{"pass"}, "properties": map[string]any{"pass": map[string]any{"type": "boolean"}}},
	}}}
	for name, c := range map[string]struct {
		params openai.ChatCompletionNewParams
		want   string // of every choice
		finish string
		in     int64
		out    int64
	}{
		"text":             {question("mock?text=5"), "every request is held before", "stop", 3, 5},
		"several choices":  {several, "every request is held before it runs and charged", "stop", 3, 27},
		"cut by the limit": {short, "every request is held", "length", 3, 4},
		"big":              {question("mock?big=100000&chunks=10"), strings.Repeat("words and more words ", 5000)[:100000], "stop", 3, 19048},
		"tools":            {tools, `[{today {"city":"Ulm"}} {tomorrow {"city":"Ulm"}}]`, "tool_calls", 3, 4},
		"one tool":         {chosen, `[{tomorrow {"city":"Ulm"}}]`, "tool_calls", 3, 2},
		"no tool":          {refused, "every request is", "stop", 3, 3},
		"structured":       {structured, `{"pass":true}`, "stop", 3, 1},
		"told usage":       {question("mock?in=1000&out=70&cached=900"), "every request is", "stop", 1000, 70},
		"usage of nothing": {question("mock?usage=zero"), "every request is", "stop", 0, 0},
		"much usage":       {question("mock?usage=over"), "every request is", "stop", 300, 300},
		"reasoning":        {question("mock?reasoning=2&text=1"), "every", "stop", 3, 3},
		"zipped":           {question("mock?gzip"), "every request is", "stop", 3, 3},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(kind string, got *openai.ChatCompletion) {
				if len(got.Choices) != int(max(1, c.params.N.Value)) || got.Usage.PromptTokens != c.in || got.Usage.CompletionTokens != c.out || got.Usage.TotalTokens != c.in+c.out {
					t.Errorf("%s: %d choices, %d + %d tokens", kind, len(got.Choices), got.Usage.PromptTokens, got.Usage.CompletionTokens)
				}
				for _, choice := range got.Choices {
					said := choice.Message.Content
					if calls := choice.Message.ToolCalls; len(calls) > 0 {
						var names []struct{ Name, Arguments string }
						for _, call := range calls {
							names = append(names, struct{ Name, Arguments string }{call.Function.Name, call.Function.Arguments})
						}
						said = fmt.Sprint(names)
					}
					if said != c.want || choice.FinishReason != c.finish || choice.Message.Role != "assistant" {
						t.Errorf("%s: %.200q, finished by %s", kind, said, choice.FinishReason)
					}
				}
			}
			whole, err := client.Chat.Completions.New(t.Context(), c.params)
			if err != nil {
				t.Fatal(err)
			}
			check("body", whole)
			c.params.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: param.NewOpt(true)}
			stream := client.Chat.Completions.NewStreaming(t.Context(), c.params)
			var sum openai.ChatCompletionAccumulator
			for stream.Next() {
				if !sum.AddChunk(stream.Current()) {
					t.Errorf("not added: %s", stream.Current().RawJSON())
				}
			}
			if stream.Err() != nil {
				t.Fatal(stream.Err())
			}
			check("stream", &sum.ChatCompletion)
		})
	}
}

func TestReasoningIsApartFromTheAnswer(t *testing.T) {
	address := start(t)
	_, whole, _ := send(t, t.Context(), address, "/v1/chat/completions", chat("mock?reasoning=2&text=1", ""))
	if !strings.Contains(whole, `"content":"every","reasoning_content":"every request"`) || !strings.Contains(whole, `"reasoning_tokens":2`) {
		t.Error(whole)
	}
	_, stream, _ := send(t, t.Context(), address, "/v1/chat/completions", chat("mock?reasoning=2&text=1", `,"stream":true`))
	last := -1
	for _, want := range []string{`{"reasoning_content":"every "}`, `{"reasoning_content":"request"}`, `{"content":"every"}`} {
		at := strings.Index(stream, want)
		if at <= last {
			t.Errorf("%s is not where it should be in %s", want, stream)
		}
		last = at
	}
}

func TestWhatElseAPlanCanSayIsSaid(t *testing.T) {
	address := start(t)
	tools := `,"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}]`
	for model, c := range map[string]struct{ more, holds string }{
		"mock?in=10&cached=1&written=5&audio=2": {"", `"prompt_tokens_details":{"cached_tokens":1,"cache_write_tokens":5,"audio_tokens":2}`},
		"mock?finish=content_filter":            {"", `"finish_reason":"content_filter"`},
		"mock?tool&preface=2":                   {tools, `"content":"every request","refusal":null,"tool_calls":[`},
		"mock?tool":                             {tools + `,"parallel_tool_calls":false`, `"tool_calls":[{"id":"call_0","type":"function","function":{"name":"f","arguments":"{}"}}]`},
		"claude-mock?text=1":                    {"", `"model":"claude-mock"`},
	} {
		if _, text, err := send(t, t.Context(), address, "/v1/chat/completions", chat(model, c.more)); err != nil || !strings.Contains(text, c.holds) {
			t.Errorf("%s: %s %v", model, text, err)
		}
	}
}

func TestRunningUsageGrowsToTheFinalOne(t *testing.T) {
	client := official(start(t))
	stream := client.Chat.Completions.NewStreaming(t.Context(), question("mock?chunks=4&usage=each"))
	var got []int64
	for stream.Next() {
		if usage := stream.Current().JSON.Usage; usage.Valid() {
			got = append(got, stream.Current().Usage.CompletionTokens)
		}
	}
	if want := []int64{1, 2, 3, 4, 4}; stream.Err() != nil || !slices.Equal(got, want) {
		t.Errorf("%v %v", got, stream.Err())
	}
}

func TestEmbeddingsAreTheSameInBothEncodings(t *testing.T) {
	address := start(t)
	client := official(address)
	input := openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"one two", "three"}}
	floats, err := client.Embeddings.New(t.Context(), openai.EmbeddingNewParams{Model: "mock", Input: input, Dimensions: param.NewOpt[int64](5)})
	if err != nil {
		t.Fatal(err)
	}
	_, text, err := send(t, t.Context(), address, "/v1/embeddings", `{"model":"mock","input":["one two","three"],"dimensions":5,"encoding_format":"base64"}`)
	if err != nil {
		t.Fatal(err)
	}
	var packed struct {
		Data []struct {
			Embedding []byte
		}
	}
	if err := json.Unmarshal([]byte(text), &packed); err != nil { // []byte is base64
		t.Fatal(err)
	}
	for i, one := range floats.Data {
		var unpacked []float64
		length := 0.0
		for part := range slices.Chunk(packed.Data[i].Embedding, 4) {
			x := float64(math.Float32frombits(binary.LittleEndian.Uint32(part)))
			unpacked, length = append(unpacked, x), length+x*x
		}
		same := slices.EqualFunc(one.Embedding, unpacked, func(a, b float64) bool { return float32(a) == float32(b) })
		if !same || len(unpacked) != 5 || math.Abs(length-1) > 1e-6 || int(one.Index) != i {
			t.Errorf("%d: %v is not %v", i, one.Embedding, unpacked)
		}
	}
	if floats.Usage.PromptTokens != 3 || floats.Usage.TotalTokens != 3 {
		t.Error(floats.Usage)
	}
	for input, want := range map[string]string{`[1,2,3]`: `"prompt_tokens":3`, `[[1,2],[3]]`: `"index":1`, `"a b"`: `"prompt_tokens":2`, `[]`: `"param":"input"`, `{}`: `"param":"input"`} {
		if _, text, _ := send(t, t.Context(), address, "/v1/embeddings", `{"model":"mock","input":`+input+`}`); !strings.Contains(text, want) {
			t.Errorf("%s: %s", input, text)
		}
	}
}

func TestModelsAreListedAndFoundThoughTheirIDsHaveSlashes(t *testing.T) {
	client := official(start(t))
	page, err := client.Models.List(t.Context())
	if err != nil || len(page.Data) != 3 {
		t.Fatal(page, err)
	}
	for _, listed := range page.Data {
		if one, err := client.Models.Get(t.Context(), listed.ID); err != nil || one.ID != listed.ID || one.OwnedBy != "provider" {
			t.Errorf("%s: %v %v", listed.ID, one, err)
		}
	}
	var refusal *openai.Error
	if _, err := client.Models.Get(t.Context(), "no/model"); !errors.As(err, &refusal) || refusal.Code != "model_not_found" {
		t.Error(err)
	}
}

func TestTheAddressIsTheFirstLine(t *testing.T) {
	reader, writer := io.Pipe()
	go func() { _ = serve("127.0.0.1:0", writer) }()
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if got := records(t, strings.TrimSpace(line)); len(got) != 0 {
		t.Error(got)
	}
	var told bytes.Buffer
	if err := serve("nowhere:-1", &told); err == nil || told.Len() > 0 {
		t.Error(err, told.String())
	}
	flags := flag.NewFlagSet("provider", flag.ContinueOnError)
	flags.SetOutput(&told)
	help(flags)
	for name := range parameters {
		if !strings.Contains(told.String(), "\n  "+name+" ") {
			t.Errorf("the help does not tell %s", name)
		}
	}
}

func eventually(t *testing.T, what func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !what(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come to pass")
		}
	}
}

// do sends a request and reads the answer.
func do(t *testing.T, request *http.Request) (int, string, error) {
	t.Helper()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}
