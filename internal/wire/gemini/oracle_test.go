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

// dialect has a fixed clock.
var dialect = gemini.Dialect{Now: func() time.Time { return time.Unix(1_700_000_000, 0) }}

// Models since Gemini 3 and before.
const (
	now    = "gemini-3-flash"
	before = "gemini-2.5-flash"
)

// generateRequest is a request in the types of Google's SDK.
type generateRequest struct {
	Contents          []*genai.Content        `json:"contents"`
	SystemInstruction *genai.Content          `json:"systemInstruction"`
	Tools             []*genai.Tool           `json:"tools"`
	ToolConfig        *genai.ToolConfig       `json:"toolConfig"`
	GenerationConfig  *genai.GenerationConfig `json:"generationConfig"`
	SafetySettings    []*genai.SafetySetting  `json:"safetySettings"`
}

// tester is a *testing.T or a *rapid.T.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// decodeStrict decodes what the SDK knows, and fails for other members.
func decodeStrict(t tester, body []byte, into any) {
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

// translate returns a translated chat request in the SDK's types.
func translate(t tester, model, body string) *generateRequest {
	t.Helper()
	e, err := dialect.NewExchange(request(model, upstream.ChatPath, body, false))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	_, translated := e.Request()
	var r generateRequest
	decodeStrict(t, translated, &r)
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

// googleAnswer checks that the SDK's types know all of an answer, and returns it.
func googleAnswer(t tester, text string) []byte {
	t.Helper()
	type response genai.GenerateContentResponse // without the SDK's lenient reader
	decodeStrict(t, []byte(text), &response{})
	return []byte(text)
}

// translateAnswer returns the translation of an answer.
func translateAnswer(t tester, body, answer string) (chat.Answer, string) {
	t.Helper()
	e, err := dialect.NewExchange(request(now, upstream.ChatPath, body, false))
	if err != nil {
		t.Fatalf("%v", err)
	}
	text, err := e.Answer(googleAnswer(t, answer))
	if err != nil {
		t.Fatalf("%s: %v", answer, err)
	}
	var a chat.Answer
	if err := json.Unmarshal(text, &a); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return a, string(text)
}

// hello is a minimal chat request.
const hello = `{"model":"m","messages":[{"role":"user","content":"hello"}]}`

// helloWith is hello with further members.
func helloWith(members string) string { return strings.TrimSuffix(hello, "}") + "," + members + "}" }

func assertEqual(t *testing.T, got, want string) {
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
