package gemini_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"sovereign/internal/live"
	"sovereign/internal/wire/chat"
	"sovereign/internal/wire/upstream"
)

// recordedProvider answers with the given pieces.
type recordedProvider [][]byte

func (r recordedProvider) Send(context.Context, *upstream.Request) (*upstream.Response, error) {
	readers := make([]io.Reader, len(r))
	for i, piece := range r {
		readers[i] = bytes.NewReader(piece)
	}
	return &upstream.Response{Status: 200, ContentType: "text/event-stream", Body: io.NopCloser(io.MultiReader(readers...))}, nil
}

func (recordedProvider) Close() {}

// stream returns the translation of a stream that arrives in pieces, with the error that ended it.
func stream(t tester, body string, splitParts ...string) []byte {
	t.Helper()
	var sent recordedProvider
	for _, p := range splitParts {
		sent = append(sent, []byte(p))
	}
	s := upstream.NewTranslator(dialect, sent, func(*upstream.Request) bool { return true })
	response, err := s.Send(context.Background(), request(now, upstream.ChatPath, body, true))
	if err != nil {
		t.Fatalf("%v", err)
	}
	text, err := io.ReadAll(response.Body)
	if errors.Is(err, upstream.ErrInvalidAnswer) {
		err = upstream.ErrInvalidAnswer // its details may differ
	}
	if err != nil {
		text = append(text, err.Error()...)
	}
	return text
}

// event checks that the SDK's types know all of an event, and returns it.
func event(t tester, text string) string {
	googleAnswer(t, text)
	return "data: " + strings.Join(strings.Fields(text), " ") + "\r\n\r\n"
}

// recordings are streams in the shapes of Google's.
func recordings(t tester) map[string]struct{ body, events, whole string } {
	const tail = `,"modelVersion":"gemini-3-flash","responseId":"r1"}`
	translated := func(parts, more string) string {
		return event(t, `{"candidates":[{"content":{"parts":[`+parts+`],"role":"model"}`+more+`,"index":0}],"usageMetadata":{"promptTokenCount":10,"totalTokenCount":10,"promptTokensDetails":[{"modality":"TEXT","tokenCount":10}]}`+tail)
	}
	last := func(candidate string) string {
		return event(t, `{"candidates":[`+candidate+`],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":6,"totalTokenCount":20,"thoughtsTokenCount":4}`+tail)
	}
	whole := func(parts, finish string) string {
		return `{"candidates":[{"content":{"parts":[` + parts + `],"role":"model"},"finishReason":"` + finish + `"}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":6,"thoughtsTokenCount":4}` + tail
	}
	usage := helloWith(`"stream":true,"stream_options":{"include_usage":true}`)
	const f, g = `{"functionCall":{"name":"f","args":{"city":"Zürich"}},"thoughtSignature":"AAAA"}`, `{"functionCall":{"id":"x","name":"g","args":{}}}`
	return map[string]struct{ body, events, whole string }{
		"a text": {
			usage, translated(`{"text":"Ok"}`, "") + translated(`{"text":"ay, let's \"go\" 🎈"}`, "") + last(`{"content":{"parts":[{"text":"."}],"role":"model"},"finishReason":"STOP"}`),
			whole(`{"text":"Okay, let's \"go\" 🎈."}`, "STOP"),
		},
		"thoughts and a text, whose signature comes at last": {
			hello, translated(`{"text":"Let me ","thought":true}`, "") + translated(`{"text":"see.","thought":true}`, "") + translated(`{"text":"So"}`, "") + last(`{"content":{"parts":[{"text":"","thoughtSignature":"AAAA"}],"role":"model"},"finishReason":"STOP"}`),
			whole(`{"text":"Let me see.","thought":true},{"text":"So","thoughtSignature":"AAAA"}`, "STOP"),
		},
		"a thought that is signed": {
			hello, translated(`{"text":"Let me ","thought":true}`, "") + translated(`{"text":"see.","thought":true,"thoughtSignature":"AAAA"}`, "") + last(`{"content":{"parts":[{"text":"So"}]},"finishReason":"STOP"}`),
			whole(`{"text":"Let me see.","thought":true,"thoughtSignature":"AAAA"},{"text":"So"}`, "STOP"),
		},
		"calls in one event": {usage, last(`{"content":{"parts":[` + f + `,` + g + `],"role":"model"},"finishReason":"STOP"}`), whole(f+`,`+g, "STOP")},
		"calls in several": {
			hello, translated(f, "") + translated(g, "") + last(`{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"STOP"}`),
			whole(f+`,`+g, "STOP"),
		},
		"too long": {hello, translated(`{"text":"Ok"}`, "") + last(`{"content":{"role":"model"},"finishReason":"MAX_TOKENS"}`), whole(`{"text":"Ok"}`, "MAX_TOKENS")},
		"unsafe":   {hello, translated(`{"text":"Ok"}`, "") + last(`{"finishReason":"SAFETY","safetyRatings":[{"category":"HARM_CATEGORY_HARASSMENT","probability":"HIGH","blocked":true}]}`), whole(`{"text":"Ok"}`, "SAFETY")},
		"blocked at once": {
			hello, event(t, `{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":10}`+tail),
			`{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":10}` + tail,
		},
		"an end, and the usage after it": {
			usage, event(t, `{"candidates":[{"content":{"parts":[{"text":"Ok"}]},"finishReason":"STOP"}]`+tail) + event(t, `{"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":6,"thoughtsTokenCount":4}`+tail),
			whole(`{"text":"Ok"}`, "STOP"),
		},
		"a usage before the end, and the usage after it": {
			usage, translated(`{"text":"Ok"}`, "") + event(t, `{"candidates":[{"finishReason":"STOP"}]`+tail) + event(t, `{"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":6,"thoughtsTokenCount":4}`+tail),
			whole(`{"text":"Ok"}`, "STOP"),
		},
		"one candidate of two": {
			helloWith(`"n":2`), translated(`{"text":"a"}`, "") + last(`{"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}`),
			whole(`{"text":"ab"}`, "STOP"),
		},
		"texts that are signed, and one after a call": {
			hello, translated(`{"text":"a","thoughtSignature":"AAAA"}`, "") + translated(`{"text":"b"}`, "") + translated(f, "") + translated(`{"text":"hm","thought":true}`, "") + last(`{"content":{"parts":[{"text":"c"},{"text":"","thoughtSignature":"BBBB"}]},"finishReason":"STOP"}`),
			whole(`{"text":"a","thoughtSignature":"AAAA"},{"text":"b"},`+f+`,{"text":"hm","thought":true},{"text":"c","thoughtSignature":"BBBB"}`, "STOP"),
		},
		"two candidates": {
			helloWith(`"n":2`), translated(`{"text":"a"}`, "") + last(`{"index":1,"content":{"parts":[`+g+`]},"finishReason":"STOP"}`) + last(`{"content":{"parts":[{"text":"b"}]},"finishReason":"MAX_TOKENS"}`),
			`{"candidates":[{"content":{"parts":[{"text":"ab"}]},"finishReason":"MAX_TOKENS"},{"index":1,"content":{"parts":[` + g + `]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":6,"thoughtsTokenCount":4}` + tail,
		},
	}
}

const done = "data: [DONE]\n\n"

func TestAStreamCutAnywhereReadsTheSame(t *testing.T) {
	for name, c := range recordings(t) {
		want := stream(t, c.body, c.events)
		if !bytes.HasSuffix(want, []byte(done)) {
			t.Errorf("%s: %s", name, want)
		}
		for i := range len(c.events) {
			if got := stream(t, c.body, c.events[:i], c.events[i:]); !bytes.Equal(got, want) {
				t.Fatalf("%s, cut at %d: %s", name, i, got)
			}
		}
	}
}

func TestATruncatedStreamIsNeverComplete(t *testing.T) {
	for name, c := range recordings(t) {
		want := stream(t, c.body, c.events)
		for i := range len(c.events) - 2 { // the empty line after the last event
			got := stream(t, c.body, c.events[:i])
			translated, broke := bytes.CutSuffix(got, []byte("unexpected EOF"))
			if strings.HasSuffix(name, "the usage after it") && bytes.Contains(translated, []byte(`"finish_reason":"stop"`)) {
				continue // only the usage is missing, which the gateway then counts itself
			}
			if name == "one candidate of two" && bytes.Contains(translated, []byte(`"finish_reason":"stop"`)) {
				continue // the other may not come
			}
			if !broke || !bytes.HasPrefix(want, translated) || bytes.Contains(translated, []byte("[DONE]")) {
				t.Fatalf("%s, broken off at %d: %s", name, i, got)
			}
		}
	}
}

// assemble assembles a stream as a client does, and checks OpenAI's framing.
func assemble(t tester, text []byte, includeUsage bool) chat.Answer {
	t.Helper()
	body, ok := strings.CutSuffix(string(text), done)
	if !ok {
		t.Fatalf("no end: %s", text)
	}
	a := chat.Answer{Object: "chat.completion"}
	replies := map[int]*chat.Choice{}
	for i, line := range strings.SplitAfter(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		var c struct {
			chat.Chunk
			Usage *chat.Usage `json:"usage"`
		}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &c, json.RejectUnknownMembers(true)); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if i == 0 {
			a.ID, a.Created, a.Model = c.ID, c.Created, c.Model
		}
		if c.ID != a.ID || c.Created != a.Created || c.Model != a.Model || c.Object != "chat.completion.chunk" {
			t.Fatalf("%q is of another answer", line)
		}
		if len(c.Choices) == 0 {
			if a.Usage != nil || c.Usage == nil {
				t.Fatalf("%q says nothing", line)
			}
			a.Usage = c.Usage
			continue
		}
		if !includeUsage && strings.Contains(line, `"usage"`) {
			t.Fatalf("%q tells a usage", line)
		}
		add(t, replies, c.Choices[0], line)
	}
	for i := range len(replies) {
		if m := &replies[i].Message; m.Content == nil && m.ToolCalls == nil {
			m.Content = new(string) // a message without content has an empty text
		}
		a.Choices = append(a.Choices, *replies[i])
	}
	return a
}

func add(t tester, replies map[int]*chat.Choice, p chat.ChunkChoice, line string) {
	t.Helper()
	c := replies[p.Index]
	if (c == nil) != (p.Delta.Role == "assistant") {
		t.Fatalf("%q: a role", line)
	}
	if c == nil {
		c = &chat.Choice{Index: p.Index, Message: chat.Reply{Role: "assistant"}, Logprobs: jsontext.Value("null")}
		replies[p.Index] = c
	}
	if c.FinishReason != "" {
		t.Fatalf("%q comes after the end", line)
	}
	m, d := &c.Message, p.Delta
	if p.FinishReason != nil {
		if c.FinishReason = *p.FinishReason; !cmp.Equal(d, chat.Delta{}) {
			t.Fatalf("%q is no end", line)
		}
	}
	if d.Content != nil {
		if m.Content == nil {
			m.Content = new(string)
		}
		*m.Content += *d.Content
	}
	if d.ReasoningContent != nil {
		m.ReasoningContent += *d.ReasoningContent
	}
	for _, thought := range d.ReasoningDetails {
		at := *thought.Index
		thought.Index = nil
		switch n := len(m.ReasoningDetails); at {
		case n:
			m.ReasoningDetails = append(m.ReasoningDetails, thought)
		case n - 1:
			m.ReasoningDetails[at].Text += thought.Text
			m.ReasoningDetails[at].Signature += thought.Signature
		default:
			t.Fatalf("%q: a thought's index", line)
		}
	}
	if d.ExtraContent != nil {
		m.ExtraContent = d.ExtraContent
	}
	for _, call := range d.ToolCalls {
		if *call.Index == len(m.ToolCalls) {
			if call.ID == "" || call.Type != "function" || call.Function.Name == "" || call.Function.Arguments != "" {
				t.Fatalf("%q is no beginning of a call", line)
			}
			call.Index = nil
			m.ToolCalls = append(m.ToolCalls, call)
			continue
		}
		if call.ID != "" || call.Type != "" || call.Function.Name != "" {
			t.Fatalf("%q begins a call twice", line)
		}
		m.ToolCalls[*call.Index].Function.Arguments += call.Function.Arguments
	}
}

func TestAStreamYieldsTheSameAsTheCompleteAnswer(t *testing.T) {
	for name, c := range recordings(t) {
		whole, _ := translateAnswer(t, c.body, c.whole)
		if d := cmp.Diff(whole, assemble(t, stream(t, c.body, c.events), strings.Contains(c.body, "include_usage"))); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestAStreamIsTranslated(t *testing.T) {
	got := stream(t, hello, event(t, `{"candidates":[{"content":{"parts":[{"text":"Hm","thought":true}]}}],"responseId":"r1"}`)+
		event(t, `{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":1}},"thoughtSignature":"AAAA"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":2},"responseId":"r1"}`))
	const head = `data: {"id":"r1","object":"chat.completion.chunk","created":1700000000,"model":"gemini-3-flash","choices":[`
	want := head + `{"index":0,"delta":{"role":"assistant","reasoning_content":"Hm","reasoning_details":[{"type":"reasoning.text","text":"Hm","format":"google-gemini-v1","index":0}]},"finish_reason":null}]}` + "\n\n" +
		head + `{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_r1_0_0","type":"function","function":{"name":"f","arguments":""},"extra_content":{"google":{"thought_signature":"AAAA"}}}]},"finish_reason":null}]}` + "\n\n" +
		head + `{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":1}"}}]},"finish_reason":null}]}` + "\n\n" +
		head + `{"index":0,"delta":{},"finish_reason":"tool_calls"}]}` + "\n\n" +
		head + `],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"prompt_tokens_details":{"cached_tokens":0,"cache_write_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0}}}` + "\n\n" + done
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestNothingFollowsAnErrorInAStream(t *testing.T) {
	first := event(t, `{"candidates":[{"content":{"parts":[{"text":"Ok"}]}}]}`)
	const failure = "data: {\"error\":{\"code\":503,\"message\":\"The model is overloaded.\",\"status\":\"UNAVAILABLE\"}}\n\n"
	last := event(t, `{"candidates":[{"content":{"parts":[{"text":"Ok"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1}}`)
	got := string(stream(t, hello, first+failure+last))
	if !strings.Contains(got, `"content":"Ok"`) || !strings.HasSuffix(got, `data: {"error":{"message":"The model is overloaded.","type":"api_error","code":503,"param":null}}`+"\n\nunexpected EOF") {
		t.Error(got)
	}
}

func TestABlockedPromptEndsAStartedCandidate(t *testing.T) {
	got := assemble(t, stream(t, hello, event(t, `{"candidates":[{"content":{"parts":[{"text":"Ok"}]}}],"usageMetadata":{"promptTokenCount":1}}`)+event(t, `{"promptFeedback":{"blockReason":"SAFETY"}}`)), false)
	if *got.Choices[0].Message.Content != "Ok" || got.Choices[0].FinishReason != "content_filter" {
		t.Errorf("%+v", got)
	}
}

func TestTheLastUsageCounts(t *testing.T) {
	text := stream(t, hello, event(t, `{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1}}`)+
		event(t, `{"candidates":[{"content":{"parts":[{"text":"b"}]}}],"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":7}}`)+
		event(t, `{"candidates":[{"finishReason":"STOP"}]}`))
	if u := assemble(t, text, false).Usage; u == nil || u.CompletionTokens != 7 {
		t.Errorf("%s", text)
	}
}

func TestAnInvalidStreamIsAnError(t *testing.T) {
	const ok = `{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}`
	for name, events := range map[string][]string{
		"no JSON":              {`[DONE]`},
		"a picture":            {`{"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]}}]}`},
		"words after the end":  {ok, ok},
		"another candidate":    {`{"candidates":[{"index":1,"content":{"parts":[{"text":"a"}]}}]}`},
		"an unknown end":       {`{"candidates":[{"finishReason":"TIRED"}]}`},
		"a call without sense": {`{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":5}}]}}]}`},
	} {
		text := "data: " + strings.Join(events, "\n\ndata: ") + "\n\n"
		if got := stream(t, hello, text); !bytes.HasSuffix(got, []byte(upstream.ErrInvalidAnswer.Error())) || bytes.Contains(got, []byte("[DONE]")) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestAStreamWithoutUsageIsComplete(t *testing.T) {
	got := string(stream(t, hello, event(t, `{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}`)))
	if !strings.HasSuffix(got, `"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n") {
		t.Error(got)
	}
}

func TestEveryEventReportsTheUsageSoFar(t *testing.T) {
	half := event(t, `{"candidates":[{"index":0,"content":{"role":"model","parts":[{"text":"Half"}]}}],
		"usageMetadata":{"promptTokenCount":900,"candidatesTokenCount":2,"thoughtsTokenCount":700,"totalTokenCount":1602},
		"modelVersion":"gemini-3-flash","responseId":"r1"}`)
	s := upstream.NewTranslator(dialect, recordedProvider{[]byte(half)}, func(*upstream.Request) bool { return true })
	body := `{"model":"ours","messages":[{"role":"user","content":"hi"}],"stream":true}`
	response, err := s.Send(context.Background(), request(now, upstream.ChatPath, body, true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(response.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	reporter, _ := response.Body.(upstream.UsageReporter)
	if got := reporter.UsageSoFar(); got == nil || *got != (live.Usage{Input: 900, Output: 702, Reasoning: 700}) {
		t.Errorf("%+v", got)
	}
}
