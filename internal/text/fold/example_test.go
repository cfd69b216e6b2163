package fold_test

import (
	stdjson "encoding/json"
	"errors"
	"strings"
	"testing"

	"sovereign/internal/text/fold"
)

func TestExampleOutput(t *testing.T) {
	const round = `[{"role":"user","content":"Hello"},{"role":"assistant","content":"Hi!"},{"role":"user","content":"More."}]`
	for _, c := range []struct {
		name, messages, response, tools string
		folded                          bool
		want                            string
	}{
		{
			"of one exchange no turn weighs", round, `{"role":"assistant","content":"No.","refusal":null,"annotations":[]}`, "", false,
			`{"messages":[{"role":"user","content":"Hello"},{"role":"assistant","content":"Hi!"},{"role":"user","content":"More."},{"role":"assistant","content":"No."}]}`,
		},
		{
			"folded, every turn of the assistant weighs", round, `{"content":"No.","role":"assistant","reasoning_content":"…"}`, "null", true,
			`{"messages":[{"role":"user","content":"Hello"},{"role":"assistant","content":"Hi!","weight":1},{"role":"user","content":"More."},{"role":"assistant","content":"No.","weight":1}]}`,
		},
		{
			"a caller's weight is replaced", `[{"weight":0,"role":"assistant"},{"role":"user","\u0077eight":1},{"weight":0}]`, `{"content":"No.","weight":0}`, "", true,
			`{"messages":[{"role":"assistant","weight":1},{"role":"user"},{},{"role":"assistant","content":"No.","weight":1}]}`,
		},
		{
			"a caller's weight is left out", `[{"weight":0,"role":"assistant","content":null},{"role":"user","content":"","weight":1}]`, `{"content":"No.","weight":0}`, " [ ] ", false,
			`{"messages":[{"role":"assistant","content":null},{"role":"user","content":""},{"role":"assistant","content":"No."}]}`,
		},
		{
			"letters stay, white space goes", "[\n {\"content\" : \"a  \\n\\u0041\\/ \\\" \",\r\n\t\"role\":\"user\", \"x\": [ 1.00, null, {\"y\" : true} ] } ]\n", " {\"content\" : \"a  b\"}\n", "", false,
			`{"messages":[{"content":"a  \n\u0041\/ \" ","role":"user","x":[1.00,null,{"y":true}]},{"role":"assistant","content":"a  b"}]}`,
		},
		{
			"tools stand beside the messages", `[]`,
			`{"role":"assistant","content":null,"function_call":null,"audio":{"id":"a"},"tool_calls":[{"index":0,"id":"c","type":"function","custom":null,"extra_content":{},"function":{"name":"f","arguments":"{\"a\": 1}","parsed_arguments":{"a":1}}},{"index":1,"id":"d","type":"custom","custom":{"name":"g","input":"x"}}]}`,
			`[ {"type": "function", "function": {"name": "f"}} ]`, false,
			`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}},{"id":"d","type":"custom","custom":{"name":"g","input":"x"}}]}],"tools":[{"type":"function","function":{"name":"f"}}]}`,
		},
		{
			"a refusal is said", `[]`, `{"refusal":"I will not.","tool_calls":[]}`, "", true,
			`{"messages":[{"role":"assistant","content":null,"refusal":"I will not.","weight":1}]}`,
		},
		{
			"a function of the older API is called", `[]`, `{"content":"","function_call":{"name":"f","arguments":"{}","more":1}}`, "", false,
			`{"messages":[{"role":"assistant","content":"","function_call":{"name":"f","arguments":"{}"}}]}`,
		},
		{
			"members of one name are passed on", `[{"role":"user","content":"a","content":"b"}]`, `{"content":"c"}`, "", false,
			`{"messages":[{"role":"user","content":"a","content":"b"},{"role":"assistant","content":"c"}]}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := fold.Example([]byte("before "), []byte(c.messages), []byte(c.response), []byte(c.tools), c.folded)
			if err != nil || string(got) != "before "+c.want {
				t.Errorf("%v\n%s\nwant\n%s", err, got, c.want)
			}
			if !stdjson.Valid([]byte(strings.TrimPrefix(string(got), "before "))) {
				t.Errorf("%s is no JSON", got)
			}
		})
	}
}

func TestExampleRefusesInvalidExchanges(t *testing.T) {
	for _, c := range []struct {
		messages, response, tools string
		want                      error
	}{
		{`{}`, `{}`, ``, fold.ErrMessages},
		{``, `{}`, ``, fold.ErrMessages},
		{`[1]`, `{}`, ``, fold.ErrMessages},
		{`[{}`, `{}`, ``, fold.ErrMessages},
		{`[]`, `null`, ``, fold.ErrResponse},
		{`[]`, ``, ``, fold.ErrResponse},
		{`[]`, `{}`, `{}`, fold.ErrTools},
		{`[]`, `{}`, `[`, fold.ErrTools},
	} {
		got, err := fold.Example([]byte("before"), []byte(c.messages), []byte(c.response), []byte(c.tools), true)
		if !errors.Is(err, c.want) || string(got) != "before" {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}
