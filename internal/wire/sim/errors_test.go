package sim

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"sovereign/internal/wire/upstream"
)

func TestAnInvalidParameterIsRefusedByName(t *testing.T) {
	user := `{"model":"m","messages":[{"role":"user","content":"x"}],`
	embed := `{"model":"m","input":"x",`
	for _, c := range []struct{ param, body string }{
		{"", ``},
		{"", `{`},
		{"", `[]`},
		{"", `"x"`},
		{"", user + `"n":1,"n":2}`},
		{"", "{\"model\":\"\xff\"}"},
		{"model", `null`},
		{"model", `{}`},
		{"model", `{"model":5}`},
		{"messages", `{"model":"m"}`},
		{"messages", `{"model":"m","messages":[]}`},
		{"messages", `{"model":"m","messages":"x"}`},
		{"messages[0]", `{"model":"m","messages":["x"]}`},
		{"messages[0].role", `{"model":"m","messages":[{"content":"x"}]}`},
		{"messages[0].role", `{"model":"m","messages":[{"role":5,"content":"x"}]}`},
		{"messages[1].role", `{"model":"m","messages":[{"role":"user","content":"x"},{"role":"robot","content":"x"}]}`},
		{"messages[0].content", `{"model":"m","messages":[{"role":"user"}]}`},
		{"messages[0].content", `{"model":"m","messages":[{"role":"user","content":null}]}`},
		{"messages[0].content", `{"model":"m","messages":[{"role":"user","content":5}]}`},
		{"messages[0].content", `{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[]}]}`},
		{"messages[0].content", `{"model":"m","messages":[{"role":"user","content":[{"type":"smell"}]}]}`},
		{"messages[0].content", `{"model":"m","messages":[{"role":"user","content":[{"type":"text"}]}]}`},
		{"messages[0].content[0].text", `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":5}]}]}`},
		{"messages[0].tool_call_id", `{"model":"m","messages":[{"role":"tool","content":"x"}]}`},
		{"n", user + `"n":0}`},
		{"n", user + `"n":129}`},
		{"n", user + `"n":"1"}`},
		{"max_tokens", user + `"max_tokens":0}`},
		{"max_tokens", user + `"max_tokens":1.5}`},
		{"max_completion_tokens", user + `"max_completion_tokens":-1}`},
		{"stream", user + `"stream":"yes"}`},
		{"stream_options", user + `"stream_options":{"include_usage":true}}`},
		{"stream_options.include_usage", user + `"stream":true,"stream_options":{"include_usage":1}}`},
		{"stop[0]", user + `"stop":[1]}`},
		{"stop", user + `"stop":["a","b","c","d","e"]}`},
		{"tools", user + `"tools":[` + strings.Repeat(`{},`, 128) + `{}]}`},
		{"reasoning_effort", user + `"reasoning_effort":"heroic"}`},
		{"logprobs", user + `"logprobs":true,"top_logprobs":2}`},
		{"functions", user + `"functions":[]}`},
		{"tools[0].type", user + `"tools":[{"type":"custom"}]}`},
		{"tools[0].function.name", user + `"tools":[{"type":"function","function":{"name":"a b"}}]}`},
		{"tools[0].function.name", user + `"tools":[{"type":"function","function":{"name":5}}]}`},
		{"tools[0].function.parameters", user + `"tools":[{"type":"function","function":{"name":"a","parameters":[]}}]}`},
		{"tool_choice", user + `"tool_choice":"required"}`},
		{"tool_choice", user + `"tool_choice":"whatever"}`},
		{"tool_choice", user + `"tool_choice":{"type":"function","function":{"name":"f"}}}`},
		{"tool_choice", user + `"tool_choice":{"type":"allowed_tools"}}`},
		{"response_format.type", user + `"response_format":{"type":"xml"}}`},
		{"response_format.json_schema", user + `"response_format":{"type":"json_schema"}}`},
		{"response_format.json_schema.name", user + `"response_format":{"type":"json_schema","json_schema":{}}}`},
		{"response_format.json_schema.schema", user + `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"string","pattern":"a+"}}}}`},
		{"tools[0].function.parameters", user + `"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"lie"}}}],"tool_choice":"required"}`},
		{"sim", user + `"sim":5}`},
		{"sim.colour", user + `"sim":{"colour":"red"}}`},
		{"sim.seed", user + `"sim":{"seed":-1}}`},
		{"sim.latency_ms", user + `"sim":{"latency_ms":"1"}}`},
		{"sim.latency_ms", user + `"sim":{"latency_ms":600001}}`},
		{"sim.chunk_ms", user + `"sim":{"chunk_ms":1.5}}`},
		{"sim.chunks", user + `"sim":{"chunks":-1}}`},
		{"sim.tokens", user + `"sim":{"tokens":0}}`},
		{"sim.quality", user + `"sim":{"quality":1.1}}`},
		{"sim.sensitivity", user + `"sim":{"sensitivity":-0.1}}`},
		{"sim.specificity", user + `"sim":{"specificity":true}}`},
		{"sim.error_rate", user + `"sim":{"error_rate":2}}`},
		{"sim.fail", user + `"sim":{"fail":"explode"}}`},
		{"sim.fail", user + `"sim":{"fail":["die"]}}`},
		{"sim.fail_after", user + `"sim":{"fail_after":-1}}`},
		{"sim.usage", user + `"sim":{"usage":"some"}}`},
		{"sim.usage.prompt_tokens", user + `"sim":{"usage":{"prompt_tokens":-1}}}`},
		{"sim.usage.total_tokens", user + `"sim":{"usage":{"total_tokens":1}}}`},
		{"input", "embed " + `{"model":"m"}`},
		{"model", "embed " + `{"input":"x"}`},
		{"input", "embed " + `{"model":"m","input":""}`},
		{"input", "embed " + `{"model":"m","input":[]}`},
		{"input", "embed " + `{"model":"m","input":[[]]}`},
		{"input", "embed " + `{"model":"m","input":["a",""]}`},
		{"input", "embed " + `{"model":"m","input":["a",1]}`},
		{"input", "embed " + `{"model":"m","input":[-1]}`},
		{"input", "embed " + `{"model":"m","input":{"text":"a"}}`},
		{"dimensions", "embed " + embed + `"dimensions":0}`},
		{"dimensions", "embed " + embed + `"dimensions":3073}`},
		{"dimensions", "embed " + embed + `"dimensions":"1"}`},
		{"encoding_format", "embed " + embed + `"encoding_format":"int8"}`},
		{"sim.chunk_ms", "embed " + embed + `"sim":{"chunk_ms":"1"}}`},
		{"input", "embed " + `{"model":"m","input":"` + strings.Repeat("many words ", 4000) + `"}`},
		{"messages", `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("many words ", 50000) + `"}]}`},
	} {
		m, body, param := model("sim/chat"), c.body, c.param
		if rest, ok := strings.CutPrefix(body, "embed "); ok {
			m, body = model("sim/embedding"), rest
		}
		response, text, err := send(t, New(), m, body)
		if err != nil || response.Status != http.StatusBadRequest || response.ContentType != jsonType {
			t.Errorf("%.200s: %d %.200s, %v", body, response.Status, text, err)
			continue
		}
		e := envelope(t, text)
		got := ""
		if e.Param != nil {
			got = *e.Param
		}
		if got != param || e.Type != invalidRequest || !strings.Contains(e.Message, param) && e.Code != nil && *e.Code != "context_length_exceeded" {
			t.Errorf("%.200s: param %q, not %q: %s", body, got, param, text)
		}
	}
}

func TestNullIsTheSameAsAbsent(t *testing.T) {
	plain := ask(t, "sim/chat", chatWith(""))
	nulls := `"n":null,"seed":null,"max_tokens":null,"max_completion_tokens":null,"stop":null,"stream":null,"stream_options":null,"tools":null,` +
		`"tool_choice":null,"parallel_tool_calls":null,"response_format":null,"reasoning_effort":null,"logprobs":null,"audio":null,` +
		`"sim":{"seed":null,"fail":null,"quality":null,"usage":null}`
	if got := ask(t, "sim/chat", chatWith(nulls)); got != plain {
		t.Errorf("%s\n%s", got, plain)
	}
	if got := ask(t, "sim/chat", chatWith(`"sim":null`)); got != plain {
		t.Errorf("%s\n%s", got, plain)
	}
	if got := ask(t, "sim/embedding", `{"model":"m","input":"x","dimensions":null,"encoding_format":null,"sim":null}`); got != ask(t, "sim/embedding", `{"model":"m","input":"x"}`) {
		t.Error(got)
	}
}

func TestAnUnknownPathOrWrongModelKindIsRefused(t *testing.T) {
	for path, status := range map[string]int{"/images/generations": http.StatusNotFound, "/embeddings": http.StatusBadRequest} {
		r := &upstream.Request{Model: model("sim/chat"), Path: path, Body: [][]byte{[]byte(`{"model":"m","input":"x"}`)}}
		response, err := New().Send(context.Background(), r)
		if err != nil || response.Status != status {
			t.Fatalf("%s: %+v, %v", path, response, err)
		}
		text, _ := io.ReadAll(response.Body)
		envelope(t, string(text))
	}
}
