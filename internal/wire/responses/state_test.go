package responses_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"sovereign/internal/live"
)

// secondTurn returns the chat request of a second turn to provider to, after an answer of provider of.
func secondTurn(t *testing.T, answer string, of, to live.Provider) string {
	t.Helper()
	first := request(minimalRequest, false)
	first.Model.Provider = &of
	kind := "application/json"
	if first.Stream = strings.HasPrefix(answer, "data: "); first.Stream {
		kind = "text/event-stream"
	}
	text, err := sendThrough(&provider{kind: kind, body: strings.NewReader(answer)}, first)
	if err != nil {
		t.Fatal(err)
	}
	response := []byte(text)
	if first.Stream {
		all := receivedEvents(t, text)
		response = member[jsontext.Value](t, all[len(all)-1].data, "response")
	}
	second := request(`{"model":"m","input":`+string(member[jsontext.Value](t, response, "output"))+`}`, false)
	second.Model.Provider = &to
	x, err := testDialect().NewExchange(second)
	if err != nil {
		t.Fatal(err)
	}
	_, wire := x.Request()
	return canonical(t, member[jsontext.Value](t, wire, "messages"))
}

func TestAProviderGetsItsOwnStateBack(t *testing.T) {
	const router = `{"role":"assistant","content":"a","reasoning":"hm","reasoning_details":[
		{"type":"reasoning.summary","id":"rs_1","summary":"hm","format":"openai-responses-v1"},
		{"type":"reasoning.encrypted","id":"rs_1","data":"x","format":"openai-responses-v1"},
		{"type":"reasoning.text","id":null,"text":"t","signature":"s","format":"anthropic-claude-v1"}]}`
	const routed = `"reasoning_details":[
		{"type":"reasoning.summary","id":"rs_1","summary":"hm","format":"openai-responses-v1"},
		{"type":"reasoning.encrypted","id":"rs_1","data":"x","format":"openai-responses-v1"},
		{"type":"reasoning.text","text":"t","signature":"s","format":"anthropic-claude-v1"}]`
	const streamed = `{"reasoning":"h","reasoning_details":[{"type":"reasoning.summary","summary":"h","format":"openai-responses-v1","index":0}]}`
	const more = `{"reasoning":"m","reasoning_details":[{"type":"reasoning.summary","id":"rs_1","summary":"m","index":0}]}`
	const google = `{"role":"assistant","content":"a","reasoning_content":"hm","reasoning_details":[{"type":"reasoning.text","text":"hm","format":"google-gemini-v1"}],"extra_content":{"google":{"thought_signature":"g"}},
		"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"h"}}}]}`
	const called = `"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}`
	openRouter, groq := live.Provider{Name: "openrouter", Protocol: live.OpenAI}, live.Provider{Name: "groq", Protocol: live.OpenAI}
	gemini, deepSeek := live.Provider{Name: "google", Protocol: live.Gemini}, live.Provider{Name: "deepseek", Protocol: live.OpenAI}
	for name, c := range map[string]struct {
		answer string
		of, to live.Provider
		want   string
	}{
		"what it vouches for": {completion(router, "stop", spent), openRouter, openRouter, `[{"role":"assistant","content":"a",` + routed + `}]`},
		"in pieces": {
			chunks(chunk(streamed, "null"), chunk(more, "null"), chunk(`{"content":"a"}`, "stop"), end), openRouter, openRouter,
			`[{"role":"assistant","content":"a","reasoning_details":[{"type":"reasoning.summary","id":"rs_1","summary":"hm","format":"openai-responses-v1"}]}]`,
		},
		"not what another does": {completion(router, "stop", spent), openRouter, groq, `[{"role":"assistant","content":"a"}]`},
		"but where its wire says whose it is": {
			completion(router, "stop", spent), openRouter, gemini, `[{"role":"assistant","content":"a","reasoning_content":"hm",` + routed + `}]`,
		},
		"not the text of its thoughts": {completion(`{"content":"a","reasoning":"hm"}`, "stop", spent), groq, groq, `[{"role":"assistant","content":"a"}]`},
		"but where it calls it so": {
			completion(`{"content":"a","reasoning_content":"hm"}`, "stop", spent), deepSeek, deepSeek, `[{"role":"assistant","content":"a","reasoning_content":"hm"}]`,
		},
		"and another does not":   {completion(`{"content":"a","reasoning_content":"hm"}`, "stop", spent), deepSeek, groq, `[{"role":"assistant","content":"a"}]`},
		"signatures":             {completion(google, "tool_calls", spent), gemini, gemini, `[` + google + `]`},
		"not others' signatures": {completion(google, "tool_calls", spent), gemini, groq, `[{"role":"assistant","content":"a",` + called + `}]}]`},
	} {
		if d := cmp.Diff(canonical(t, []byte(c.want)), secondTurn(t, c.answer, c.of, c.to)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestAThoughtKeepsItsPosition(t *testing.T) {
	gemini := live.Provider{Name: "google", Protocol: live.Gemini}
	const sealed, thought, mark = `{"type":"reasoning.encrypted","data":"s","format":"google-gemini-v1","place":{"text":1}`, `{"type":"reasoning.text","text":"t","format":"google-gemini-v1","place":{"text":2}`, `{"type":"reasoning.text","format":"google-gemini-v1","place":{"text":3,"calls":1}`
	const call = `"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]`
	whole := `{"role":"assistant","content":"abcd","reasoning_content":"t","reasoning_details":[` + sealed + `},` + thought + `},` + mark + `}],` + call + `}`
	if d := cmp.Diff(canonical(t, []byte(`[`+whole+`]`)), secondTurn(t, completion(whole, "stop", spent), gemini, gemini)); d != "" {
		t.Error(d)
	}
	streamed := chunks(
		chunk(`{"content":"a"}`, "null"), chunk(`{"content":"b","reasoning_details":[`+sealed+`,"index":0}]}`, "null"),
		chunk(`{"reasoning_content":"t","reasoning_details":[`+thought+`,"index":1}]}`, "null"), chunk(`{"content":"c"}`, "null"),
		chunk(`{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]}`, "null"),
		chunk(`{"content":"d","reasoning_details":[`+mark+`,"index":2}]}`, "stop"), end)
	want := `[{"role":"assistant","content":"a","reasoning_details":[` + sealed + `}]},
		{"role":"assistant","content":"b","reasoning_content":"t","reasoning_details":[{"type":"reasoning.text","text":"t","format":"google-gemini-v1","place":{"text":1}}]},
		{"role":"assistant","content":[{"type":"text","text":"c"},{"type":"text","text":"d"}],"reasoning_details":[{"type":"reasoning.text","format":"google-gemini-v1","place":{"text":1,"calls":1}}],` + call + `}]`
	if d := cmp.Diff(canonical(t, []byte(want)), secondTurn(t, streamed, gemini, gemini)); d != "" {
		t.Error(d)
	}
}
