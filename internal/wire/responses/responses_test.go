package responses_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/live"
	"sovereign/internal/text/sse"
	"sovereign/internal/wire/responses"
	"sovereign/internal/wire/upstream"
)

// testDialect has counting ids and a fixed clock.
func testDialect() responses.Dialect {
	n := 0
	return responses.Dialect{
		New: func(prefix string) string { n++; return fmt.Sprintf("%s_%02d", prefix, n) },
		Now: func() time.Time { return time.Unix(1_700_000_000, 0) },
	}
}

func request(body string, stream bool) *upstream.Request {
	return &upstream.Request{
		Model: &live.Model{ID: "p/m", Upstream: "m", Provider: &live.Provider{Name: "p", Protocol: live.OpenAI}},
		Path:  upstream.ResponsesPath, Body: [][]byte{[]byte(body[:len(body)/2]), []byte(body[len(body)/2:])}, Stream: stream,
	}
}

// translate returns the chat completion that a body becomes.
func translate(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, body string,
) []byte {
	t.Helper()
	x, err := testDialect().NewExchange(request(body, false))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	path, wire := x.Request()
	if path != upstream.ChatPath {
		t.Fatalf("it goes to %s", path)
	}
	return wire
}

// canonical returns JSON in canonical form.
func canonical(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, text []byte,
) string {
	t.Helper()
	value := jsontext.Value(bytes.Clone(text))
	if err := value.Canonicalize(jsontext.AllowInvalidUTF8(true)); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return string(value)
}

// provider answers every request with the same.
type provider struct {
	kind  string
	body  io.Reader
	asked *upstream.Request
}

func (p *provider) Close() {}

func (p *provider) Send(_ context.Context, r *upstream.Request) (*upstream.Response, error) {
	p.asked = r
	return &upstream.Response{Status: 200, ContentType: p.kind, Body: io.NopCloser(p.body)}, nil
}

func sendThrough(p *provider, r *upstream.Request) (string, error) {
	sender := upstream.NewTranslator(testDialect(), p, func(*upstream.Request) bool { return true })
	response, err := sender.Send(context.Background(), r)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// stream returns what the caller reads when the provider's bytes arrive in these pieces.
func stream(body string, pieces ...string) (string, error) {
	var readers []io.Reader
	for _, chunk := range pieces {
		readers = append(readers, strings.NewReader(chunk))
	}
	return sendThrough(&provider{kind: "text/event-stream", body: io.MultiReader(readers...)}, request(body, true))
}

func translateAnswer(body, answer string) (string, error) {
	return sendThrough(&provider{kind: "application/json", body: strings.NewReader(answer)}, request(body, false))
}

// chunks returns a chat stream.
func chunks(all ...string) string {
	var b strings.Builder
	for _, one := range all {
		b.WriteString("data: " + one + "\n\n")
	}
	return b.String()
}

func chunk(delta, finish string) string {
	if finish != "null" {
		finish = `"` + finish + `"`
	}
	return `{"id":"c","object":"chat.completion.chunk","created":5,"model":"m-1","choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + `}],"usage":null}`
}

const (
	counted = `{"id":"c","object":"chat.completion.chunk","created":5,"model":"m-1","choices":[],"usage":` + spent + `}`
	spent   = `{"prompt_tokens":20,"completion_tokens":7,"total_tokens":999,"prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":3},"completion_tokens_details":{"reasoning_tokens":2}}`
	end     = "[DONE]"
)

func completion(message, finish, usage string) string {
	return `{"id":"c","object":"chat.completion","created":5,"model":"m-1","choices":[{"index":0,"message":` + message + `,"logprobs":null,"finish_reason":"` + finish + `"}],"usage":` + usage + `}`
}

// recording is an answer, both streamed and complete.
type recording struct {
	chunks []string
	whole  string
	last   string // type of the last event
}

var recordings = map[string]recording{
	"text": {
		chunks: []string{
			chunk(`{"role":"assistant","content":""}`, "null"), chunk(`{"content":"Hel"}`, "null"), chunk(`{"content":"lo ☕","decoration":{"x":1}}`, "null"),
			chunk(`{}`, "stop"), counted, end,
		},
		whole: completion(`{"role":"assistant","content":"Hello ☕","refusal":null}`, "stop", spent), last: "response.completed",
	},
	"reasoning and text": {
		chunks: []string{
			chunk(`{"role":"assistant","reasoning_content":"Let me "}`, "null"),
			chunk(`{"reasoning_content":"think.","reasoning_details":[{"type":"reasoning.text","text":"Let me think.","index":0}]}`, "null"),
			chunk(`{"reasoning_details":[{"type":"reasoning.text","signature":"sig","index":0}]}`, "null"),
			chunk(`{"reasoning_details":[{"type":"reasoning.encrypted","data":"zzz","index":1}]}`, "null"),
			chunk(`{"content":"Yes."}`, "null"), chunk(`{}`, "stop"), counted, end,
		},
		whole: completion(`{"role":"assistant","content":"Yes.","reasoning_content":"Let me think.","reasoning_details":[{"type":"reasoning.text","text":"Let me think.","signature":"sig"},{"type":"reasoning.encrypted","data":"zzz"}]}`, "stop", spent),
		last:  "response.completed",
	},
	"parallel tools, interleaved": {
		chunks: []string{
			chunk(`{"role":"assistant","content":"On it."}`, "null"),
			chunk(`{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"weather","arguments":""},"extra_content":{"google":{"thought_signature":"gsig"}}}]}`, "null"),
			chunk(`{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"time","arguments":""}}]}`, "null"),
			chunk(`{"tool_calls":[{"index":1,"function":{"arguments":"{\"zone\":"}},{"index":0,"function":{"arguments":"{\"city\":"}}]}`, "null"),
			chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"\"Bern\"}"}}]}`, "null"),
			chunk(`{"tool_calls":[{"index":1,"function":{"arguments":"\"CET\"}"}}]}`, "null"),
			chunk(`{}`, "tool_calls"), counted, end,
		},
		whole: completion(`{"role":"assistant","content":"On it.","tool_calls":[{"id":"call_a","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Bern\"}"},"extra_content":{"google":{"thought_signature":"gsig"}}},{"id":"call_b","type":"function","function":{"name":"time","arguments":"{\"zone\":\"CET\"}"}}]}`, "tool_calls", spent),
		last:  "response.completed",
	},
	"refusal": {
		chunks: []string{
			chunk(`{"role":"assistant","content":null,"refusal":"I "}`, "null"), chunk(`{"refusal":"won't."}`, "null"), chunk(`{}`, "stop"), counted, end,
		},
		whole: completion(`{"role":"assistant","content":null,"refusal":"I won't."}`, "stop", spent), last: "response.completed",
	},
	"text, then a refusal": {
		chunks: []string{chunk(`{"content":"Well, "}`, "null"), chunk(`{"refusal":"no."}`, "null"), chunk(`{}`, "stop"), counted, end},
		whole:  completion(`{"role":"assistant","content":"Well, ","refusal":"no."}`, "stop", spent), last: "response.completed",
	},
	"length": {
		chunks: []string{chunk(`{"content":"Once upon"}`, "null"), chunk(`{}`, "length"), counted, end},
		whole:  completion(`{"role":"assistant","content":"Once upon"}`, "length", spent), last: "response.incomplete",
	},
	"content filter": {
		chunks: []string{chunk(`{"content":"How to"}`, "null"), chunk(`{}`, "content_filter"), counted, end},
		whole:  completion(`{"role":"assistant","content":"How to"}`, "content_filter", spent), last: "response.incomplete",
	},
	"a reason that nobody knows": {
		chunks: []string{chunk(`{"content":"Oh"}`, "null"), chunk(`{}`, "meteor"), counted, end},
		whole:  completion(`{"role":"assistant","content":"Oh"}`, "meteor", spent), last: "response.failed",
	},
	"usage missing": {
		chunks: []string{chunk(`{"role":"assistant"}`, "null"), chunk(`{"content":"Hi"}`, "stop"), end},
		whole:  completion(`{"role":"assistant","content":"Hi"}`, "stop", "null"), last: "response.completed",
	},
	"nothing": {
		chunks: []string{chunk(`{"role":"assistant","content":""}`, "null"), chunk(`{}`, "stop"), counted, end},
		whole:  completion(`{"role":"assistant","content":""}`, "stop", spent), last: "response.completed",
	},
	"cited text": {
		chunks: []string{
			chunk(`{"role":"assistant","content":"","annotations":[`+cited+`],"images":[]}`, "null"), chunk(`{"content":"So it is"}`, "null"),
			chunk(`{"annotations":[`+cited+`]}`, "null"), chunk(`{}`, "stop"), counted, end,
		},
		whole: completion(`{"role":"assistant","content":"So it is","annotations":[`+cited+`,`+cited+`],"images":null}`, "stop", spent), last: "response.completed",
	},
	"citations of nothing": {
		chunks: []string{chunk(`{"annotations":[`+cited+`]}`, "null"), chunk(`{}`, "stop"), counted, end},
		whole:  completion(`{"role":"assistant","content":null,"annotations":[`+cited+`]}`, "stop", spent), last: "response.completed",
	},
	"error mid-stream": {
		chunks: []string{chunk(`{"content":"Hel"}`, "null"), `{"error":{"message":"too much","type":"rate_limit_error","code":429,"param":null}}`},
		last:   "error",
	},
	"error at once": {
		chunks: []string{`{"error":{"message":"no such thing","type":"invalid_request_error","code":"bad","param":"input"}}`},
		last:   "error",
	},
}

// cited is an annotation in chat's shape.
const cited = `{"type":"url_citation","url_citation":{"start_index":0,"end_index":2,"url":"https://x","title":"X"}}`

// fullRequest sets all parameters that a response echoes.
const fullRequest = `{"model":"m","input":"Hi","instructions":"Be brief.","temperature":0.5,"top_p":0.9,"max_output_tokens":100,
 "tools":[{"type":"function", "name":"weather","description":"of a city","parameters":{"type":"object", "properties":{}},"strict":true},{"type":"function","name":"time","parameters":null,"strict":null}],
 "tool_choice":{"type":"function","name":"weather"},"parallel_tool_calls":false,"text":{"format":{"type":"json_object"},"verbosity":"low"},
 "reasoning":{"effort":"low","summary":"auto"},"metadata":{"b":"2","a":"1"},"user":"u","safety_identifier":"s","prompt_cache_key":"k",
 "store":false,"background":false,"truncation":"disabled","service_tier":"auto","include":["reasoning.encrypted_content"],"top_logprobs":0,
 "previous_response_id":null,"conversation":null,"prompt":null,"max_tool_calls":null,"stream_options":{"include_obfuscation":false}}`

// minimalRequest sets none of them.
const minimalRequest = `{"model":"m","input":"Hi"}`

// receivedEvent is an event as a client reads it.
type receivedEvent struct {
	name string
	data []byte
}

func receivedEvents(t *testing.T, text string) (all []receivedEvent) {
	t.Helper()
	var r sse.Reader
	if err := r.Feed([]byte(text), func(e sse.Event) error {
		all = append(all, receivedEvent{e.Name, bytes.Clone(e.Data)})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func member[T any](t *testing.T, text []byte, name string) (value T) {
	t.Helper()
	var all map[string]jsontext.Value
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(all[name], &value); err != nil {
		t.Fatalf("%s of %s: %v", name, text, err)
	}
	return value
}

func faultOf(err error) *fault.Fault {
	var f *fault.Fault
	errors.As(err, &f)
	return f
}
