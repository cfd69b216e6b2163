package gateway

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/secret"
	"sovereign/internal/live"
	"sovereign/internal/plane/edge"
	"sovereign/internal/plane/gateway/request"
	"sovereign/internal/wire/protocol"
	"sovereign/internal/wire/upstream"
)

// refusals are what model servers send when they refuse a request, and what the caller then reads.
var refusals = []struct {
	server   string
	protocol live.Protocol
	status   int
	body     string
	message  string
	code     string
	param    string
}{
	{
		"OpenAI", live.OpenAI, 400,
		`{"error":{"message":"This model's maximum context length is 128000 tokens. However, your messages resulted in 200007 tokens. Please reduce the length of the messages.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`,
		"This model's maximum context length is 128000 tokens. However, your messages resulted in 200007 tokens. Please reduce the length of the messages.", "context_length_exceeded", "messages",
	},
	{
		"OpenAI, a field", live.OpenAI, 400,
		`{"error":{"message":"Unsupported value: 'temperature' does not support 0.2 with this model.","type":"invalid_request_error","param":"temperature","code":"unsupported_value"}}`,
		"Unsupported value: 'temperature' does not support 0.2 with this model.", "unsupported_value", "temperature",
	},
	{
		"Azure", live.OpenAI, 400,
		`{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy.","type":null,"param":"prompt","code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation","content_filter_result":{"hate":{"filtered":true,"severity":"high"}}}}}`,
		"The response was filtered due to the prompt triggering Azure OpenAI's content management policy.", "content_filter", "prompt",
	},
	{
		"vLLM, flat", live.OpenAI, 400,
		`{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4980 in the messages, 20 in the completion). Please reduce the length of the messages or completion.","type":"BadRequestError","param":null,"code":400}`,
		"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4980 in the messages, 20 in the completion). Please reduce the length of the messages or completion.", "context_length_exceeded", "",
	},
	{
		"vLLM", live.OpenAI, 400,
		`{"error":{"message":"The decoder prompt (length 5120) is longer than the maximum model length of 4096. Make sure that max_model_len is no smaller than the number of text tokens.","type":"BadRequestError","param":"input_tokens","code":400}}`,
		"The decoder prompt (length 5120) is longer than the maximum model length of 4096. Make sure that max_model_len is no smaller than the number of text tokens.", "context_length_exceeded", "input_tokens",
	},
	{
		"vLLM, a field", live.OpenAI, 400,
		`{"object":"error","message":"[{'type': 'extra_forbidden', 'loc': ('body', 'foo'), 'msg': 'Extra inputs are not permitted', 'input': 1}]","type":"BadRequestError","param":null,"code":400}`,
		"[{'type': 'extra_forbidden', 'loc': ('body', 'foo'), 'msg': 'Extra inputs are not permitted', 'input': 1}]", "invalid_parameter", "",
	},
	{
		"SGLang", live.OpenAI, 400,
		`{"object":"error","message":"Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 9000 tokens: 8000 tokens from the input messages and 1000 tokens for the completion.","type":"BadRequestError","param":null,"code":400}`,
		"Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 9000 tokens: 8000 tokens from the input messages and 1000 tokens for the completion.", "context_length_exceeded", "",
	},
	{
		"llama.cpp", live.OpenAI, 400,
		`{"error":{"code":400,"message":"request (13392 tokens) exceeds the available context size (8192 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":13392,"n_ctx":8192}}`,
		"request (13392 tokens) exceeds the available context size (8192 tokens), try increasing it", "context_length_exceeded", "",
	},
	{
		"TGI", live.OpenAI, 422,
		"{\"error\":\"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 20 `max_new_tokens`\",\"error_type\":\"validation\"}",
		"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 20 `max_new_tokens`", "context_length_exceeded", "",
	},
	{
		"TGI, plain text", live.OpenAI, 422,
		"Failed to deserialize the JSON body into the target type: messages[0]: missing field `role` at line 1 column 40",
		"Failed to deserialize the JSON body into the target type: messages[0]: missing field `role` at line 1 column 40", "invalid_parameter", "",
	},
	{
		"Ollama", live.OpenAI, 400,
		`{"error":{"message":"the input length exceeds the context length","type":"invalid_request_error","param":null,"code":null}}`,
		"the input length exceeds the context length", "context_length_exceeded", "",
	},
	{
		"Ollama, its own API", live.OpenAI, 400, `{"error":"registry.ollama.ai/library/gemma:2b does not support tools"}`,
		"registry.ollama.ai/library/gemma:2b does not support tools", "invalid_parameter", "",
	},
	{
		"LM Studio", live.OpenAI, 400,
		`{"error":"Trying to keep the first 4730 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough. Try to load the model with a larger context length, or provide a shorter input"}`,
		"Trying to keep the first 4730 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough. Try to load the model with a larger context length, or provide a shorter input", "context_length_exceeded", "",
	},
	{
		"Anthropic", live.Anthropic, 400,
		`{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"},"request_id":"req_011"}`,
		"prompt is too long: 208310 tokens > 200000 maximum", "context_length_exceeded", "",
	},
	{
		"Anthropic, with the output", live.Anthropic, 400,
		"{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or `max_tokens` and try again\"}}",
		"input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or `max_tokens` and try again", "context_length_exceeded", "",
	},
	{
		"Anthropic, too many bytes", live.Anthropic, 413, `{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}`,
		"Request exceeds the maximum size", "invalid_parameter", "",
	},
	{
		"a proxy before Anthropic", live.Anthropic, 400, `{"detail":"model is not allowed for this team"}`,
		"model is not allowed for this team", "invalid_parameter", "",
	},
	{
		"Gemini", live.Gemini, 400,
		`{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}`,
		"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", "context_length_exceeded", "",
	},
	{"a proxy before Gemini", live.Gemini, 400, "upstream request rejected", "upstream request rejected", "invalid_parameter", ""},
	{
		"Cohere", live.Cohere, 400,
		`{"id":"1","message":"too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000. Try using a shorter prompt."}`,
		"too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000. Try using a shorter prompt.", "context_length_exceeded", "",
	},
	{
		"Mistral", live.OpenAI, 400,
		`{"object":"error","message":"Prompt contains 42000 tokens and 0 draft tokens, too large for model with 32768 maximum context length","type":"invalid_request_prompt","param":null,"code":"3051","raw_status_code":400}`,
		"Prompt contains 42000 tokens and 0 draft tokens, too large for model with 32768 maximum context length", "context_length_exceeded", "",
	},
	{
		"Mistral, another number", live.OpenAI, 400,
		`{"object":"error","message":"Invalid model: x","type":"invalid_model","param":null,"code":"1500","raw_status_code":400}`,
		"Invalid model: x", "1500", "",
	},
	{
		"Mistral, fields", live.OpenAI, 422,
		`{"object":"error","message":{"detail":[{"type":"missing","loc":["body","messages",0,"role"],"msg":"Field required","input":{"content":"my own words"}}]},"type":"invalid_request_error","param":null,"code":null,"raw_status_code":422}`,
		"messages[0].role: Field required", "invalid_parameter", "messages[0].role",
	},
	{"FastAPI", live.OpenAI, 400, `{"detail":"Model m is not loaded"}`, "Model m is not loaded", "invalid_parameter", ""},
	{
		"FastAPI, fields", live.OpenAI, 422,
		`{"detail":[{"type":"less_than_equal","loc":["body","temperature"],"msg":"Input should be less than or equal to 2","input":3,"ctx":{"le":2.0}},{"type":"missing","loc":["body","messages"],"msg":"Field required","input":{"model":"m"}}]}`,
		"temperature: Input should be less than or equal to 2; messages: Field required", "invalid_parameter", "temperature",
	},
	{
		"FastAPI, which quotes more than is read", live.OpenAI, 422,
		`{"detail":[{"type":"missing","loc":["body","messages"],"msg":"Field required","input":{"text":"` + strings.Repeat("word ", 20_000) + `"}}]}`,
		"messages: Field required", "invalid_parameter", "messages",
	},
	{"DeepInfra", live.OpenAI, 400, `{"detail":{"error":"inference prohibited, please enter a payment method"}}`, "inference prohibited, please enter a payment method", "invalid_parameter", ""},
	{"Bedrock", live.OpenAI, 400, `{"message":"Input is too long for requested model."}`, "Input is too long for requested model.", "context_length_exceeded", ""},
	{
		"xAI", live.OpenAI, 400,
		`{"code":"Client specified an invalid argument","error":"This model's maximum prompt length is 131072 but the request contains 150000 tokens."}`,
		"This model's maximum prompt length is 131072 but the request contains 150000 tokens.", "context_length_exceeded", "",
	},
	{
		"OpenRouter", live.OpenAI, 400,
		`{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"This endpoint's maximum context length is 8192 tokens.\",\"code\":\"context_length_exceeded\"}}","provider_name":"x"}},"user_id":"user_1"}`,
		"Provider returned error: This endpoint's maximum context length is 8192 tokens.", "context_length_exceeded", "",
	},
	{"Cloudflare", live.OpenAI, 400, `{"errors":[{"message":"AiError: Bad input","code":5006}],"success":false,"result":{},"messages":[]}`, "AiError: Bad input", "5006", ""},
	{"Spring", live.OpenAI, 400, `{"timestamp":"2026-01-01T00:00:00Z","status":400,"error":"Bad Request","message":"n must be 1","path":"/v1"}`, "n must be 1", "invalid_parameter", ""},
	{"problem+json", live.OpenAI, 400, `{"type":"about:blank","title":"Bad Request","status":400,"detail":"stop is too long"}`, "stop is too long", "invalid_parameter", ""},
	{"nginx", live.OpenAI, 413, "<html>\r\n<head><title>413 Request Entity Too Large</title></head>\r\n<body>\r\n</body>\r\n</html>", "413 Request Entity Too Large", "invalid_parameter", ""},
	{"a server without a word", live.OpenAI, 400, ``, "the provider refused the request", "invalid_parameter", ""},
	{"a server with an empty object", live.OpenAI, 400, `{}`, "the provider refused the request", "invalid_parameter", ""},
	{"a server that sends rubbish", live.OpenAI, 400, "\x00\x01\x02", "the provider refused the request", "invalid_parameter", ""},
	{"a server that lies about money", live.OpenAI, 400, `{"error":{"message":"pay me","code":"insufficient_balance"}}`, "pay me", "invalid_parameter", ""},
	{"a server that lies about keys", live.OpenAI, 400, `{"error":{"message":"pay me","code":"unknown_provider"}}`, "pay me", "invalid_parameter", ""},
	{
		"a server that repeats its key", live.OpenAI, 400,
		`{"error":{"message":"key sk-canary-0123456789abcdef may not","code":"sk-canary-0123456789abcdef","param":"0123456789abcdef"}}`,
		"key [redacted] may not", "invalid_parameter", "[redacted]",
	},
	{
		"a server that masks its key", live.OpenAI, 400, `{"detail":"Incorrect API key provided: sk-can*********cdef. It begins with sk-canary-0."}`,
		"Incorrect API key provided: [redacted]. It begins with [redacted].", "invalid_parameter", "",
	},
}

// refusedBy asks a model of a provider that refuses, over a real connection, and returns what the caller is sent.
func refusedBy(t *testing.T, p live.Protocol, status int, body string, log *slog.Logger) (int, []byte, edge.Refusal) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	endpoint, ask, kind := request.Chat, plainRequest, live.Chat
	if p == live.Cohere {
		endpoint, ask, kind = request.Rerank, `{"model":"m","query":"q","documents":["a"]}`, live.Rerank
	}
	provider := &live.Provider{Name: "p", Protocol: p, BaseURL: server.URL, Configured: true, APIKey: secret.New("sk-canary-0123456789abcdef")}
	m := model("m", func(m *live.Model) { m.Provider, m.Kind = provider, kind })
	fleet, err := upstream.NewFleet(live.NewCatalog([]*live.Provider{provider}, []*live.Model{m}), protocol.Upstream(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer fleet.Sender(m).Close()
	b := newBench(t)
	b.Fleet = func() *upstream.Fleet { return fleet }
	if log != nil {
		b.Log = log
	}
	_, err = b.askFrom(t.Context(), endpoint, ask)
	f := fault.From(err)
	if f == nil {
		t.Fatalf("%d %s was no refusal", status, body)
	}
	sent := edge.Event("req_1", f)
	var told edge.Envelope
	if err := json.Unmarshal(sent, &told); err != nil {
		t.Fatal(err)
	}
	return f.Status, sent, told.Error
}

func TestACallerReadsTheProvidersOwnWords(t *testing.T) {
	for _, r := range refusals {
		t.Run(r.server, func(t *testing.T) {
			var log strings.Builder
			status, sent, told := refusedBy(t, r.protocol, r.status, r.body, slog.New(slog.NewTextHandler(&log, nil)))
			param := ""
			if told.Param != nil {
				param = *told.Param
			}
			if status != http.StatusBadRequest || told.Type != fault.TypeInvalid || told.Code == nil {
				t.Fatalf("%d %s", status, sent)
			}
			if told.Message != r.message || *told.Code != r.code || param != r.param {
				t.Errorf("told %q, %q about %q; want %q, %q about %q", told.Message, *told.Code, param, r.message, r.code, r.param)
			}
			if direct := r.body; recognizedByLiteLLM(direct) && !recognizedByLiteLLM(string(sent)) {
				t.Errorf("litellm, and with it aider, recognizes a context overflow in %s and not in %s", direct, sent)
			}
			if (r.code == "context_length_exceeded") != recognizedByLangChain(string(sent)) {
				t.Errorf("LangChain: %s", sent)
			}
			if logged := log.String(); !strings.Contains(logged, r.message[:6]) && r.message != "the provider refused the request" {
				t.Errorf("the log says %s", logged)
			}
		})
	}
}

// recognizedByLiteLLM reports whether litellm takes an error for a context overflow: by these words in its text.
func recognizedByLiteLLM(text string) bool {
	text = strings.ToLower(text)
	for _, words := range []string{
		"exceed context limit", "this model's maximum context length is", "string too long. expected a string with maximum length",
		"model's maximum context limit", "is longer than the model's context length", "input tokens exceed the configured limit",
		"`inputs` tokens + `max_new_tokens` must be", "exceeds the available context size", "exceeds the maximum number of tokens allowed",
	} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}

// recognizedByLangChain reports whether LangChain's client for OpenAI takes an error for a context overflow.
func recognizedByLangChain(text string) bool {
	return strings.Contains(text, "context_length_exceeded") || strings.Contains(text, "Input tokens exceed the configured limit")
}

// What a provider says about an account is for the owner of the account.
func TestWordsAboutAnAccountReachItsOwnerAlone(t *testing.T) {
	const words = "Rate limit reached in organization org-canary"
	for _, status := range []int{401, 402, 403, 404, 429, 500} {
		b := newBench(t)
		b.answer = answers(status, `{"error":{"message":"`+words+`"}}`)
		_, err := b.ask(plainRequest)
		if f := fault.From(err); f == nil || strings.Contains(f.Message, "org-canary") {
			t.Errorf("%d with the server's key: %v", status, f)
		}
		b.Keys.Put(home, "p", &live.OwnKey{Key: secret.New("sk-own-canary")})
		_, err = b.ask(plainRequest)
		if f := fault.From(err); f == nil || !strings.Contains(f.Message, words) {
			t.Errorf("%d with the workspace's own key: %v", status, f)
		}
	}
}

// A provider chooses the codes, so that they must not become the values of a metric's label.
func TestAProvidersCodeIsNoLabelOfAMetric(t *testing.T) {
	b := newBench(t)
	b.answer = answers(http.StatusBadRequest, `{"error":{"message":"no","code":"word_of_the_provider"}}`)
	_, err := b.ask(plainRequest)
	if f := fault.From(err); f == nil || f.ProviderCode != "word_of_the_provider" || refusalCode(err) != "invalid_parameter" {
		t.Errorf("%+v", f)
	}
}
