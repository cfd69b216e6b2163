package gemini_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genai"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/upstream"
)

func TestAnAnswerIsTranslated(t *testing.T) {
	const answer = `{"candidates":[{"content":{"role":"model","parts":[
		{"text":"hm","thought":true},{"text":"m","thought":true,"thoughtSignature":"AAAA"},{"text":"ha","thought":true},
		{"text":"Well, "},{"text":"so.","thoughtSignature":"BBBB"},
		{"functionCall":{"id":"given","name":"f","args":{ "a" : [1, 2] }},"thoughtSignature":"CCCC"},{"functionCall":{"name":"g"}}]},
		"finishReason":"STOP","safetyRatings":[{"category":"HARM_CATEGORY_HARASSMENT","probability":"LOW"}]}],
		"usageMetadata":{"promptTokenCount":100,"toolUsePromptTokenCount":5,"cachedContentTokenCount":40,"candidatesTokenCount":20,"thoughtsTokenCount":7,"totalTokenCount":9999,
			"promptTokensDetails":[{"modality":"TEXT","tokenCount":70},{"modality":"AUDIO","tokenCount":30}],"cacheTokensDetails":[{"modality":"AUDIO","tokenCount":10}],
			"candidatesTokensDetails":[{"modality":"TEXT","tokenCount":20}]},
		"modelVersion":"gemini-3-flash-001","responseId":"r1"}`
	_, text := translateAnswer(t, hello, answer)
	assertEqual(t, text, `{"id":"r1","object":"chat.completion","created":1700000000,"model":"gemini-3-flash-001","choices":[{"index":0,"logprobs":null,"finish_reason":"tool_calls","message":{
		"role":"assistant","content":"Well, so.","reasoning_content":"hmmha","reasoning_details":[{"type":"reasoning.text","text":"hmm","signature":"AAAA","format":"google-gemini-v1"},{"type":"reasoning.text","text":"ha","format":"google-gemini-v1"}],"refusal":null,
		"extra_content":{"google":{"thought_signature":"BBBB"}},
		"tool_calls":[{"id":"given","type":"function","function":{"name":"f","arguments":"{\"a\":[1,2]}"},"extra_content":{"google":{"thought_signature":"CCCC"}}},
			{"id":"call_r1_0_1","type":"function","function":{"name":"g","arguments":"{}"}}]}}],
		"usage":{"prompt_tokens":105,"completion_tokens":27,"total_tokens":132,"prompt_tokens_details":{"cached_tokens":40,"cache_write_tokens":0,"audio_tokens":20},
			"completion_tokens_details":{"reasoning_tokens":7,"audio_tokens":0}}}`)
}

func TestMissingIDAndModelAreFilledIn(t *testing.T) {
	a, _ := translateAnswer(t, hello, `{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{}}}]},"finishReason":"STOP"}]}`)
	if a.ID != "req_1" || a.Model != now || a.Choices[0].Message.ToolCalls[0].ID != "call_req_1_0_0" || a.Choices[0].Message.Content != nil {
		t.Errorf("%+v", a)
	}
}

func TestMissingUsageIsNotZero(t *testing.T) {
	for _, usage := range []string{``, `,"usageMetadata":{}`, `,"usageMetadata":{"candidatesTokenCount":5}`} {
		a, text := translateAnswer(t, hello, `{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}]`+usage+`}`)
		if a.Usage != nil || strings.Contains(text, "usage") {
			t.Errorf("%s: %s", usage, text)
		}
	}
}

func TestCandidatesAreChoices(t *testing.T) {
	a, _ := translateAnswer(t, helloWith(`"n":3`), `{"candidates":[{"index":2,"content":{"parts":[{"text":"c"}]},"finishReason":"MAX_TOKENS"},{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}`)
	if len(a.Choices) != 2 || a.Choices[0].Index != 0 || *a.Choices[0].Message.Content != "a" || a.Choices[1].Index != 2 || a.Choices[1].FinishReason != "length" {
		t.Errorf("%+v", a.Choices)
	}
}

func TestLogprobsAreTranslated(t *testing.T) {
	_, text := translateAnswer(t, helloWith(`"logprobs":true,"top_logprobs":1`), `{"candidates":[{"content":{"parts":[{"text":"é!"}]},"finishReason":"STOP","logprobsResult":{
		"chosenCandidates":[{"token":"é","tokenId":5,"logProbability":-0.5},{"token":"!"}],"topCandidates":[{"candidates":[{"token":"e","logProbability":-0.25}]}]}}]}`)
	assertEqual(t, text, `{"id":"req_1","object":"chat.completion","created":1700000000,"model":"gemini-3-flash","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"é!","refusal":null},
		"logprobs":{"refusal":null,"content":[{"token":"é","logprob":-0.5,"bytes":[195,169],"top_logprobs":[{"token":"e","logprob":-0.25,"bytes":[101]}]},{"token":"!","logprob":0,"bytes":[33],"top_logprobs":[]}]}}]}`)
}

// failure is an error answer.
type failure struct {
	Error struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Code    int    `json:"code"`
	} `json:"error"`
}

// finishReasons has every finish reason of the SDK, and further ones of the API. Those that are errors map to none.
var finishReasons = map[genai.FinishReason]string{
	genai.FinishReasonUnspecified:            "",
	genai.FinishReasonStop:                   "stop",
	genai.FinishReasonMaxTokens:              "length",
	genai.FinishReasonSafety:                 "content_filter",
	genai.FinishReasonRecitation:             "content_filter",
	genai.FinishReasonLanguage:               "content_filter",
	genai.FinishReasonOther:                  "content_filter",
	genai.FinishReasonBlocklist:              "content_filter",
	genai.FinishReasonProhibitedContent:      "content_filter",
	genai.FinishReasonSPII:                   "content_filter",
	genai.FinishReasonMalformedFunctionCall:  "",
	genai.FinishReasonImageSafety:            "content_filter",
	genai.FinishReasonUnexpectedToolCall:     "",
	genai.FinishReasonTooManyToolCalls:       "",
	genai.FinishReasonImageProhibitedContent: "content_filter",
	genai.FinishReasonNoImage:                "",
	genai.FinishReasonImageRecitation:        "content_filter",
	genai.FinishReasonImageOther:             "content_filter",
	genai.FinishReasonContinuation:           "length",
	"MALFORMED_RESPONSE":                     "",
	"MISSING_THOUGHT_SIGNATURE":              "",
}

func TestEveryFinishReasonIsMapped(t *testing.T) {
	for theirs, ours := range finishReasons {
		answer := fmt.Sprintf(`{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":%q,"finishMessage":"because"}],"usageMetadata":{"promptTokenCount":1}}`, theirs)
		a, text := translateAnswer(t, hello, answer)
		streamed := string(stream(t, hello, "data: "+answer+"\n\n"))
		if ours == "" {
			var f failure
			if err := json.Unmarshal([]byte(text), &f); err != nil || f.Error.Code != 502 || !strings.HasSuffix(f.Error.Message, ": because") {
				t.Errorf("%s: %s", theirs, text)
			}
			if !strings.HasSuffix(streamed, "data: "+text+"\n\nunexpected EOF") {
				t.Errorf("%s: %s", theirs, streamed)
			}
			continue
		}
		if len(a.Choices) != 1 || a.Choices[0].FinishReason != ours || *a.Choices[0].Message.Content != "x" {
			t.Errorf("%s: %s, want %s", theirs, text, ours)
		}
		if !strings.Contains(streamed, `"finish_reason":"`+ours+`"`) || !strings.HasSuffix(streamed, "data: [DONE]\n\n") {
			t.Errorf("%s: %s, want %s", theirs, streamed, ours)
		}
	}
}

func TestFinishReasonWithCalls(t *testing.T) {
	for theirs, ours := range map[string]string{"STOP": "tool_calls", "MAX_TOKENS": "length", "SAFETY": "content_filter"} {
		a, _ := translateAnswer(t, hello, `{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f"}}]},"finishReason":"`+theirs+`"}]}`)
		if got := a.Choices[0].FinishReason; got != ours {
			t.Errorf("%s: %s, want %s", theirs, got, ours)
		}
	}
}

func TestABlockedPromptIsContentFilter(t *testing.T) {
	for _, reason := range []genai.BlockedReason{genai.BlockedReasonSafety, genai.BlockedReasonOther, genai.BlockedReasonBlocklist, genai.BlockedReasonProhibitedContent, genai.BlockedReasonImageSafety, genai.BlockedReasonUnspecified} {
		a, _ := translateAnswer(t, helloWith(`"n":2`), fmt.Sprintf(`{"promptFeedback":{"blockReason":%q},"usageMetadata":{"promptTokenCount":3}}`, reason))
		if len(a.Choices) != 1 || a.Choices[0].FinishReason != "content_filter" || *a.Choices[0].Message.Content != "" || a.Usage.PromptTokens != 3 {
			t.Errorf("%s: %+v", reason, a)
		}
	}
}

func TestAnInvalidAnswerIsAnError(t *testing.T) {
	part := func(p string) string {
		return `{"candidates":[{"content":{"parts":[` + p + `]},"finishReason":"STOP"}]}`
	}
	for name, answer := range map[string]string{
		"no JSON":              `<html>`,
		"half":                 `{"candidates":[`,
		"nothing":              `{}`,
		"a picture":            part(`{"inlineData":{"mimeType":"image/png","data":"AAAA"}}`),
		"a signed picture":     part(`{"inlineData":{"mimeType":"image/png","data":"AAAA"},"thoughtSignature":"AAAA"}`),
		"code":                 part(`{"executableCode":{"code":"x","language":"PYTHON"}}`),
		"a result of code":     part(`{"codeExecutionResult":{"outcome":"OUTCOME_OK"}}`),
		"a file":               part(`{"fileData":{"fileUri":"x"}}`),
		"a tool's call":        part(`{"toolCall":{"id":"x"}}`),
		"what comes some day":  part(`{"smell":{}}`),
		"a call of nothing":    part(`{"functionCall":{"args":{}}}`),
		"a call without sense": part(`{"functionCall":{"name":"f","args":[1]}}`),
		"an unknown end":       `{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"TIRED"}]}`,
		"no end":               `{"candidates":[{"content":{"parts":[{"text":"x"}]}}]}`,
		"too many":             `{"candidates":[{"index":1,"finishReason":"STOP"}]}`,
		"a negative index":     `{"candidates":[{"index":-1,"finishReason":"STOP"}]}`,
		"one twice":            `{"candidates":[{"finishReason":"STOP"},{"finishReason":"STOP"}]}`,
	} {
		e, err := dialect.NewExchange(request(now, upstream.ChatPath, hello, false))
		if err != nil {
			t.Fatal(err)
		}
		if text, err := e.Answer([]byte(answer)); err == nil {
			t.Errorf("%s: %s", name, text)
		}
	}
}

func TestEveryErrorHasItsStatus(t *testing.T) {
	const keyInvalid = `[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com","metadata":{"service":"x"}}]`
	const retryInfo = `[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaValue":"10"}]},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"31s"}]`
	for _, c := range []struct {
		status  int
		code    int
		word    string
		details string
		want    int
		kind    string
	}{
		{400, 400, "INVALID_ARGUMENT", "", 400, "invalid_request_error"},
		{400, 400, "INVALID_ARGUMENT", keyInvalid, 401, "invalid_request_error"},
		{400, 400, "FAILED_PRECONDITION", "", 400, "invalid_request_error"},
		{400, 400, "OUT_OF_RANGE", "", 400, "invalid_request_error"},
		{401, 401, "UNAUTHENTICATED", "", 401, "invalid_request_error"},
		{403, 403, "PERMISSION_DENIED", "", 403, "invalid_request_error"},
		{404, 404, "NOT_FOUND", "", 404, "invalid_request_error"},
		{409, 409, "ALREADY_EXISTS", "", 409, "invalid_request_error"},
		{409, 409, "ABORTED", "", 503, "api_error"},
		{429, 429, "RESOURCE_EXHAUSTED", "", 429, "rate_limit_error"},
		{429, 429, "RESOURCE_EXHAUSTED", retryInfo, 429, "rate_limit_error"},
		{499, 499, "CANCELLED", "", 503, "api_error"},
		{500, 500, "UNKNOWN", "", 500, "api_error"},
		{500, 500, "INTERNAL", "", 500, "api_error"},
		{500, 500, "DATA_LOSS", "", 500, "api_error"},
		{501, 501, "UNIMPLEMENTED", "", 501, "api_error"},
		{503, 503, "UNAVAILABLE", "", 503, "api_error"},
		{504, 504, "DEADLINE_EXCEEDED", "", 504, "api_error"},
		{413, 413, "", "", 413, "invalid_request_error"},
		{413, 413, "REQUEST_TOO_LARGE", "", 413, "invalid_request_error"},
		{418, 0, "", "", 418, "invalid_request_error"},
	} {
		body := fmt.Sprintf(`{"error":{"code":%d,"message":"so it is","status":%q,"details":%s}}`, c.code, c.word, "["+strings.TrimSuffix(strings.TrimPrefix(c.details, "["), "]")+"]")
		const message = "so it is"
		wait := time.Duration(0)
		if c.details == retryInfo {
			wait = 31 * time.Second
		}
		for _, text := range []string{body, "[" + body + "\n]\n"} {
			if got := dialect.RetryAfter([]byte(text)); got != wait {
				t.Errorf("%s asks to be left alone for %s", text, got)
			}
			status, translated := dialect.ErrorAnswer(c.status, []byte(text))
			var f failure
			if err := json.Unmarshal(translated, &f); err != nil {
				t.Fatal(err)
			}
			if status != c.want || f.Error.Code != c.want || f.Error.Type != c.kind || f.Error.Message != message {
				t.Errorf("%s: %d %s, want %d %s", text, status, translated, c.want, c.kind)
			}
		}
		if c.code == 0 {
			continue
		}
		_, text := answeredError(t, body)
		streamed := string(stream(t, hello, "data: "+body+"\n\n"))
		if text.Error.Code != c.want || !strings.Contains(streamed, fmt.Sprintf(`"code":%d`, c.want)) {
			t.Errorf("%s inside: %+v %s, want %d", body, text, streamed, c.want)
		}
	}
}

func answeredError(t *testing.T, body string) (string, failure) {
	t.Helper()
	e, err := dialect.NewExchange(request(now, upstream.ChatPath, hello, false))
	if err != nil {
		t.Fatal(err)
	}
	text, err := e.Answer([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	var f failure
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	return string(text), f
}

func TestAnErrorOfUnknownStatusNameKeepsItsStatus(t *testing.T) {
	if status, text := dialect.ErrorAnswer(413, []byte(`{"error":{"code":400,"message":"too much","status":"REQUEST_TOO_LARGE"}}`)); status != 413 || !bytes.Contains(text, []byte(`"code":413`)) {
		t.Errorf("%d %s", status, text)
	}
}

func TestWithoutParallelCallsOnlyTheFirstIsReturned(t *testing.T) {
	const answer = `{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f"},"thoughtSignature":"AAAA"},{"functionCall":{"name":"g"}},{"text":"so"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1}}`
	body := helloWith(`"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}],"parallel_tool_calls":false`)
	whole, text := translateAnswer(t, body, answer)
	if calls := whole.Choices[0].Message.ToolCalls; len(calls) != 1 || calls[0].Function.Name != "f" || whole.Choices[0].FinishReason != "tool_calls" {
		t.Error(text)
	}
	if d := cmp.Diff(whole, assemble(t, stream(t, body, "data: "+answer+"\n\n"), false)); d != "" {
		t.Error(d)
	}
}

func TestAnErrorInAnotherFormStaysAsItIs(t *testing.T) {
	for _, body := range []string{``, `<html>no</html>`, `{"error":{"code":40`, `[]`, `null`, `{"detail":"x"}`} {
		if status, text := dialect.ErrorAnswer(http.StatusBadGateway, []byte(body)); status != http.StatusBadGateway || string(text) != body {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
}

func TestTextsAreEmbedded(t *testing.T) {
	ask := func(body string) upstream.Exchange {
		e, err := dialect.NewExchange(request("gemini-embedding-001", upstream.EmbeddingsPath, body, false))
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return e
	}
	for body, want := range map[string]string{
		`{"model":"m","input":"a"}`: `{"requests":[{"model":"models/gemini-embedding-001","content":{"parts":[{"text":"a"}]}}]}`,
		`{"model":"m","input":["a","b"],"dimensions":2,"encoding_format":"float","task_type":"RETRIEVAL_DOCUMENT","title":"t","user":"u"}`: `{"requests":[
			{"model":"models/gemini-embedding-001","content":{"parts":[{"text":"a"}]},"taskType":"RETRIEVAL_DOCUMENT","title":"t","outputDimensionality":2},
			{"model":"models/gemini-embedding-001","content":{"parts":[{"text":"b"}]},"taskType":"RETRIEVAL_DOCUMENT","title":"t","outputDimensionality":2}]}`,
	} {
		_, translated := ask(body).Request()
		assertEqual(t, string(translated), want)
	}

	floats, err := ask(`{"input":["a","b"]}`).Answer([]byte(`{"embeddings":[{"values":[1,-0.5]},{"values":[0.25,2]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	assertEqual(t, string(floats), `{"object":"list","model":"gemini-embedding-001","data":[{"object":"embedding","index":0,"embedding":[1,-0.5]},{"object":"embedding","index":1,"embedding":[0.25,2]}]}`)

	raw := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, math.Float32bits(1)), math.Float32bits(-0.5))
	packed, err := ask(`{"input":"a","encoding_format":"base64"}`).Answer([]byte(`{"embeddings":[{"values":[1,-0.5]}],"usageMetadata":{"promptTokenCount":4}}`))
	if err != nil {
		t.Fatal(err)
	}
	assertEqual(t, string(packed), `{"object":"list","model":"gemini-embedding-001","data":[{"object":"embedding","index":0,"embedding":"`+base64.StdEncoding.EncodeToString(raw)+`"}],"usage":{"prompt_tokens":4,"total_tokens":4}}`)

	for _, answer := range []string{`{}`, `{"embeddings":[{"values":[1]},{"values":[1]}]}`, `{"embeddings":[{"values":[]}]}`, `{"embeddings":[{"values":[1e39]}]}`, `x`} {
		if text, err := ask(`{"input":"a","encoding_format":"base64"}`).Answer([]byte(answer)); err == nil {
			t.Errorf("%s: %s", answer, text)
		}
	}
}

func TestEmbeddingParametersAreRefusedByName(t *testing.T) {
	many := `"` + strings.Repeat(`x","`, 100) + `"`
	for body, want := range map[string]string{
		`{"model":"m"}`: "input", `{"input":null}`: "input", `{"input":[]}`: "input", `{"input":[1,2]}`: "input", `{"input":[[1,2]]}`: "input", `{"input":[` + many + `]}`: "input",
		`{"input":"a","dimensions":0}`: "dimensions", `{"input":"a","encoding_format":"hex"}`: "encoding_format", `{"input":"a","wish":1}`: "wish", `{"input":"a","task_type":5}`: "task_type",
	} {
		_, err := dialect.NewExchange(request(now, upstream.EmbeddingsPath, body, false))
		var f *fault.Fault
		if !errors.As(err, &f) || f.Field != want || f.Status != 400 {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
}
