package responses_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/upstream"
)

// mappings are requests and the chat completions they become.
var mappings = []struct{ name, body, want string }{
	{"a text", `"input":"Hi"`, `"messages":[{"role":"user","content":"Hi"}]`},
	{"instructions", `"input":"Hi","instructions":"Be brief."`, `"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}]`},
	{"nulls", `"input":"Hi","instructions":null,"tools":null,"text":null,"reasoning":null,"tool_choice":null,"metadata":null,"include":null,"max_output_tokens":null,"stream":null,"stream_options":null,"user":null,"wish":null`, `"messages":[{"role":"user","content":"Hi"}]`},
	{
		"roles", `"input":[{"role":"system","content":"a"},{"role":"developer","content":"b"},{"type":"message","role":"user","content":"c"},{"role":"assistant","content":"d","id":"msg_1","status":"completed"}]`,
		`"messages":[{"role":"system","content":"a"},{"role":"system","content":"b"},{"role":"user","content":"c"},{"role":"assistant","content":"d"}]`,
	},
	{
		"parts", `"input":[{"role":"user","content":[{"type":"input_text","text":"see"},{"type":"input_image","image_url":"https://x/y.png","detail":"high"},{"type":"input_image","image_url":"data:image/png;base64,AA==","file_id":null},{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,AA=="},{"type":"input_audio","input_audio":{"data":"AA==","format":"wav"}}]}]`,
		`"messages":[{"role":"user","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"https://x/y.png","detail":"high"}},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}},{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,AA=="}},{"type":"input_audio","input_audio":{"data":"AA==","format":"wav"}}]}]`,
	},
	{"one part", `"input":[{"role":"user","content":[{"type":"input_text","text":"Hi"},{"type":"input_text","text":""}]}]`, `"messages":[{"role":"user","content":"Hi"}]`},
	{"no part", `"input":[{"role":"user","content":[]}]`, `"messages":[{"role":"user","content":""}]`},
	{
		"what a model said", `"input":[{"role":"user","content":"q"},{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"a","annotations":[],"logprobs":[]},{"type":"output_text","text":"b","annotations":[]}]},{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"no"}]}]`,
		`"messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"role":"assistant","refusal":"no"}]`,
	},
	{
		"calls", `"input":[{"role":"user","content":"q"},{"role":"assistant","content":"a"},{"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":"{}","status":"completed"},{"type":"function_call","call_id":"c2","name":"g","arguments":"{\"x\":1}"},{"type":"function_call_output","call_id":"c1","output":"1"},{"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"2"},{"type":"input_text","text":"3"}]},{"role":"user","content":"r"}]`,
		`"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":"{\"x\":1}"}}]},{"role":"tool","tool_call_id":"c1","content":"1"},{"role":"tool","tool_call_id":"c2","content":[{"type":"text","text":"2"},{"type":"text","text":"3"}]},{"role":"user","content":"r"}]`,
	},
	{
		"a text after calls", `"input":[{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"role":"assistant","content":"wait"},{"type":"function_call_output","call_id":"c1","output":"1"}]`,
		`"messages":[{"role":"assistant","content":"wait","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"1"}]`,
	},
	{
		"reasoning", `"input":[{"role":"user","content":"q"},{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":null},{"role":"assistant","content":"a"},{"type":"reasoning","id":"rs_2","summary":[],"content":[{"type":"reasoning_text","text":"so"}]},{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"}]`,
		`"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]}]`,
	},
	{"numbers", `"input":"Hi","max_output_tokens":5,"temperature":0,"top_p":0.5`, `"messages":[{"role":"user","content":"Hi"}],"max_tokens":5,"temperature":0,"top_p":0.5`},
	{
		"tools", `"input":"Hi","parallel_tool_calls":false,"tool_choice":"required","tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":true,"defer_loading":false},{"type":"function","name":"g","parameters":null,"strict":false}]`,
		`"messages":[{"role":"user","content":"Hi"}],"parallel_tool_calls":false,"tool_choice":"required","tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":true}},{"type":"function","function":{"name":"g","strict":false}}]`,
	},
	{"one tool", `"input":"Hi","tool_choice":{"type":"function","name":"f"}`, `"messages":[{"role":"user","content":"Hi"}],"tool_choice":{"type":"function","function":{"name":"f"}}`},
	{"no tool", `"input":"Hi","tool_choice":"none"`, `"messages":[{"role":"user","content":"Hi"}],"tool_choice":"none"`},
	{"plain text", `"input":"Hi","text":{"format":{"type":"text"}}`, `"messages":[{"role":"user","content":"Hi"}]`},
	{"an object", `"input":"Hi","text":{"format":{"type":"json_object"},"verbosity":"high"}`, `"messages":[{"role":"user","content":"Hi"}],"response_format":{"type":"json_object"},"verbosity":"high"`},
	{
		"a schema", `"input":"Hi","text":{"format":{"type":"json_schema","name":"n","description":"d","schema":{"type":"object"},"strict":true}}`,
		`"messages":[{"role":"user","content":"Hi"}],"response_format":{"type":"json_schema","json_schema":{"name":"n","description":"d","schema":{"type":"object"},"strict":true}}`,
	},
	{
		"what others have sealed", `"input":[{"type":"reasoning","id":"r","summary":[],"encrypted_content":"gAAAAB"},{"role":"user","content":"q"}]`,
		`"messages":[{"role":"user","content":"q"}]`,
	},
	{
		"what was cited", `"input":[{"role":"assistant","content":[{"type":"output_text","text":"a","annotations":[{"type":"url_citation","url":"https://x","title":"x","start_index":0,"end_index":1}]}]}]`,
		`"messages":[{"role":"assistant","content":"a"}]`,
	},
	{
		"what Codex says", `"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Hi"}]}],"instructions":"i","tools":[{"type":"function","name":"shell","description":"d","strict":false,"parameters":{"type":"object"}}],"tool_choice":"auto","parallel_tool_calls":false,"reasoning":{"effort":"medium","summary":"concise"},"store":false,"stream":false,"include":["reasoning.encrypted_content"],"prompt_cache_key":"k","client_metadata":{"x-codex-installation-id":"1"}`,
		`"messages":[{"role":"system","content":"i"},{"role":"user","content":"Hi"}],"tools":[{"type":"function","function":{"name":"shell","description":"d","strict":false,"parameters":{"type":"object"}}}],"tool_choice":"auto","parallel_tool_calls":false,"reasoning_effort":"medium","prompt_cache_key":"k"`,
	},
	{"preferences", `"input":"Hi","truncation":"auto","reasoning":{"summary":"concise","generate_summary":"concise"}`, `"messages":[{"role":"user","content":"Hi"}]`},
	{"effort", `"input":"Hi","reasoning":{"effort":"high","summary":"detailed","generate_summary":"auto","context":"auto"}`, `"messages":[{"role":"user","content":"Hi"}],"reasoning_effort":"high"`},
	{"whose it is", `"input":"Hi","user":"u","safety_identifier":"s","prompt_cache_key":"k","prompt_cache_retention":"24h"`, `"messages":[{"role":"user","content":"Hi"}],"user":"u","safety_identifier":"s","prompt_cache_key":"k","prompt_cache_retention":"24h"`},
	{"what changes nothing", `"input":"Hi","metadata":{"a":"b"},"store":false,"background":false,"truncation":"disabled","service_tier":"default","top_logprobs":0,"include":[],"stream_options":{}`, `"messages":[{"role":"user","content":"Hi"}]`},
}

func TestARequestIsTranslated(t *testing.T) {
	for _, m := range mappings {
		want := canonical(t, []byte(`{"model":"m",`+m.want+`}`))
		if d := cmp.Diff(want, canonical(t, translate(t, `{"model":"m",`+m.body+`}`))); d != "" {
			t.Errorf("%s: %s", m.name, d)
		}
	}
}

func TestRequestsFollowTheProvidersSettings(t *testing.T) {
	const body = `{"model":"m","input":[{"role":"developer","content":"b"}],"instructions":"a","max_output_tokens":5,"stream":true}`
	r := request(body, true)
	for _, c := range []struct {
		change func()
		want   string
	}{
		{func() {}, `{"model":"m","stream":true,"stream_options":{"include_usage":true},"max_tokens":5,"messages":[{"role":"system","content":"a"},{"role":"system","content":"b"}]}`},
		{func() { r.Model.NoStreamUsage = true }, `{"model":"m","stream":true,"max_tokens":5,"messages":[{"role":"system","content":"a"},{"role":"system","content":"b"}]}`},
		{func() { r.Model.Provider.Modern = true }, `{"model":"m","stream":true,"max_completion_tokens":5,"messages":[{"role":"developer","content":"a"},{"role":"developer","content":"b"}]}`},
	} {
		c.change()
		x, err := testDialect().NewExchange(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, wire := x.Request(); canonical(t, wire) != canonical(t, []byte(c.want)) {
			t.Errorf("%s", wire)
		}
	}
}

// refusals are requests that cannot be expressed, and the field that is named.
var refusals = map[string]string{
	// kept nowhere
	`"input":"Hi","previous_response_id":"resp_1"`:              "previous_response_id",
	`"input":"Hi","conversation":"conv_1"`:                      "conversation",
	`"input":"Hi","conversation":{"id":"conv_1"}`:               "conversation",
	`"input":"Hi","store":true`:                                 "store",
	`"input":"Hi","background":true`:                            "background",
	`"input":"Hi","prompt":{"id":"pmpt_1"}`:                     "prompt",
	`"input":[{"type":"item_reference","id":"m"}]`:              "input[0].type",
	`"input":"Hi","context_management":[{"type":"compaction"}]`: "context_management",
	// not in chat
	`"input":"Hi","truncation":"always"`: "truncation",
	`"input":"Hi","max_tool_calls":3`:    "max_tool_calls",
	`"input":"Hi","service_tier":"flex"`: "service_tier",
	`"input":"Hi","top_logprobs":2`:      "top_logprobs",
	// of OpenAI alone
	`"input":"Hi","include":["reasoning.encrypted_content","message.output_text.logprobs"]`: "include[1]",
	`"input":"Hi","stream_options":{"include_obfuscation":true}`:                            "stream_options.include_obfuscation",
	`"input":"Hi","moderation":{"model":"x"}`:                                               "moderation",
	`"input":"Hi","prompt_cache_options":{"mode":"explicit"}`:                               "prompt_cache_options",
	`"input":"Hi","access_programs":{"cyber":"standard"}`:                                   "access_programs",
	// not known
	`"input":"Hi","wish":1`:       "wish",
	`"input":"Hi","max_tokens":1`: "max_tokens",
	// of texts and thoughts
	`"input":"Hi","text":{"format":{"type":"grammar"}}`:       "text.format.type",
	`"input":"Hi","text":{"format":{"type":"text","mood":1}}`: "text.format.mood",
	`"input":"Hi","text":{"mood":1}`:                          "text.mood",
	`"input":"Hi","reasoning":{"context":"all_turns"}`:        "reasoning.context",
	`"input":"Hi","reasoning":{"mode":"pro"}`:                 "reasoning.mode",
	// tools
	`"input":"Hi","tools":[{"type":"function","name":"f"},{"type":"web_search"}]`:  "tools[1].type",
	`"input":"Hi","tools":[{"type":"file_search","vector_store_ids":["v"]}]`:       "tools[0].type",
	`"input":"Hi","tools":[{"type":"code_interpreter","container":"c"}]`:           "tools[0].type",
	`"input":"Hi","tools":[{"type":"mcp","server_label":"s"}]`:                     "tools[0].type",
	`"input":"Hi","tools":[{"type":"custom","name":"c"}]`:                          "tools[0].type",
	`"input":"Hi","tools":[{"type":"function","name":"f","defer_loading":true}]`:   "tools[0].defer_loading",
	`"input":"Hi","tools":[{"type":"function","function":{"name":"f"}}]`:           "tools[0].function",
	`"input":"Hi","tool_choice":{"type":"allowed_tools","mode":"auto","tools":[]}`: "tool_choice.type",
	`"input":"Hi","tool_choice":{"type":"web_search"}`:                             "tool_choice.type",
	`"input":"Hi","tool_choice":{"type":"function","name":"f","mood":1}`:           "tool_choice.mood",
	// items
	`"input":[{"type":"web_search_call","id":"w","status":"completed"}]`:                                            "input[0].type",
	`"input":[{"type":"custom_tool_call","call_id":"c","name":"f","input":""}]`:                                     "input[0].type",
	`"input":[{"role":"user","content":"a","mood":1}]`:                                                              "input[0].mood",
	`"input":[{"role":"assistant","content":"a","phase":"commentary"}]`:                                             "input[0].phase",
	`"input":[{"type":"function_call","call_id":"c","name":"f","arguments":"","namespace":"n"}]`:                    "input[0].namespace",
	`"input":[{"type":"function_call_output","call_id":"c","output":"","caller":{"type":"direct"}}]`:                "input[0].caller",
	`"input":[{"type":"reasoning","id":"r","summary":[],"encrypted_content":"sovereign1.!"}]`:                       "input[0].encrypted_content",
	`"input":[{"type":"reasoning","id":"r","summary":[{"type":"summary_text","text":"t","mood":1}]}]`:               "input[0].summary[0].mood",
	`"input":[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","file_id":"f"}]}]`:   "input[0].content[1].file_id",
	`"input":[{"role":"user","content":[{"type":"input_file","file_id":"f"}]}]`:                                     "input[0].content[0].file_id",
	`"input":[{"role":"user","content":[{"type":"input_file","file_url":"https://x"}]}]`:                            "input[0].content[0].file_url",
	`"input":[{"role":"user","content":[{"type":"input_file","file_data":"x","detail":"high"}]}]`:                   "input[0].content[0].detail",
	`"input":[{"role":"user","content":[{"type":"input_video"}]}]`:                                                  "input[0].content[0].type",
	`"input":[{"role":"user","content":[{"type":"input_text","text":"a","prompt_cache_breakpoint":{"mode":"x"}}]}]`: "input[0].content[0].prompt_cache_breakpoint",
	`"input":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"","format":"wav","x":1}}]}]`:   "input[0].content[0].input_audio.x",
	`"input":[{"role":"user","content":[{"type":"input_text","text":"a","annotations":[{"type":"x"}]}]}]`:           "input[0].content[0].annotations",
	`"input":[{"role":"assistant","content":[{"type":"output_text","text":"a","logprobs":[{"token":"a"}]}]}]`:       "input[0].content[0].logprobs",
	`"input":[{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","file_id":"f"}]}]`:       "input[0].output[0].file_id",
}

// invalidRequests are invalid in any API.
var invalidRequests = map[string]string{
	`"temperature":1`:                    "input",
	`"input":[]`:                         "input",
	`"input":null`:                       "input",
	`"input":5`:                          "input",
	`"input":[5]`:                        "input[0]",
	`"input":"Hi","temperature":"hot"`:   "temperature",
	`"input":"Hi","max_output_tokens":0`: "max_output_tokens",
	`"input":"Hi","reasoning":{"summary":"long"}`:                                "reasoning.summary",
	`"input":"Hi","metadata":{"a":1}`:                                            "metadata.a",
	`"input":"Hi","text":5`:                                                      "text",
	`"input":"Hi","tools":[5]`:                                                   "tools[0]",
	`"input":"Hi","tool_choice":"sometimes"`:                                     "tool_choice",
	`"input":"Hi","tool_choice":5`:                                               "tool_choice",
	`"input":"Hi","tool_choice":{"type":"function"}`:                             "tool_choice.name",
	`"input":[{"role":"pope","content":"a"}]`:                                    "input[0].role",
	`"input":[{"id":"msg_1"}]`:                                                   "input[0].content",
	`"input":[{"role":"user"}]`:                                                  "input[0].content",
	`"input":[{"role":"user","content":[{"type":"input_text","text":5}]}]`:       "input[0].content[0].text",
	`"input":[{"role":"user","content":[{"type":"input_image"}]}]`:               "input[0].content[0].image_url",
	`"input":[{"role":"user","content":[{"type":"input_file","filename":"x"}]}]`: "input[0].content[0].file_data",
	`"input":[{"role":"user","content":[{"type":"input_audio"}]}]`:               "input[0].content[0].input_audio",
	`"input":[{"type":"function_call","name":"f","arguments":""}]`:               "input[0].call_id",
	`"input":[{"type":"function_call","call_id":"c","arguments":""}]`:            "input[0].name",
	`"input":[{"type":"function_call_output","output":""}]`:                      "input[0].call_id",
	`"input":[{"type":"function_call_output","call_id":"c"}]`:                    "input[0].output",
}

func TestWhatCannotBeExpressedIsRefusedByName(t *testing.T) {
	for _, table := range []struct {
		all  map[string]string
		kind fault.Kind
	}{{refusals, fault.UnsupportedParameter}, {invalidRequests, fault.InvalidParameter}} {
		for body, want := range table.all {
			_, err := testDialect().NewExchange(request(`{"model":"m",`+body+`}`, false))
			if f := faultOf(err); f == nil || f.Field != want || f.Kind != table.kind || !strings.HasPrefix(f.Message, want+" ") {
				t.Errorf("%s: %v, want %s", body, err, want)
			}
		}
	}
	_, err := testDialect().NewExchange(request(`{"model":"m","input":`, false))
	if f := faultOf(err); f == nil || f.Kind != fault.InvalidBody {
		t.Errorf("no JSON: %v", err)
	}
	other := request(`{"model":"m","input":"Hi"}`, false)
	other.Path = upstream.EmbeddingsPath
	if _, err := testDialect().NewExchange(other); faultOf(err) == nil {
		t.Errorf("another endpoint: %v", err)
	}
}

func TestARefusalStatesTheAlternative(t *testing.T) {
	for body, want := range map[string]string{
		`"input":"Hi","max_tokens":1`:                                  "max_tokens is not of the Responses API; max_output_tokens is",
		`"input":"Hi","wish":1`:                                        "wish is not known",
		`"input":"Hi","service_tier":"flex"`:                           "service_tier has no equivalent in chat completions",
		`"input":[{"type":"item_reference","id":"m"}]`:                 "input[0].type cannot be item_reference: nothing is stored: send the items themselves, and store: false",
		`"input":[{"type":"web_search_call","id":"w"}]`:                `input[0].type is "web_search_call", and can only be message, function_call, function_call_output or reasoning for this model`,
		`"input":[{"role":"user","content":[{"type":"input_video"}]}]`: `input[0].content[0].type is "input_video", and can only be input_audio, input_file, input_image, input_text, output_text, refusal for this model`,
	} {
		_, err := testDialect().NewExchange(request(`{"model":"m",`+body+`}`, false))
		if f := faultOf(err); f == nil || f.Message != want {
			t.Errorf("%s: %v", body, err)
		}
	}
}
