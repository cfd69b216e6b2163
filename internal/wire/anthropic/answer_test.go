package anthropic_test

import (
	"fmt"
	"strings"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/shared"
	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"sovereign/internal/text/sse"
	"sovereign/internal/wire/chat"
)

const messageHead = `{"id":"msg_1","type":"message","role":"assistant","model":"claude-opus-4-8",`

func TestAnAnswerIsTranslated(t *testing.T) {
	for _, c := range []struct{ name, theirs, ours string }{
		{
			"text and usage",
			messageHead + `"content":[{"type":"text","text":"Hi ","citations":null},{"type":"text","text":"you"}],"stop_reason":"end_turn","stop_sequence":null,"container":null,"usage":{"input_tokens":10,"cache_read_input_tokens":100,"cache_creation_input_tokens":1000,"cache_creation":{"ephemeral_5m_input_tokens":1000,"ephemeral_1h_input_tokens":0},"output_tokens":7,"output_tokens_details":{"thinking_tokens":5},"service_tier":"standard"}}`,
			`{"id":"msg_1","object":"chat.completion","created":1700000000,"model":"claude-opus-4-8","choices":[{"index":0,"message":{"role":"assistant","content":"Hi you","refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":1110,"completion_tokens":7,"total_tokens":1117,"prompt_tokens_details":{"cached_tokens":100,"cache_write_tokens":1000,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":5,"audio_tokens":0}}}`,
		},
		{
			"thoughts and calls",
			messageHead + `"content":[{"type":"thinking","thinking":"h","signature":"s"},{"type":"redacted_thinking","data":"d"},{"type":"thinking","thinking":"m","signature":"s2"},{"type":"tool_use","id":"t1","name":"f","input":{ "a": [1, "ä"] },"caller":{"type":"direct"}},{"type":"tool_use","id":"t2","name":"g","input":{}}],"stop_reason":"tool_use"}`,
			`{"id":"msg_1","object":"chat.completion","created":1700000000,"model":"claude-opus-4-8","choices":[{"index":0,"message":{"role":"assistant","content":null,"reasoning_content":"hm","reasoning_details":[{"type":"reasoning.text","text":"h","signature":"s","format":"anthropic-claude-v1","model":"claude-opus-4-8"},{"type":"reasoning.encrypted","data":"d","format":"anthropic-claude-v1","model":"claude-opus-4-8"},{"type":"reasoning.text","text":"m","signature":"s2","format":"anthropic-claude-v1","model":"claude-opus-4-8"}],"refusal":null,"tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":"{\"a\":[1,\"ä\"]}"}},{"id":"t2","type":"function","function":{"name":"g","arguments":"{}"}}]},"logprobs":null,"finish_reason":"tool_calls"}]}`,
		},
		{
			"thoughts in between",
			messageHead + `"content":[{"type":"text","text":"ä"},{"type":"thinking","thinking":"h","signature":"s"},{"type":"tool_use","id":"t1","name":"f","input":{}},{"type":"redacted_thinking","data":"d"}],"stop_reason":"tool_use"}`,
			`{"id":"msg_1","object":"chat.completion","created":1700000000,"model":"claude-opus-4-8","choices":[{"index":0,"message":{"role":"assistant","content":"ä","reasoning_content":"h","reasoning_details":[{"type":"reasoning.text","text":"h","signature":"s","format":"anthropic-claude-v1","model":"claude-opus-4-8","place":{"text":2}},{"type":"reasoning.encrypted","data":"d","format":"anthropic-claude-v1","model":"claude-opus-4-8","place":{"text":2,"calls":1}}],"refusal":null,"tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":"{}"}}]},"logprobs":null,"finish_reason":"tool_calls"}]}`,
		},
		{
			"nothing",
			messageHead + `"content":[],"stop_reason":"end_turn"}`,
			`{"id":"msg_1","object":"chat.completion","created":1700000000,"model":"claude-opus-4-8","choices":[{"index":0,"message":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":"stop"}]}`,
		},
		{
			"refusal",
			messageHead + `"content":[],"stop_reason":"refusal","stop_details":{"type":"refusal","category":"bio","explanation":"No."}}`,
			`{"id":"msg_1","object":"chat.completion","created":1700000000,"model":"claude-opus-4-8","choices":[{"index":0,"message":{"role":"assistant","content":null,"refusal":"No."},"logprobs":null,"finish_reason":"content_filter"}]}`,
		},
	} {
		message(t, c.theirs)
		if diff := cmp.Diff(c.ours, string(translateBody(t, c.theirs))); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

// finishReasons has every stop reason of the SDK.
var finishReasons = map[sdk.StopReason]string{
	sdk.StopReasonEndTurn: "stop", sdk.StopReasonStopSequence: "stop", sdk.StopReasonMaxTokens: "length", sdk.StopReasonToolUse: "tool_calls",
	sdk.StopReasonPauseTurn: "length", sdk.StopReasonRefusal: "content_filter", sdk.StopReasonModelContextWindowExceeded: "length",
}

func TestEveryStopReasonHasItsFinishReason(t *testing.T) {
	for reason, want := range finishReasons {
		whole := translateAnswer(t, messageHead+fmt.Sprintf(`"content":[{"type":"text","text":"x"}],"stop_reason":%q}`, reason))
		if got := whole.Choices[0].FinishReason; got != want {
			t.Errorf("%s: %s, want %s", reason, got, want)
		}
		out, err := translateEvents(newExchange(t), `{"type":"message_start","message":`+messageHead+`"content":[]}}`,
			fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":%q}}`, reason), `{"type":"message_stop"}`)
		if err != nil || !strings.Contains(out, fmt.Sprintf(`"finish_reason":%q`, want)) || !strings.HasSuffix(out, "data: [DONE]\n\n") {
			t.Errorf("%s: %s %v", reason, out, err)
		}
	}
}

// translateEvents returns the translation of events.
func translateEvents(e interface {
	Event(to []byte, e sse.Event) ([]byte, error)
}, data ...string,
) (string, error) {
	var out []byte
	for _, d := range data {
		var err error
		if out, err = e.Event(out, sse.Event{Data: []byte(d)}); err != nil {
			return string(out), err
		}
	}
	return string(out), nil
}

func TestUnknownContentOfAnAnswerIsAnError(t *testing.T) {
	for _, body := range []string{
		``, `null`, `[]`, `{`, `{}`, `{"type":"completion"}`,
		messageHead + `"content":[{"type":"text","text":"x"}]}`,
		messageHead + `"content":[{"type":"text","text":"x"}],"stop_reason":"bored"}`,
		messageHead + `"content":[{"type":"server_tool_use","id":"s","name":"web_search","input":{}}],"stop_reason":"end_turn"}`,
		messageHead + `"content":[{"type":"song"}],"stop_reason":"end_turn"}`,
		messageHead + `"content":[{"type":"text","text":"x","citations":[{"type":"page_location"}]}],"stop_reason":"end_turn"}`,
		messageHead + `"content":[{"type":"tool_use","id":"t","name":"f","input":"x"}],"stop_reason":"end_turn"}`,
	} {
		if out, err := newExchange(t).Answer([]byte(body)); err == nil {
			t.Errorf("%s: %s", body, out)
		}
	}
}

func TestUsageIsMergedByFieldAndNilIsNotZero(t *testing.T) {
	for _, c := range []struct{ start, delta, want string }{
		{`null`, `null`, ``},
		{`{}`, `{}`, ``},
		{`{"input_tokens":5}`, `null`, ``},
		{`{}`, `{"output_tokens":5}`, ``},
		{`{"cache_read_input_tokens":5,"output_tokens":1}`, `{"output_tokens":5}`, ``},
		{`{"input_tokens":0,"output_tokens":0}`, `{}`, `0 0 0 0 0`},
		{`{"input_tokens":5,"output_tokens":1}`, `{"output_tokens":9}`, `5 0 0 9 0`},
		{`{"input_tokens":5,"output_tokens":1}`, `{"output_tokens":0}`, `5 0 0 0 0`},
		{`{"input_tokens":5,"cache_read_input_tokens":7,"cache_creation_input_tokens":11,"output_tokens":1}`, `{"output_tokens":9}`, `23 7 11 9 0`},
		{`{"input_tokens":5,"cache_read_input_tokens":7,"output_tokens":1}`, `{"input_tokens":null,"cache_read_input_tokens":8,"cache_creation_input_tokens":1,"output_tokens":9,"output_tokens_details":{"thinking_tokens":4}}`, `14 8 1 9 4`},
		{`{"input_tokens":5,"output_tokens":1,"output_tokens_details":{"thinking_tokens":4}}`, `{"output_tokens":9,"output_tokens_details":null}`, `5 0 0 9 4`},
	} {
		out, err := translateEvents(newExchange(t), `{"type":"message_start","message":`+messageHead+`"content":[],"usage":`+c.start+`}}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":`+c.delta+`}`, `{"type":"message_stop"}`)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for line := range strings.SplitSeq(out, "\n") {
			var chunk struct {
				Usage *chat.Usage `json:"usage"`
			}
			if data, ok := strings.CutPrefix(line, "data: {"); ok && json.Unmarshal([]byte("{"+data), &chunk) == nil && chunk.Usage != nil {
				u := chunk.Usage
				if u.TotalTokens != u.PromptTokens+u.CompletionTokens {
					t.Errorf("%s: the total is no sum", data)
				}
				got = fmt.Sprint(u.PromptTokens, u.PromptTokensDetails.CachedTokens, u.PromptTokensDetails.CacheWriteTokens, u.CompletionTokens, u.CompletionTokensDetails.ReasoningTokens)
			}
		}
		if got != c.want {
			t.Errorf("%s + %s: %q, want %q", c.start, c.delta, got, c.want)
		}
	}
}

var errorStatuses = map[string]int{
	"invalid_request_error": 400, "authentication_error": 401, "billing_error": 402, "permission_error": 403, "not_found_error": 404,
	"request_too_large": 413, "rate_limit_error": 429, "api_error": 500, "timeout_error": 504, "overloaded_error": 529, "new_error": 502,
}

func TestEveryErrorHasItsStatus(t *testing.T) {
	for kind, status := range errorStatuses {
		body := fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":"It \"failed\"."},"request_id":"req_1"}`, kind)
		var decoded shared.ErrorResponse
		if err := decoded.UnmarshalJSON([]byte(body)); err != nil || decoded.Error.AsAny() == nil && kind != "new_error" && kind != "request_too_large" {
			t.Errorf("the SDK does not know %s: %v", kind, err)
		}
		want := fmt.Sprintf(`{"error":{"message":"It \"failed\".","type":%q,"code":%d,"param":null}}`, kind, status)
		if out := translateBody(t, body); string(out) != want {
			t.Errorf("in an answer: %s", out)
		}
		if out, err := translateEvents(newExchange(t), body); err != nil || out != "data: "+want+"\n\n" {
			t.Errorf("in a stream: %s %v", out, err)
		}
		if got, out := dialect.ErrorAnswer(status, []byte(body)); got != status || string(out) != want {
			t.Errorf("as a refusal: %d %s", got, out)
		}
	}
}

func TestAnExhaustedCreditBalanceIsStatus402(t *testing.T) {
	body := `{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing."}}`
	if status, out := dialect.ErrorAnswer(400, []byte(body)); status != 402 || !strings.Contains(string(out), `"code":402`) {
		t.Error(status, string(out))
	}
	if out := translateBody(t, body); !strings.Contains(string(out), `"code":402`) {
		t.Error(string(out))
	}
}

func TestAnErrorInAnotherFormStaysAsItIs(t *testing.T) {
	for _, body := range []string{``, `<html>Bad`, `{"error":"x"}`, `{}`, `{"error":{"type":""}}`, `{"detail":"x"}`} {
		if status, out := dialect.ErrorAnswer(503, []byte(body)); status != 503 || string(out) != body {
			t.Errorf("%s: %d %s", body, status, out)
		}
	}
}
