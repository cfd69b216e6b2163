package chat_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"sovereign/internal/text/scan"
	"sovereign/internal/wire/chat"
)

func TestAReplayIsInOpenAIsFraming(t *testing.T) {
	const whole = `{"id":"c1","object":"chat.completion","created":7,"model":"m","citations":["u"],"choices":[{"index":0,"message":{
		"role":"assistant","content":"Hi","reasoning_content":"Hm","refusal":null,"mood":1,
		"tool_calls":[{"index":5,"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"index":5,"id":"b","type":"function","function":{"name":"g","arguments":""}}]},
		"logprobs":{"content":[{"token":"Hi"}]},"finish_reason":"tool_calls","stop_reason":4}],"usage":{"total_tokens":3}}`
	want := []string{
		`{HEAD,"citations":["u"],"choices":[{"index":0,"delta":{"role":"assistant","refusal":null,"mood":1,"content":""},"finish_reason":null}]NULL}`,
		`{HEAD,"choices":[{"index":0,"delta":{"reasoning_content":"Hm"},"finish_reason":null}]NULL}`,
		`{HEAD,"choices":[{"index":0,"delta":{"content":"Hi"},"logprobs":{"content":[{"token":"Hi"}]},"finish_reason":null}]NULL}`,
		`{HEAD,"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}]},"finish_reason":null}]NULL}`,
		`{HEAD,"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]},"finish_reason":null}]NULL}`,
		`{HEAD,"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":""}}]},"finish_reason":null}]NULL}`,
		`{HEAD,"choices":[{"index":0,"delta":{},"stop_reason":4,"finish_reason":"tool_calls"}]NULL}`,
	}
	for _, usage := range []bool{false, true} {
		null, all := "", want
		if usage {
			null, all = `,"usage":null`, slices.Concat(want, []string{`{HEAD,"choices":[],"usage":{"total_tokens":3}}`})
		}
		var stream strings.Builder
		for _, event := range slices.Concat(all, []string{"[DONE]"}) {
			stream.WriteString("data: " + event + "\n\n")
		}
		text := strings.NewReplacer("HEAD", `"id":"c1","created":7,"model":"m","object":"chat.completion.chunk"`, "NULL", null).Replace(stream.String())
		if got, err := chat.Replay([]byte(whole), usage); err != nil || string(got) != text {
			t.Errorf("usage %v: %v\n got %s\nwant %s", usage, err, got, text)
		}
	}
}

func TestAnInvalidAnswerIsNotReplayed(t *testing.T) {
	for whole, want := range map[string]error{
		`{`: scan.ErrSyntax, `[]`: scan.ErrSyntax, ``: scan.ErrSyntax, `{"id":1,"id":2,"choices":[]}`: scan.ErrDuplicate,
		`{}`: chat.ErrNoChoices, `{"choices":[]}`: chat.ErrNoChoices, `{"choices":{}}`: chat.ErrNoChoices,
		`{"choices":[{"index":0,"message":{"content":"x"}}],"error":{"message":"x"}}`: chat.ErrNoChoices,
		`{"choices":[{"index":0}]}`:                                                          scan.ErrSyntax,
		`{"choices":[{"index":0,"message":{"tool_calls":[5]}}]}`:                             scan.ErrSyntax,
		`{"choices":[{"message":{"tool_calls":[{}` + strings.Repeat(",{}", 1e5) + `]}}]}`:    chat.ErrTooLong,
		`{"data":[{"embedding":[0.1]}],"object":"list","usage":{"total_tokens":1},"id":"x"}`: chat.ErrNoChoices,
	} {
		if stream, err := chat.Replay([]byte(whole), true); !errors.Is(err, want) || stream != nil {
			t.Errorf("%.80s: %v", whole, err)
		}
	}
}

func TestALongAnswerIsReplayedWhole(t *testing.T) {
	text := strings.Repeat("word ", 1<<18)
	stream, err := chat.Replay([]byte(`{"choices":[{"message":{"content":"`+text+`"}}]}`), false)
	if err != nil || !bytes.Contains(stream, []byte(text)) {
		t.Errorf("%v", err)
	}
}
