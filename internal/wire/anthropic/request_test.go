package anthropic_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/chat"
	"sovereign/internal/wire/upstream"
)

const (
	hello           = `"messages":[{"role":"user","content":"Hello"}]`
	helloTranslated = `"messages":[{"role":"user","content":[{"type":"text","text":"Hello"}]}]`
	fun             = `"tools":[{"type":"function","function":{"name":"f"}}]`
	funIs           = `"tools":[{"name":"f","input_schema":{"type":"object","properties":{}}}]`
)

// requestCases are requests and their translation, without the model and max_tokens of 8000.
var requestCases = []struct{ name, ours, theirs string }{
	{"text", hello, helloTranslated},
	{"the least", hello + `,"n":1,"logprobs":false,"store":false,"user":"","tools":[],"metadata":null,"seed":null,"stop":null,"response_format":{"type":"text"}`, helloTranslated},
	{"max_tokens", hello + `,"max_tokens":7`, helloTranslated + `,"max_tokens":7`},
	{"max_completion_tokens", hello + `,"max_completion_tokens":9`, helloTranslated + `,"max_tokens":9`},
	{"one limit twice", hello + `,"max_tokens":9,"max_completion_tokens":9`, helloTranslated + `,"max_tokens":9`},
	{"the usual sampling", hello + `,"temperature":1,"top_p":1.0`, helloTranslated},
	{"stop", hello + `,"stop":"END"`, helloTranslated + `,"stop_sequences":["END"]`},
	{"stops", hello + `,"stop":["a","b"]`, helloTranslated + `,"stop_sequences":["a","b"]`},
	{"user", hello + `,"user":"ann@example.com","metadata":{"a":"b"},"prompt_cache_key":"k","prompt_cache_retention":"24h"`, helloTranslated + `,"metadata":{"user_id":"71d4f55f72fa128dfb468a1a3901507c"}`},
	{"safety_identifier", hello + `,"user":"u-2","safety_identifier":"u-2"`, helloTranslated + `,"metadata":{"user_id":"1fe2696cbaaf13d5dcd4d466fcfd3331"}`},
	{"tier", hello + `,"service_tier":"auto"`, helloTranslated + `,"service_tier":"auto"`},
	{"standard tier", hello + `,"service_tier":"default"`, helloTranslated + `,"service_tier":"standard_only"`},

	{
		"system prompt", `"messages":[{"role":"system","content":"Be brief."},{"role":"developer","content":[{"type":"text","text":"Be kind.","cache_control":{"type":"ephemeral"}}]},{"role":"user","content":"Hello"}]`,
		helloTranslated + `,"system":[{"type":"text","text":"Be brief."},{"type":"text","text":"Be kind.","cache_control":{"type":"ephemeral"}}]`,
	},
	{
		"system at the end", `"messages":[{"role":"user","content":"Hello"},{"role":"system","content":"Be brief."},{"role":"developer","content":"And kind."}]`,
		`"messages":[{"role":"user","content":[{"type":"text","text":"Hello"}]},{"role":"system","content":[{"type":"text","text":"Be brief."},{"type":"text","text":"And kind."}]}]`,
	},
	{
		"system between", `"messages":[{"role":"user","content":"Hello"},{"role":"system","content":"Be brief."},{"role":"assistant","content":"Hi"},{"role":"user","content":"Bye"}]`,
		`"messages":[{"role":"user","content":[{"type":"text","text":"Hello"}]},{"role":"system","content":[{"type":"text","text":"Be brief."}]},{"role":"assistant","content":[{"type":"text","text":"Hi"}]},{"role":"user","content":[{"type":"text","text":"Bye"}]}]`,
	},
	{
		"what says nothing", `"messages":[{"role":"system","content":" "},{"role":"user","content":[{"type":"text","text":"Hello"},{"type":"text","text":"\n\t"}]},{"role":"assistant","content":null},{"role":"assistant","content":" \n","refusal":""},{"role":"assistant","content":[]},{"role":"user","content":"Bye"},{"role":"assistant","content":"\n","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":" "}]`,
		`"messages":[{"role":"user","content":[{"type":"text","text":"Hello"},{"type":"text","text":"Bye"}]},{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1"}]}]`,
	},
	{
		"ids that are not fit", `"messages":[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"functions.f:0","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"id-x","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"call_-9","type":"function","function":{"name":"g","arguments":"{}"}}]},{"role":"tool","name":"f","tool_call_id":"functions.f:0","content":"1"},{"role":"tool","tool_call_id":"id-x","content":"2"},{"role":"tool","name":"g","tool_call_id":"call_-9","content":"3"}]`,
		`"messages":[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":[{"type":"tool_use","id":"id-ZnVuY3Rpb25zLmY6MA","name":"f","input":{}},{"type":"tool_use","id":"id-aWQteA","name":"f","input":{}},{"type":"tool_use","id":"call_-9","name":"g","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"id-ZnVuY3Rpb25zLmY6MA","content":[{"type":"text","text":"1"}]},{"type":"tool_result","tool_use_id":"id-aWQteA","content":[{"type":"text","text":"2"}]},{"type":"tool_result","tool_use_id":"call_-9","content":[{"type":"text","text":"3"}]}]}]`,
	},
	{
		"same roles", `"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"},{"role":"assistant","content":"c"},{"role":"assistant","content":"d"},{"role":"user","content":"e"}]`,
		`"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"role":"assistant","content":[{"type":"text","text":"c"},{"type":"text","text":"d"}]},{"role":"user","content":[{"type":"text","text":"e"}]}]`,
	},
	{"empty texts", `"messages":[{"role":"system","content":""},{"role":"user","content":[{"type":"text","text":""},{"type":"text","text":"Hello"}]}]`, helloTranslated},
	{
		"refusals", `"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"refusal","refusal":"No."}]},{"role":"user","content":"y"},{"role":"assistant","content":null,"refusal":"Never."},{"role":"user","content":"z"}]`,
		`"messages":[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":[{"type":"text","text":"No."}]},{"role":"user","content":[{"type":"text","text":"y"}]},{"role":"assistant","content":[{"type":"text","text":"Never."}]},{"role":"user","content":[{"type":"text","text":"z"}]}]`,
	},
	{
		"pictures", `"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/PNG;base64,iVBO","detail":"high"}},{"type":"image_url","image_url":{"url":"data:image/jpg;base64,/9j/"}},{"type":"image_url","image_url":{"url":"https://a.example/b.gif"},"cache_control":{"type":"ephemeral","ttl":"5m"}}]}]`,
		`"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBO"}},{"type":"image","source":{"type":"base64","media_type":"image/jpeg","data":"/9j/"}},{"type":"image","source":{"type":"url","url":"https://a.example/b.gif"},"cache_control":{"type":"ephemeral","ttl":"5m"}}]}]`,
	},
	{
		"documents", `"messages":[{"role":"user","content":[{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,JVBE"}},{"type":"file","file":{"filename":"a.txt","file_data":"data:text/plain;charset=UTF-8;base64,w6QK"}},{"type":"file","file":{"file_data":"data:text/plain;base64,eA=="}}]}]`,
		`"messages":[{"role":"user","content":[{"type":"document","title":"a.pdf","source":{"type":"base64","media_type":"application/pdf","data":"JVBE"}},{"type":"document","title":"a.txt","source":{"type":"text","media_type":"text/plain","data":"ä\n"}},{"type":"document","source":{"type":"text","media_type":"text/plain","data":"x"}}]}]`,
	},
	{
		"calls and results", `"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"","annotations":[],"refusal":null,"audio":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\": 1e2}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":""}}]},{"role":"tool","tool_call_id":"c1","content":"one"},{"role":"tool","tool_call_id":"c2","content":[{"type":"text","text":"two","cache_control":{"type":"ephemeral"}},{"type":"image_url","image_url":{"url":"data:image/webp;base64,UklG"},"cache_control":{"type":"ephemeral"}}]},{"role":"tool","tool_call_id":"c3","content":""},{"role":"user","content":"y"}]`,
		`"messages":[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"f","input":{"a":100}},{"type":"tool_use","id":"c2","name":"g","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"one"}]},{"type":"tool_result","tool_use_id":"c2","cache_control":{"type":"ephemeral"},"content":[{"type":"text","text":"two","cache_control":{"type":"ephemeral"}},{"type":"image","source":{"type":"base64","media_type":"image/webp","data":"UklG"}}]},{"type":"tool_result","tool_use_id":"c3"},{"type":"text","text":"y"}]}]`,
	},
	{
		"thoughts", `"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"a","reasoning_content":"hm","reasoning_details":[{"type":"reasoning.text","text":"hm","signature":"s1"},{"type":"reasoning.encrypted","data":"d1"},{"type":"reasoning.text","signature":"s2"}]},{"role":"user","content":"y"}]`,
		`"messages":[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s1"},{"type":"redacted_thinking","data":"d1"},{"type":"thinking","thinking":"","signature":"s2"},{"type":"text","text":"a"}]},{"role":"user","content":[{"type":"text","text":"y"}]}]`,
	},
	{
		"what another provider thought and signed", `"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"a","reasoning_content":"hm","reasoning_details":[{"type":"reasoning.text","text":"hm","signature":"s1","format":"google-gemini-v1"}],"extra_content":{"google":{"thought_signature":"s"}},"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"s"}}}]},{"role":"tool","tool_call_id":"c1","content":"y"}]`,
		`"messages":[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"c1","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"y"}]}]}]`,
	},
	{
		"unsigned thoughts", `"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"a","reasoning_content":"hm","reasoning":"hm","reasoning_details":[{"type":"reasoning.text","text":"hm"},{"type":"reasoning.encrypted"},{"type":"reasoning.summary","summary":"hm","signature":"s"},{"type":"reasoning.text","text":"broken o","format":"anthropic-claude-v1"},{"type":"reasoning.text","text":"other","signature":"s","format":"anthropic-claude-v1","model":"claude-opus-4-7"}]},{"role":"assistant","reasoning_content":"hm"},{"role":"user","content":"y"}]`,
		`"messages":[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":[{"type":"text","text":"a"}]},{"role":"user","content":[{"type":"text","text":"y"}]}]`,
	},
	{
		"thoughts in between", `"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"one ätwo ","reasoning_details":[{"type":"reasoning.text","text":"a","signature":"s1","model":"claude-opus-4-8"},{"type":"reasoning.text","text":"b","signature":"s2","place":{"text":4}},{"type":"reasoning.encrypted","data":"d","place":{"text":10}},{"type":"reasoning.text","text":"c","signature":"s3","place":{"text":10,"calls":1}}],"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]}]`,
		`"messages":[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":[{"type":"thinking","thinking":"a","signature":"s1"},{"type":"text","text":"one "},{"type":"thinking","thinking":"b","signature":"s2"},{"type":"text","text":"ätwo "},{"type":"redacted_thinking","data":"d"},{"type":"tool_use","id":"c1","name":"f","input":{}},{"type":"thinking","thinking":"c","signature":"s3"},{"type":"tool_use","id":"c2","name":"g","input":{}}]}]`,
	},
	{
		"places that are no more", `"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"text","text":"\n\nä"},{"type":"text","text":"one \n","cache_control":{"type":"ephemeral"}}],"refusal":"No.","reasoning_details":[{"type":"reasoning.text","signature":"s1","place":{"text":2}},{"type":"reasoning.text","signature":"s2","place":{"text":3,"calls":-1}},{"type":"reasoning.text","signature":"s3","place":{"text":8}},{"type":"reasoning.text","signature":"s4","place":{"text":-7}},{"type":"reasoning.text","signature":"s5","place":{"text":99,"calls":9}}]}]`,
		`"messages":[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"s1"},{"type":"thinking","thinking":"","signature":"s2"},{"type":"text","text":"\n\nä"},{"type":"text","text":"one \n","cache_control":{"type":"ephemeral"}},{"type":"thinking","thinking":"","signature":"s3"},{"type":"thinking","thinking":"","signature":"s4"},{"type":"text","text":"No."},{"type":"thinking","thinking":"","signature":"s5"}]}]`,
	},
	{
		"thoughts in pieces", `"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"a","reasoning_content":"hmmm","reasoning_details":[{"type":"reasoning.text","text":"hm","index":0},{"type":"reasoning.text","text":"m","index":0},{"type":"reasoning.text","signature":"s1","index":0},{"type":"reasoning.text","text":"m","index":1},{"type":"reasoning.text","signature":"s2","index":1}]},{"role":"user","content":"y"}]`,
		`"messages":[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":[{"type":"thinking","thinking":"hmm","signature":"s1"},{"type":"thinking","thinking":"m","signature":"s2"},{"type":"text","text":"a"}]},{"role":"user","content":[{"type":"text","text":"y"}]}]`,
	},

	{
		"tools", hello + `,"tools":[{"type":"function","function":{"name":"f","description":"does","parameters":{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"required":["a"],"additionalProperties":false,"$defs":{"x":{"type":"string"}}},"strict":true},"cache_control":{"type":"ephemeral"}},{"type":"function","function":{"name":"g","parameters":{},"strict":false}},{"type":"function","function":{"name":"h","parameters":{ "properties": {} }}}]`,
		helloTranslated + `,"tools":[{"name":"f","description":"does","input_schema":{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"required":["a"],"additionalProperties":false,"$defs":{"x":{"type":"string"}}},"strict":true,"cache_control":{"type":"ephemeral"}},{"name":"g","input_schema":{"type":"object"},"strict":false},{"name":"h","input_schema":{"type":"object","properties":{}}}]`,
	},
	{"choice none", hello + `,` + fun + `,"tool_choice":"none","parallel_tool_calls":false`, helloTranslated + `,` + funIs + `,"tool_choice":{"type":"none"}`},
	{"choice auto", hello + `,` + fun + `,"tool_choice":"auto"`, helloTranslated + `,` + funIs + `,"tool_choice":{"type":"auto"}`},
	{"choice required", hello + `,` + fun + `,"tool_choice":"required"`, helloTranslated + `,` + funIs + `,"tool_choice":{"type":"any"}`},
	{"choice function", hello + `,` + fun + `,"tool_choice":{"type":"function","function":{"name":"f"}},"parallel_tool_calls":false`, helloTranslated + `,` + funIs + `,"tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true}`},
	{"one at a time", hello + `,` + fun + `,"parallel_tool_calls":false`, helloTranslated + `,` + funIs + `,"tool_choice":{"type":"auto","disable_parallel_tool_use":true}`},
	{"no choice without tools", hello + `,"tool_choice":"auto","parallel_tool_calls":false`, helloTranslated},

	{
		"schema", hello + `,"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"type":"object","properties":{}}}}`,
		helloTranslated + `,"output_config":{"format":{"type":"json_schema","schema":{"type":"object","properties":{}}}}`,
	},
	{
		"described schema", hello + `,"response_format":{"type":"json_schema","json_schema":{"name":"n","description":"a \"d\"","schema":{ }}}`,
		helloTranslated + `,"output_config":{"format":{"type":"json_schema","schema":{"description":"a \"d\""}}}`,
	},
	{"no effort", hello + `,"reasoning_effort":"none"`, helloTranslated + `,"thinking":{"type":"disabled"}`},
	{"effort", hello + `,"reasoning_effort":"xhigh","temperature":1`, helloTranslated + `,"thinking":{"type":"adaptive","display":"summarized"},"output_config":{"effort":"xhigh"}`},
	{
		"effort and schema", hello + `,"reasoning_effort":"low","response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{}}}`,
		helloTranslated + `,"thinking":{"type":"adaptive","display":"summarized"},"output_config":{"effort":"low","format":{"type":"json_schema","schema":{}}}`,
	},
}

func TestARequestIsTranslated(t *testing.T) {
	for _, c := range requestCases {
		t.Run(c.name, func(t *testing.T) {
			_, body := translate(t, request(`{"model":"ours",`+c.ours+`}`, false))
			want := `{"model":"claude-opus-4-8",` + c.theirs
			if !strings.Contains(c.theirs, `"max_tokens"`) {
				want += `,"max_tokens":8000`
			}
			if diff := cmp.Diff(canonical([]byte(want+`}`)), canonical(body)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestStreamIsSetForStreams(t *testing.T) {
	for stream, want := range map[bool]string{true: `"stream":true`, false: ""} {
		_, body := translate(t, request(`{"model":"ours",`+hello+`}`, stream))
		if got := strings.Contains(string(body), `"stream"`); got != stream || !strings.Contains(string(body), want) {
			t.Errorf("%v: %s", stream, body)
		}
	}
}

func TestMaxTokensIsRequiredForAModelWithoutALimit(t *testing.T) {
	r := request(`{"model":"ours",`+hello+`}`, false)
	r.Model.MaxOutput = 0
	if field, _ := refusedField(t, r); field != "max_tokens" {
		t.Error(field)
	}
}

func TestOtherEndpointsAreRefused(t *testing.T) {
	for _, path := range []string{upstream.EmbeddingsPath, upstream.RerankPath, upstream.ResponsesPath} {
		r := request(`{}`, false)
		r.Path = path
		_, err := dialect.NewExchange(r)
		var f *fault.Fault
		if !errors.As(err, &f) || f.Kind != fault.UnsupportedParameter {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// withMessage returns a conversation whose second message is m.
func withMessage(m string) string { return `"messages":[{"role":"user","content":"x"},` + m + `]` }

// withPart returns a conversation whose only message has the part.
func withPart(part string) string { return `"messages":[{"role":"user","content":[` + part + `]}]` }

// refusals are requests that are refused, and the field that is named.
var refusals = []struct {
	field, body string
	unsupported bool
}{
	{"n", hello + `,"n":2`, true},
	{"logprobs", hello + `,"logprobs":true`, true},
	{"top_logprobs", hello + `,"top_logprobs":3`, true},
	{"logit_bias", hello + `,"logit_bias":{"5":1}`, true},
	{"seed", hello + `,"seed":0`, true},
	{"presence_penalty", hello + `,"presence_penalty":0.1`, true},
	{"frequency_penalty", hello + `,"frequency_penalty":-1`, true},
	{"functions", hello + `,"functions":[{"name":"f"}]`, true},
	{"function_call", hello + `,"function_call":"auto"`, true},
	{"verbosity", hello + `,"verbosity":"low"`, true},
	{"modalities", hello + `,"modalities":["text","audio"]`, true},
	{"audio", hello + `,"audio":{"voice":"x"}`, true},
	{"prediction", hello + `,"prediction":{"type":"content"}`, true},
	{"web_search_options", hello + `,"web_search_options":{}`, true},
	{"store", hello + `,"store":true`, true},
	{"service_tier", hello + `,"service_tier":"flex"`, true},
	{"service_tier", hello + `,"service_tier":"priority"`, true},
	{"wish", hello + `,"wish":1`, true},
	{"stream_options.include_obfuscation", hello + `,"stream_options":{"include_obfuscation":true}`, true},
	{"safety_identifier", hello + `,"user":"a","safety_identifier":"b"`, true},
	{"temperature", hello + `,"temperature":1.1`, true},
	{"temperature", hello + `,"temperature":-1`, false},
	{"max_tokens", hello + `,"max_tokens":0`, false},
	{"max_tokens", hello + `,"max_tokens":7,"max_completion_tokens":9`, false},
	{"max_completion_tokens", hello + `,"max_completion_tokens":-3`, false},
	{"response_format", hello + `,"response_format":{"type":"json_object"}`, true},
	{"response_format.type", hello + `,"response_format":{"type":"poem"}`, false},
	{"response_format.json_schema", hello + `,"response_format":{"type":"text","json_schema":{"name":"n"}}`, false},
	{"response_format.json_schema.schema", hello + `,"response_format":{"type":"json_schema"}`, false},
	{"response_format.json_schema.schema", hello + `,"response_format":{"type":"json_schema","json_schema":{"name":"n"}}`, false},
	{"response_format.json_schema.description", hello + `,"response_format":{"type":"json_schema","json_schema":{"name":"n","description":"d","schema":{"description":"e"}}}`, true},

	{"reasoning_effort", hello + `,"reasoning_effort":"minimal"`, true},
	{"reasoning_effort", hello + `,"reasoning_effort":"much"`, false},
	{"temperature", hello + `,"temperature":0.5`, true},
	{"top_p", hello + `,"top_p":0.9`, true},
	{"top_k", hello + `,"top_k":5`, true},
	{"tool_choice", hello + `,` + fun + `,"reasoning_effort":"low","tool_choice":"required"`, true},
	{"tool_choice", hello + `,` + fun + `,"reasoning_effort":"low","tool_choice":{"type":"function","function":{"name":"f"}}`, true},

	{"tools[0]", hello + `,"tools":[{"type":"custom","custom":{"name":"c"}}]`, true},
	{"tools[0].function.name", hello + `,"tools":[{"type":"function","function":{}}]`, false},
	{"tools[0].function.parameters", hello + `,"tools":[{"type":"function","function":{"name":"f","parameters":[]}}]`, false},
	{"tools[0].function.parameters.type", hello + `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"string"}}}]`, false},
	{"tools[0].cache_control.ttl", hello + `,"tools":[{"type":"function","function":{"name":"f"},"cache_control":{"type":"ephemeral","ttl":"1h"}}]`, true},
	{"tool_choice", hello + `,` + fun + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{}}`, true},
	{"tool_choice", hello + `,` + fun + `,"tool_choice":{"type":"custom","custom":{"name":"c"}}`, true},
	{"tool_choice", hello + `,` + fun + `,"tool_choice":{"type":"function"}`, false},
	{"tool_choice", hello + `,"tool_choice":"required"`, false},

	{"messages", `"messages":[]`, false},
	{"messages", `"messages":[{"role":"system","content":"x"}]`, false},
	{"messages[1].role", withMessage(`{"role":"judge","content":"x"}`), false},
	{"messages[1].role", withMessage(`{"role":"function","name":"f","content":"x"}`), false},
	{"messages[1].role", withMessage(`{"role":"system","content":"x"},{"role":"user","content":"y"}`), true},
	{"messages[2].role", withMessage(`{"role":"assistant","content":"x"},{"role":"developer","content":"y"},{"role":"user","content":"z"}`), true},
	{"messages[2].role", withMessage(`{"role":"assistant","content":"x"},{"role":"system","content":"y"}`), true},
	{"messages[1].name", withMessage(`{"role":"user","name":"bob","content":"x"}`), true},
	{"messages[1].content", withMessage(`{"role":"user"}`), false},
	{"messages[1].content", withMessage(`{"role":"user","content":""}`), true},
	{"messages[1].content", withMessage(`{"role":"user","content":" \n"}`), true},
	{"messages[1].tool_calls", withMessage(`{"role":"user","content":"x","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]}`), true},
	{"messages[1].tool_call_id", withMessage(`{"role":"user","content":"x","tool_call_id":"c"}`), true},
	{"messages[1].refusal", withMessage(`{"role":"user","content":"x","refusal":"n"}`), true},
	{"messages[1].reasoning_content", withMessage(`{"role":"user","content":"x","reasoning_content":"n"}`), true},
	{"messages[1].reasoning_details", withMessage(`{"role":"user","content":"x","reasoning_details":[{"type":"reasoning.text"}]}`), true},
	{"messages[1].reasoning", withMessage(`{"role":"user","content":"x","reasoning":"n"}`), true},
	{"messages[1].reasoning_details[1]", withMessage(`{"role":"assistant","content":"x","reasoning_details":[{"type":"reasoning.encrypted","data":"d"},{"type":"reasoning.encrypted","format":"anthropic-claude-v1"}]}`), true},
	{"messages[1].reasoning_details[0]", withMessage(`{"role":"assistant","content":"x","reasoning_details":[{"type":"reasoning.summary","text":"hm","signature":"s","format":"anthropic-claude-v1"}]}`), true},
	{"messages[2].name", withMessage(`{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","name":"g","tool_call_id":"c","content":"x"}`), false},
	{"messages[1].annotations", withMessage(`{"role":"assistant","content":"x","annotations":[{"type":"url_citation"}]}`), true},
	{"messages[1].audio", withMessage(`{"role":"assistant","content":"x","audio":{"id":"a"}}`), true},
	{"messages[1].function_call", withMessage(`{"role":"assistant","content":"x","function_call":{"name":"f","arguments":"{}"}}`), true},
	{"messages[1].tool_calls[0]", withMessage(`{"role":"assistant","tool_calls":[{"id":"c","type":"custom","function":{"arguments":""},"custom":{"name":"f"}}]}`), true},
	{"messages[1].tool_calls[0].id", withMessage(`{"role":"assistant","tool_calls":[{"type":"function","function":{"name":"f","arguments":"{}"}}]}`), false},
	{"messages[1].tool_calls[0].function.name", withMessage(`{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"arguments":"{}"}}]}`), false},
	{"messages[1].tool_calls[0].function.arguments", withMessage(`{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":"}}]}`), false},
	{"messages[1].tool_calls[0].function.arguments", withMessage(`{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"[1]"}}]}`), false},
	{"messages[1].tool_call_id", withMessage(`{"role":"tool","content":"x"}`), false},
	{"messages[1].content", withMessage(`{"role":"tool","tool_call_id":"c"}`), false},

	{"messages[0].content[0].type", withPart(`{"type":"input_audio","input_audio":{"data":"x","format":"wav"}}`), true},
	{"messages[0].content[0].type", withPart(`{"type":"refusal","refusal":"x"}`), true},
	{"messages[0].content[0].type", withPart(`{"type":"video"}`), true},
	{"messages[0].content[0].file", withPart(`{"type":"text","text":"x","file":{}}`), false},
	{"messages[0].content[0].file", withPart(`{"type":"file"}`), false},
	{"messages[0].content[0].file.file_id", withPart(`{"type":"file","file":{"file_id":"f"}}`), true},
	{"messages[0].content[0].file.file_data", withPart(`{"type":"file","file":{"file_data":"data:text/csv;base64,eA=="}}`), true},
	{"messages[0].content[0].file.file_data", withPart(`{"type":"file","file":{"file_data":"data:text/plain;charset=latin1;base64,eA=="}}`), true},
	{"messages[0].content[0].file.file_data", withPart(`{"type":"file","file":{"file_data":"data:text/plain;base64,5A=="}}`), true},
	{"messages[0].content[0].image_url", withPart(`{"type":"image_url"}`), false},
	{"messages[0].content[0].image_url.detail", withPart(`{"type":"image_url","image_url":{"url":"https://a.example","detail":"low"}}`), true},
	{"messages[0].content[0].image_url.url", withPart(`{"type":"image_url","image_url":{"url":"ftp://a.example"}}`), false},
	{"messages[0].content[0].image_url.url", withPart(`{"type":"image_url","image_url":{"url":"data:image/tiff;base64,eA=="}}`), true},
	{"messages[0].content[0].cache_control.ttl", withPart(`{"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"1h"}}`), true},
	{"messages[0].content[0].cache_control.ttl", withPart(`{"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"2h"}}`), false},
	{"messages[0].content[0].cache_control.type", withPart(`{"type":"text","text":"x","cache_control":{"type":"eternal"}}`), false},
	{"messages[0].content[0].cache_control", withPart(`{"type":"text","text":"","cache_control":{"type":"ephemeral"}}`), true},
	{"messages[1].content[0].cache_control", withMessage(`{"role":"assistant","content":[{"type":"text","text":" ","cache_control":{"type":"ephemeral"}}]}`), true},
	{"messages[0].content[0].type", `"messages":[{"role":"system","content":[{"type":"image_url","image_url":{"url":"https://a.example"}}]}]`, true},
	{"messages[1].content[0].type", withMessage(`{"role":"assistant","content":[{"type":"image_url","image_url":{"url":"https://a.example"}}]}`), true},
}

func TestWhatCannotBeExpressedIsRefusedByName(t *testing.T) {
	for _, c := range refusals {
		field, kind := refusedField(t, request(`{"model":"ours",`+c.body+`}`, false))
		want := fault.InvalidParameter
		if c.unsupported {
			want = fault.UnsupportedParameter
		}
		if field != c.field || kind != want {
			t.Errorf("%s: %s (%s), want %s (%s)", c.body, field, kind.Code, c.field, want.Code)
		}
	}
}

// Every parameter of OpenAI's API is either translated or refused.
func TestEveryParameterIsTranslatedOrRefused(t *testing.T) {
	tested := map[string]bool{"model": true, "models": true, "messages": true, "stream": true, "stream_options": true}
	for _, c := range requestCases {
		for _, part := range strings.Split(c.ours, `,"`) {
			name, _, _ := strings.Cut(strings.TrimPrefix(part, `"`), `"`)
			tested[name] = true
		}
	}
	for _, c := range refusals {
		tested[c.field] = true
	}
	for _, name := range parameters(chat.Request{}) {
		if !tested[name] {
			t.Errorf("nothing tests %s", name)
		}
	}
}

// parameters returns the JSON names of a type's fields.
func parameters(of any) (all []string) {
	t := reflect.TypeOf(of)
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		all = append(all, name)
	}
	return all
}
