package gemini_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/upstream"
)

// skipSignature is sent for a missing signature.
var skipSignature = base64.StdEncoding.EncodeToString([]byte("skip_thought_signature_validator"))

// messages returns a chat request with these messages.
func messages(list string) string { return `{"model":"m","messages":[` + list + `]}` }

func TestARequestIsTranslated(t *testing.T) {
	const user = `{"role":"user","content":"hello"}`
	const translated = `"contents":[{"role":"user","parts":[{"text":"hello"}]}]`
	const tool = `"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","$defs":{"x":{}}}}}]`
	const declared = `"tools":[{"functionDeclarations":[{"name":"f","description":"d","parametersJsonSchema":{"type":"object","$defs":{"x":{}}}}]}]`
	const called = user + `,{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},`
	call := `{"role":"user","parts":[{"text":"hello"}]},{"role":"model","parts":[{"functionCall":{"id":"c1","name":"f","args":{"a":1}},"thoughtSignature":"` + skipSignature + `"}]},`
	for name, c := range map[string]struct{ model, body, want string }{
		"a text": {now, hello, `{` + translated + `}`},
		"instructions come first": {
			now, messages(`{"role":"system","content":"a"},{"role":"developer","content":[{"type":"text","text":"b"}]},` + user),
			`{"systemInstruction":{"parts":[{"text":"a"},{"text":"b"}]},` + translated + `}`,
		},
		"turns of one speaker are one": {
			now, messages(user + `,{"role":"user","content":"you"},{"role":"assistant","content":"a"},{"role":"assistant","content":"b"},` + user),
			`{"contents":[{"role":"user","parts":[{"text":"hello"},{"text":"you"}]},{"role":"model","parts":[{"text":"a"},{"text":"b"}]},{"role":"user","parts":[{"text":"hello"}]}]}`,
		},
		"an empty answer is no turn": {now, messages(user + `,{"role":"assistant","content":""}`), `{` + translated + `}`},
		"a refusal is sent as text": {
			now, messages(user + `,{"role":"assistant","content":null,"refusal":"no"},{"role":"assistant","content":[{"type":"refusal","refusal":"never"}]}`),
			`{"contents":[{"role":"user","parts":[{"text":"hello"}]},{"role":"model","parts":[{"text":"no"},{"text":"never"}]}]}`,
		},
		"media": {
			now, messages(`{"role":"user","content":[
			{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA","detail":"low"}},
			{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA","detail":"high"}},
			{"type":"image_url","image_url":{"url":"https://example.com/A.JPG?x=1","detail":"auto"}},
			{"type":"image_url","image_url":{"url":"https://example.com/picture"}},
			{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}},
			{"type":"input_audio","input_audio":{"data":"AAAA","format":"mp3"}},
			{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,AAAA"}}]}`),
			`{"contents":[{"role":"user","parts":[
			{"inlineData":{"mimeType":"image/png","data":"AAAA"},"mediaResolution":{"level":"MEDIA_RESOLUTION_LOW"}},
			{"inlineData":{"mimeType":"image/png","data":"AAAA"},"mediaResolution":{"level":"MEDIA_RESOLUTION_HIGH"}},
			{"fileData":{"mimeType":"image/jpeg","fileUri":"https://example.com/A.JPG?x=1"}},
			{"fileData":{"fileUri":"https://example.com/picture"}},
			{"inlineData":{"mimeType":"audio/wav","data":"AAAA"}},
			{"inlineData":{"mimeType":"audio/mp3","data":"AAAA"}},
			{"inlineData":{"mimeType":"application/pdf","data":"AAAA"}}]}]}`,
		},
		"results of calls are one turn, and the next question another": {
			now, messages(user + `,
			{"role":"assistant","content":null,"tool_calls":[
				{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"AAAA"}}},
				{"id":"c2","type":"function","function":{"name":"g","arguments":""}}]},
			{"role":"tool","tool_call_id":"c2","content":"[1,2]"},
			{"role":"tool","tool_call_id":"c1","name":"f","content":[{"type":"text","text":" {\"a\":"},{"type":"text","text":"1} "}]},` + user),
			`{"contents":[{"role":"user","parts":[{"text":"hello"}]},
			{"role":"model","parts":[{"functionCall":{"id":"c1","name":"f","args":{}},"thoughtSignature":"AAAA"},{"functionCall":{"id":"c2","name":"g","args":{}}}]},
			{"role":"user","parts":[{"functionResponse":{"id":"c2","name":"g","response":{"output":"[1,2]"}}},{"functionResponse":{"id":"c1","name":"f","response":{"a":1}}}]},
			{"role":"user","parts":[{"text":"hello"}]}]}`,
		},
		"pictures of a result": {
			now, messages(called + `{"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}`),
			`{"contents":[` + call + `{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"f","response":{"output":"see"},"parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA","displayName":"part_1"}}]}}]}]}`,
		},
		"a turn of unsigned calls": {
			now, messages(user + `,{"role":"assistant","tool_calls":[{"id":"c1","function":{"name":"f","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]}`),
			`{"contents":[{"role":"user","parts":[{"text":"hello"}]},{"role":"model","parts":[{"functionCall":{"id":"c1","name":"f","args":{}},"thoughtSignature":"` + skipSignature + `"},{"functionCall":{"id":"c2","name":"g","args":{}}}]}]}`,
		},
		"calls before signatures": {
			before, messages(user + `,{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]}`),
			`{"contents":[{"role":"user","parts":[{"text":"hello"}]},{"role":"model","parts":[{"functionCall":{"id":"c1","name":"f","args":{}}}]}]}`,
		},
		"thoughts and signatures": {
			now, messages(user + `,{"role":"assistant","content":"c","reasoning_content":"abz","reasoning_details":[{"type":"reasoning.text","text":"a","signature":"AAAA"},{"type":"reasoning.text","text":"b"}],"extra_content":{"google":{"thought_signature":"BBBB"}},"annotations":[],"audio":null}`),
			`{"contents":[{"role":"user","parts":[{"text":"hello"}]},{"role":"model","parts":[{"text":"a","thought":true,"thoughtSignature":"AAAA"},{"text":"b","thought":true},{"text":"z","thought":true},{"text":"c","thoughtSignature":"BBBB"}]}]}`,
		},
		"thoughts that no details repeat": {
			now, messages(user + `,{"role":"assistant","content":"c","reasoning_content":"other","reasoning_details":[{"type":"reasoning.text","text":"a","signature":"AAAA","format":"google-gemini-v1"}]}`),
			`{"contents":[{"role":"user","parts":[{"text":"hello"}]},{"role":"model","parts":[{"text":"a","thought":true,"thoughtSignature":"AAAA"},{"text":"other","thought":true},{"text":"c"}]}]}`,
		},
		"thoughts by another name": {
			now, messages(user + `,{"role":"assistant","content":"c","reasoning":"hm"},{"role":"assistant","content":"d","reasoning":"hm","reasoning_content":"so"}`),
			`{"contents":[{"role":"user","parts":[{"text":"hello"}]},{"role":"model","parts":[{"text":"hm","thought":true},{"text":"c"},{"text":"so","thought":true},{"text":"d"}]}]}`,
		},
		"thoughts of another's": {
			now, messages(user + `,{"role":"assistant","content":"c","reasoning":"hm","reasoning_details":[{"type":"reasoning.summary","id":"rs_1","summary":"hm","format":"openai-responses-v1"},{"type":"reasoning.encrypted","data":"x","format":"openai-responses-v1"}]}`),
			`{"contents":[{"role":"user","parts":[{"text":"hello"}]},{"role":"model","parts":[{"text":"hm","thought":true},{"text":"c"}]}]}`,
		},
		"what stood between": {
			now, messages(user + `,{"role":"assistant","content":"äbc","reasoning_content":"1234","reasoning_details":[
			{"type":"reasoning.text","text":"1","format":"google-gemini-v1"},
			{"type":"reasoning.encrypted","data":"AAAA","format":"google-gemini-v1","place":{"text":2}},
			{"type":"reasoning.text","text":"2","signature":"CCCC","format":"google-gemini-v1","place":{"text":2}},
			{"type":"reasoning.text","format":"google-gemini-v1","place":{"text":3,"calls":1}},
			{"type":"reasoning.text","text":"34","format":"google-gemini-v1","place":{"text":9,"calls":9}}],
			"extra_content":{"google":{"thought_signature":"BBBB"}},"tool_calls":[
			{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]}`),
			`{"contents":[{"role":"user","parts":[{"text":"hello"}]},{"role":"model","parts":[{"text":"1","thought":true},{"text":"ä","thoughtSignature":"AAAA"},{"text":"2","thought":true,"thoughtSignature":"CCCC"},{"text":"b"},
			{"functionCall":{"id":"c1","name":"f","args":{}},"thoughtSignature":"` + skipSignature + `"},{"text":"c","thoughtSignature":"BBBB"},{"functionCall":{"id":"c2","name":"g","args":{}}},{"text":"34","thought":true}]}]}`,
		},
		"a signature whose place is known": {
			now, messages(user + `,{"role":"assistant","content":"ab","reasoning_details":[{"type":"reasoning.encrypted","data":"AAAA","format":"google-gemini-v1","place":{"text":1}}],"extra_content":{"google":{"thought_signature":"AAAA"}}}`),
			`{"contents":[{"role":"user","parts":[{"text":"hello"}]},{"role":"model","parts":[{"text":"a","thoughtSignature":"AAAA"},{"text":"b"}]}]}`,
		},
		"a place inside a letter, and one before the last": {
			now, messages(user + `,{"role":"assistant","content":"aäb","reasoning_details":[{"type":"reasoning.encrypted","data":"AAAA","format":"google-gemini-v1","place":{"text":2}},{"type":"reasoning.text","text":"t","format":"google-gemini-v1","place":{"text":-7,"calls":-7}}]}`),
			`{"contents":[{"role":"user","parts":[{"text":"hello"}]},{"role":"model","parts":[{"text":"aä","thoughtSignature":"AAAA"},{"text":"t","thought":true},{"text":"b"}]}]}`,
		},
		"a signature of nothing": {
			now, messages(user + `,{"role":"assistant","content":null,"extra_content":{"google":{"thought_signature":"BBBB"}}}`),
			`{"contents":[{"role":"user","parts":[{"text":"hello"}]},{"role":"model","parts":[{"text":"","thoughtSignature":"BBBB"}]}]}`,
		},
		"settings": {
			now, helloWith(`"temperature":0,"top_p":0.5,"top_k":40,"max_tokens":10,"stop":"x","n":2,"seed":-7,"presence_penalty":1,"frequency_penalty":-1,"logprobs":true,"top_logprobs":3,"logit_bias":null,"user":"","store":false,"models":["a"],"stream_options":null`),
			`{` + translated + `,"generationConfig":{"temperature":0,"topP":0.5,"topK":40,"maxOutputTokens":10,"stopSequences":["x"],"candidateCount":2,"seed":-7,"presencePenalty":1,"frequencyPenalty":-1,"responseLogprobs":true,"logprobs":3}}`,
		},
		"the newer limit":        {now, helloWith(`"max_completion_tokens":10,"stop":["x","y"]`), `{` + translated + `,"generationConfig":{"maxOutputTokens":10,"stopSequences":["x","y"]}}`},
		"a form":                 {now, helloWith(`"response_format":{"type":"json_object"}`), `{` + translated + `,"generationConfig":{"responseMimeType":"application/json"}}`},
		"no form":                {now, helloWith(`"response_format":{"type":"text"}`), `{` + translated + `}`},
		"a schema":               {now, helloWith(`"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"type":"object","$ref":"#/x"}}}`), `{` + translated + `,"generationConfig":{"responseMimeType":"application/json","responseJsonSchema":{"type":"object","$ref":"#/x"}}}`},
		"a described schema":     {now, helloWith(`"response_format":{"type":"json_schema","json_schema":{"name":"x","description":"say \"it\"","schema":{"type":"object"}}}`), `{` + translated + `,"generationConfig":{"responseMimeType":"application/json","responseJsonSchema":{"description":"say \"it\"","type":"object"}}}`},
		"hints for the operator": {now, helloWith(`"user":"u","safety_identifier":"s","prompt_cache_key":"k","prompt_cache_retention":"24h","metadata":{"a":"b"}`), `{` + translated + `}`},
		"calls one by one":       {now, helloWith(tool + `,"parallel_tool_calls":false`), `{` + translated + `,` + declared + `}`},
		"no calls one by one":    {now, helloWith(`"parallel_tool_calls":false`), `{` + translated + `}`},
		"a full name":            {"models/gemini-2.5-flash", helloWith(`"reasoning_effort":"low"`), `{` + translated + `,"generationConfig":{"thinkingConfig":{"thinkingBudget":1024,"includeThoughts":true}}}`},
		"minimal effort":         {now, helloWith(`"reasoning_effort":"minimal"`), `{` + translated + `,"generationConfig":{"thinkingConfig":{"thinkingLevel":"MINIMAL","includeThoughts":true}}}`},
		"low effort":             {now, helloWith(`"reasoning_effort":"low"`), `{` + translated + `,"generationConfig":{"thinkingConfig":{"thinkingLevel":"LOW","includeThoughts":true}}}`},
		"medium effort":          {now, helloWith(`"reasoning_effort":"medium"`), `{` + translated + `,"generationConfig":{"thinkingConfig":{"thinkingLevel":"MEDIUM","includeThoughts":true}}}`},
		"high effort":            {now, helloWith(`"reasoning_effort":"high"`), `{` + translated + `,"generationConfig":{"thinkingConfig":{"thinkingLevel":"HIGH","includeThoughts":true}}}`},
		"no effort before":       {before, helloWith(`"reasoning_effort":"none"`), `{` + translated + `,"generationConfig":{"thinkingConfig":{"thinkingBudget":0}}}`},
		"effort before":          {before, helloWith(`"reasoning_effort":"medium"`), `{` + translated + `,"generationConfig":{"thinkingConfig":{"thinkingBudget":8192,"includeThoughts":true}}}`},
		"tools":                  {now, helloWith(tool), `{` + translated + `,` + declared + `}`},
		"a tool that takes nothing": {
			now, helloWith(`"tools":[{"type":"function","function":{"name":"f","parameters":null,"strict":false}}]`),
			`{` + translated + `,"tools":[{"functionDeclarations":[{"name":"f"}]}]}`,
		},
		"strict tools": {
			now, helloWith(`"tools":[{"type":"function","function":{"name":"f","strict":true}}]`),
			`{` + translated + `,"tools":[{"functionDeclarations":[{"name":"f"}]}],"toolConfig":{"functionCallingConfig":{"mode":"VALIDATED"}}}`,
		},
		"free to call":     {now, helloWith(tool + `,"tool_choice":"auto","parallel_tool_calls":true`), `{` + translated + `,` + declared + `,"toolConfig":{"functionCallingConfig":{"mode":"AUTO"}}}`},
		"bound to call":    {now, helloWith(tool + `,"tool_choice":"required"`), `{` + translated + `,` + declared + `,"toolConfig":{"functionCallingConfig":{"mode":"ANY"}}}`},
		"kept from it":     {now, helloWith(tool + `,"tool_choice":"none"`), `{` + translated + `,` + declared + `,"toolConfig":{"functionCallingConfig":{"mode":"NONE"}}}`},
		"bound to call it": {now, helloWith(tool + `,"tool_choice":{"type":"function","function":{"name":"f"}}`), `{` + translated + `,` + declared + `,"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["f"]}}}`},
		"nothing to call":  {now, helloWith(`"tools":[],"tool_choice":"none"`), `{` + translated + `}`},
	} {
		t.Run(name, func(t *testing.T) {
			translate(t, c.model, c.body) // the SDK can read it
			e, err := dialect.NewExchange(request(c.model, upstream.ChatPath, c.body, false))
			if err != nil {
				t.Fatal(err)
			}
			_, translated := e.Request()
			assertEqual(t, string(translated), c.want)
		})
	}
}

func TestAModelsNameIsEscapedInThePath(t *testing.T) {
	for _, c := range []struct {
		model, path, body string
		stream            bool
		want              string
	}{
		{now, upstream.ChatPath, hello, false, "/models/gemini-3-flash:generateContent"},
		{now, upstream.ChatPath, hello, true, "/models/gemini-3-flash:streamGenerateContent?alt=sse"},
		{"models/gemini-3-flash", upstream.ChatPath, hello, false, "/models/gemini-3-flash:generateContent"},
		{"mock?chunks=5", upstream.ChatPath, hello, false, "/models/mock%3Fchunks=5:generateContent"},
		{"a/b c#d", upstream.EmbeddingsPath, `{"input":"x"}`, false, "/models/a%2Fb%20c%23d:batchEmbedContents"},
	} {
		e, err := dialect.NewExchange(request(c.model, c.path, c.body, c.stream))
		if err != nil {
			t.Fatal(err)
		}
		if path, _ := e.Request(); path != c.want {
			t.Errorf("%s: %s, want %s", c.model, path, c.want)
		}
	}
}

func TestWhatCannotBeExpressedIsRefusedByName(t *testing.T) {
	const user = `{"role":"user","content":"hello"}`
	part := func(p string) string { return messages(`{"role":"user","content":[` + p + `]}`) }
	after := func(m string) string {
		return messages(user + `,{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},` + m)
	}
	for _, c := range []struct{ model, body, field, code string }{
		{now, helloWith(`"wish":1`), "wish", "unsupported_parameter"},
		{now, helloWith(`"logit_bias":{"1":2}`), "logit_bias", "unsupported_parameter"},
		{now, helloWith(`"functions":[{}]`), "functions", "unsupported_parameter"},
		{now, helloWith(`"function_call":"auto"`), "function_call", "unsupported_parameter"},
		{now, helloWith(`"verbosity":"low"`), "verbosity", "unsupported_parameter"},
		{now, helloWith(`"modalities":["text","audio"]`), "modalities", "unsupported_parameter"},
		{now, helloWith(`"audio":{"voice":"x"}`), "audio", "unsupported_parameter"},
		{now, helloWith(`"prediction":{}`), "prediction", "unsupported_parameter"},
		{now, helloWith(`"web_search_options":{}`), "web_search_options", "unsupported_parameter"},
		{now, helloWith(`"service_tier":"flex"`), "service_tier", "unsupported_parameter"},
		{now, helloWith(`"store":true`), "store", "unsupported_parameter"},
		{now, helloWith(`"stream_options":{"include_obfuscation":true}`), "stream_options.include_obfuscation", "unsupported_parameter"},
		{now, helloWith(`"seed":2147483648`), "seed", "invalid_parameter"},
		{now, helloWith(`"max_tokens":0`), "max_tokens", "invalid_parameter"},
		{now, helloWith(`"max_completion_tokens":-1`), "max_completion_tokens", "invalid_parameter"},
		{now, helloWith(`"max_tokens":1,"max_completion_tokens":2`), "max_tokens", "invalid_parameter"},
		{now, helloWith(`"n":0`), "n", "invalid_parameter"},
		{now, helloWith(`"top_k":0`), "top_k", "invalid_parameter"},
		{now, helloWith(`"top_logprobs":-1`), "top_logprobs", "invalid_parameter"},
		{now, helloWith(`"top_logprobs":2`), "top_logprobs", "invalid_parameter"},
		{now, helloWith(`"reasoning_effort":"xhigh"`), "reasoning_effort", "unsupported_parameter"},
		{now, helloWith(`"reasoning_effort":"none"`), "reasoning_effort", "unsupported_parameter"},
		{now, helloWith(`"response_format":{"type":"grammar"}`), "response_format.type", "unsupported_parameter"},
		{now, helloWith(`"response_format":{"type":"json_schema"}`), "response_format.json_schema.schema", "invalid_parameter"},
		{now, helloWith(`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":5}}`), "response_format.json_schema.schema", "invalid_parameter"},
		{now, helloWith(`"response_format":{"type":"json_schema","json_schema":{"name":"x","description":"d","schema":{"description":"e"}}}`), "response_format.json_schema.description", "unsupported_parameter"},
		{"gemini-2.5-pro", helloWith(`"reasoning_effort":"none"`), "reasoning_effort", "unsupported_parameter"},
		{"models/gemini-2.5-pro-preview-05-06", helloWith(`"reasoning_effort":"none"`), "reasoning_effort", "unsupported_parameter"},
		{now, helloWith(`"user":5`), "user", "invalid_parameter"},
		{now, helloWith(`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"auto","function":{"name":"f"}}`), "tool_choice", "invalid_parameter"},
		{now, helloWith(`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"},"custom":{"name":"g"}}`), "tool_choice", "invalid_parameter"},
		{now, messages(`{"role":"user","reasoning":"x","content":"x"}`), "messages[0].reasoning", "unsupported_parameter"},
		{now, part(`{"type":"text","text":"x","image_url":{"url":"data:image/png;base64,AAAA"}}`), "messages[0].content[0].image_url", "invalid_parameter"},
		{now, part(`{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"},"text":"x"}`), "messages[0].content[0].text", "invalid_parameter"},
		{now, helloWith(`"tools":[{"type":"custom","custom":{}}]`), "tools[0].type", "unsupported_parameter"},
		{now, helloWith(`"tools":[{"type":"function","function":{"name":"f"},"cache_control":{"type":"ephemeral"}}]`), "tools[0].cache_control", "unsupported_parameter"},
		{now, helloWith(`"tools":[{"type":"function","function":{"name":""}}]`), "tools[0].function.name", "invalid_parameter"},
		{now, helloWith(`"tools":[{"type":"function","function":{"name":"f","parameters":[]}}]`), "tools[0].function.parameters", "invalid_parameter"},
		{now, helloWith(`"tool_choice":"required"`), "tool_choice", "invalid_parameter"},
		{now, helloWith(`"tool_choice":"perhaps"`), "tool_choice", "unsupported_parameter"},
		{now, helloWith(`"tool_choice":{"type":"allowed_tools","allowed_tools":{}}`), "tool_choice", "unsupported_parameter"},
		{now, helloWith(`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"g"}}`), "tool_choice.function.name", "invalid_parameter"},
		{now, messages(``), "messages", "invalid_parameter"},
		{now, messages(`{"role":"system","content":"x"}`), "messages", "invalid_parameter"},
		{now, messages(user + `,{"role":"system","content":"x"}`), "messages[1]", "unsupported_parameter"},
		{now, messages(`{"role":"system","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]},` + user), "messages[0].content[0]", "unsupported_parameter"},
		{now, messages(`{"role":"critic","content":"x"}`), "messages[0].role", "invalid_parameter"},
		{now, messages(`{"role":"user","name":"bob","content":"x"}`), "messages[0].name", "unsupported_parameter"},
		{now, messages(`{"role":"user","tool_call_id":"x","content":"x"}`), "messages[0].tool_call_id", "unsupported_parameter"},
		{now, messages(`{"role":"user","reasoning_content":"x","content":"x"}`), "messages[0].reasoning_content", "unsupported_parameter"},
		{now, messages(`{"role":"user","extra_content":{},"content":"x"}`), "messages[0].extra_content", "unsupported_parameter"},
		{now, messages(`{"role":"assistant","content":"x","audio":{"id":"a"}}`), "messages[0].audio", "unsupported_parameter"},
		{now, messages(`{"role":"assistant","content":"x","annotations":[{}]}`), "messages[0].annotations", "unsupported_parameter"},
		{now, messages(`{"role":"assistant","content":"x","function_call":{"name":"f"}}`), "messages[0].function_call", "unsupported_parameter"},
		{now, messages(`{"role":"assistant","content":"x","reasoning_details":[{"type":"reasoning.encrypted","data":"x"}]}`), "messages[0].reasoning_details[0]", "unsupported_parameter"},
		{now, messages(`{"role":"assistant","tool_calls":[{"id":"c","type":"custom","custom":{},"function":{"arguments":""}}]}`), "messages[0].tool_calls[0]", "unsupported_parameter"},
		{now, messages(`{"role":"assistant","tool_calls":[{"type":"function","function":{"name":"f","arguments":"{}"}}]}`), "messages[0].tool_calls[0].id", "invalid_parameter"},
		{now, messages(`{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"arguments":"{}"}}]}`), "messages[0].tool_calls[0].function.name", "invalid_parameter"},
		{now, messages(`{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"[]"}}]}`), "messages[0].tool_calls[0].function.arguments", "invalid_parameter"},
		{now, messages(`{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":"}}]}`), "messages[0].tool_calls[0].function.arguments", "invalid_parameter"},
		{now, after(`{"role":"tool","tool_call_id":"c9","content":"x"}`), "messages[2].tool_call_id", "invalid_parameter"},
		{now, after(`{"role":"tool","tool_call_id":"c1","name":"g","content":"x"}`), "messages[2].name", "invalid_parameter"},
		{now, after(`{"role":"tool","tool_call_id":"c1","content":[{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}]}`), "messages[2].content[0]", "unsupported_parameter"},
		{now, after(`{"role":"tool","tool_call_id":"c1","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA","detail":"low"}}]}`), "messages[2].content[0].image_url.detail", "unsupported_parameter"},
		{before, after(`{"role":"tool","tool_call_id":"c1","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}`), "messages[2].content[0]", "unsupported_parameter"},
		{now, after(`{"role":"tool","tool_call_id":"c1","content":[{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}]}`), "messages[2].content[0]", "unsupported_parameter"},
		{now, part(`{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}`), "messages[0].content[0].cache_control", "unsupported_parameter"},
		{now, part(`{"type":"hologram"}`), "messages[0].content[0]", "unsupported_parameter"},
		{now, part(`{"type":"refusal","refusal":"x"}`), "messages[0].content[0]", "unsupported_parameter"},
		{now, part(`{"type":"image_url"}`), "messages[0].content[0].image_url", "invalid_parameter"},
		{now, part(`{"type":"image_url","image_url":{"url":"http://example.com/a.png"}}`), "messages[0].content[0].image_url.url", "unsupported_parameter"},
		{now, part(`{"type":"image_url","image_url":{"url":"gs://bucket/a.png"}}`), "messages[0].content[0].image_url.url", "unsupported_parameter"},
		{now, part(`{"type":"image_url","image_url":{"url":"data:image/png,AAAA"}}`), "messages[0].content[0].image_url.url", "invalid_parameter"},
		{now, part(`{"type":"image_url","image_url":{"url":"data:;base64,AAAA"}}`), "messages[0].content[0].image_url.url", "invalid_parameter"},
		{now, part(`{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA","detail":"ultra"}}`), "messages[0].content[0].image_url.detail", "invalid_parameter"},
		{before, part(`{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA","detail":"low"}}`), "messages[0].content[0].image_url.detail", "unsupported_parameter"},
		{now, part(`{"type":"input_audio"}`), "messages[0].content[0].input_audio.data", "invalid_parameter"},
		{now, part(`{"type":"input_audio","input_audio":{"data":"AAAA","format":"midi"}}`), "messages[0].content[0].input_audio.format", "unsupported_parameter"},
		{now, part(`{"type":"file"}`), "messages[0].content[0].file", "invalid_parameter"},
		{now, part(`{"type":"file","file":{"file_id":"file-1"}}`), "messages[0].content[0].file.file_id", "unsupported_parameter"},
		{now, part(`{"type":"file","file":{"file_data":"AAAA"}}`), "messages[0].content[0].file.file_data", "invalid_parameter"},
	} {
		_, err := dialect.NewExchange(request(c.model, upstream.ChatPath, c.body, false))
		var f *fault.Fault
		if !errors.As(err, &f) || f.Field != c.field || f.Code != c.code || f.Status != 400 {
			t.Errorf("%s: %v (%+v), want %s of %s", c.body, err, f, c.code, c.field)
		}
	}
}

func TestLogprobsAreRefusedInStreams(t *testing.T) {
	_, err := dialect.NewExchange(request(now, upstream.ChatPath, helloWith(`"logprobs":true`), true))
	var f *fault.Fault
	if !errors.As(err, &f) || f.Field != "logprobs" {
		t.Error(err)
	}
}

func TestOtherEndpointsAreRefused(t *testing.T) {
	for _, path := range []string{upstream.RerankPath, upstream.ResponsesPath, "/other"} {
		_, err := dialect.NewExchange(request(now, path, `{}`, false))
		var f *fault.Fault
		if !errors.As(err, &f) || f.Kind != fault.UnsupportedParameter || !strings.Contains(f.Message, path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestARefusalListsTheValidValues(t *testing.T) {
	for body, want := range map[string]string{
		messages(`{"role":"critic","content":"x"}`):                      "messages[0].role must be system, developer, user, assistant or tool",
		messages(`{"role":"user","content":[{"type":"hologram"}]}`):      `messages[0].content[0] is "hologram", and can only be text, image_url, input_audio or file in the Gemini API`,
		messages(`{"role":"system","content":[{"type":"input_audio"}]}`): `messages[0].content[0] is "input_audio", and can only be text in the Gemini API`,
	} {
		_, err := dialect.NewExchange(request(now, upstream.ChatPath, body, false))
		var f *fault.Fault
		if !errors.As(err, &f) || f.Message != want {
			t.Errorf("%s: %v", body, err)
		}
	}
}
