package gemini_test

import (
	"bytes"
	stdjson "encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"google.golang.org/genai"

	"sovereign/internal/live"
	"sovereign/internal/wire/chat"
	"sovereign/internal/wire/gemini"
	"sovereign/internal/wire/upstream"
)

// dialect has a clock that stands still.
var dialect = gemini.Dialect{Now: func() time.Time { return time.Unix(1_700_000_000, 0) }}

// The models of both generations.
const (
	now    = "gemini-3-flash"
	before = "gemini-2.5-flash"
)

// A generateRequest is a request as Google's SDK knows it.
type generateRequest struct {
	Contents          []*genai.Content        `json:"contents"`
	SystemInstruction *genai.Content          `json:"systemInstruction"`
	Tools             []*genai.Tool           `json:"tools"`
	ToolConfig        *genai.ToolConfig       `json:"toolConfig"`
	GenerationConfig  *genai.GenerationConfig `json:"generationConfig"`
	SafetySettings    []*genai.SafetySetting  `json:"safetySettings"`
}

// tester is a test or a property.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// strictly reads what the SDK knows, and nothing else.
func strictly(t tester, body []byte, into any) {
	t.Helper()
	d := stdjson.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("the SDK cannot read %s: %v", body, err)
	}
}

func request(model, path, body string, stream bool) *upstream.Request {
	half := len(body) / 2
	return &upstream.Request{
		Model: &live.Model{ID: "google/" + model, Upstream: model, MaxOutput: 65536}, Path: path,
		Body: [][]byte{[]byte(body[:half]), []byte(body[half:])}, Stream: stream, ID: "req_1",
	}
}

// asked is a chat in Gemini's words, read by the SDK's types.
func asked(t tester, model, body string) *generateRequest {
	t.Helper()
	e, err := dialect.NewExchange(request(model, upstream.ChatPath, body, false))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	_, said := e.Request()
	var r generateRequest
	strictly(t, said, &r)
	return &r
}

func encode(t tester, v any) string {
	t.Helper()
	text, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		t.Fatalf("%v", err)
	}
	return string(text)
}

// generated is an answer, which the SDK's types can read, as Google would write it.
func generateResponse(t tester, text string) []byte {
	t.Helper()
	type response genai.GenerateContentResponse // without the SDK's lenient reader
	strictly(t, []byte(text), &response{})
	return []byte(text)
}

// answered is what an answer to a chat says in ours.
func answered(t tester, body, answer string) (chat.Answer, string) {
	t.Helper()
	e, err := dialect.NewExchange(request(now, upstream.ChatPath, body, false))
	if err != nil {
		t.Fatalf("%v", err)
	}
	text, err := e.Answer(generateResponse(t, answer))
	if err != nil {
		t.Fatalf("%s: %v", answer, err)
	}
	var a chat.Answer
	if err := json.Unmarshal(text, &a); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return a, string(text)
}

// hello is the smallest chat.
const hello = `{"model":"m","messages":[{"role":"user","content":"hello"}]}`

// with is hello with more members.
func with(members string) string { return strings.TrimSuffix(hello, "}") + "," + members + "}" }

func same(t *testing.T, got, want string) {
	t.Helper()
	var g, w any
	if err := stdjson.Unmarshal([]byte(got), &g); err != nil {
		t.Fatalf("%s: %v", got, err)
	}
	if err := stdjson.Unmarshal([]byte(want), &w); err != nil {
		t.Fatalf("%s: %v", want, err)
	}
	if a, b := encode(t, g), encode(t, w); a != b {
		t.Errorf("got  %s\nwant %s", a, b)
	}
}
