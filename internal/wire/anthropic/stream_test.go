package anthropic_test

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"

	"sovereign/internal/live"
	"sovereign/internal/text/sse"
	"sovereign/internal/wire/chat"
	"sovereign/internal/wire/upstream"
)

var update = flag.Bool("update", false, "write what streams are translated to into the golden files")

// eachRecording runs a test for every recorded stream.
func eachRecording(t *testing.T, f func(t *testing.T, name string, stream []byte)) {
	all, err := filepath.Glob("testdata/*.sse")
	if err != nil || len(all) == 0 {
		t.Fatal("no streams", err)
	}
	for _, path := range all {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".sse"), func(t *testing.T) {
			stream, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			f(t, strings.TrimSuffix(path, ".sse"), stream)
		})
	}
}

// pieceSender answers with the given pieces, one for each Read.
type pieceSender struct{ all [][]byte }

func (p *pieceSender) Send(context.Context, *upstream.Request) (*upstream.Response, error) {
	return &upstream.Response{Status: 200, ContentType: "text/event-stream; charset=utf-8", Body: io.NopCloser(p)}, nil
}

func (p *pieceSender) Close() {}

func (p *pieceSender) Read(to []byte) (int, error) {
	if len(p.all) == 0 {
		return 0, io.EOF
	}
	n := copy(to, p.all[0])
	if p.all[0] = p.all[0][n:]; len(p.all[0]) == 0 {
		p.all = p.all[1:]
	}
	return n, nil
}

// translateStream returns the translation of a stream, and the error that ended it.
func translateStream(t *testing.T, parts ...[]byte) ([]byte, error) {
	t.Helper()
	sender := upstream.NewTranslator(dialect, &pieceSender{all: parts}, func(*upstream.Request) bool { return true })
	response, err := sender.Send(t.Context(), request(`{"model":"ours",`+hello+`}`, true))
	if err != nil {
		t.Fatal(err)
	}
	return io.ReadAll(response.Body)
}

func TestAStreamIsTranslatedToTheGoldenFile(t *testing.T) {
	eachRecording(t, func(t *testing.T, name string, stream []byte) {
		got, err := translateStream(t, stream)
		if failed := strings.HasSuffix(name, "error"); (err != nil) != failed || failed && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error(err)
		}
		if *update {
			if err := os.WriteFile(name+".want", got, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(name + ".want")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestAStreamCutAnywhereReadsTheSame(t *testing.T) {
	eachRecording(t, func(t *testing.T, _ string, stream []byte) {
		want, ending := translateStream(t, stream)
		for i := range len(stream) + 1 {
			got, err := translateStream(t, stream[:i], stream[i:])
			if !bytes.Equal(got, want) || !errors.Is(err, ending) {
				t.Fatalf("cut at %d: %v\n%s", i, err, got)
			}
		}
		single := make([][]byte, len(stream))
		for i := range stream {
			single[i] = stream[i : i+1]
		}
		if got, err := translateStream(t, single...); !bytes.Equal(got, want) || !errors.Is(err, ending) {
			t.Fatalf("byte by byte: %v\n%s", err, got)
		}
	})
}

func TestATruncatedStreamIsNeverComplete(t *testing.T) {
	eachRecording(t, func(t *testing.T, _ string, stream []byte) {
		want, _ := translateStream(t, stream)
		for i := range stream {
			got, err := translateStream(t, stream[:i])
			if !bytes.HasPrefix(want, got) || bytes.Contains(got, []byte("[DONE]")) {
				t.Fatalf("broken off at %d: %s", i, got)
			}
			if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, upstream.ErrInvalidAnswer) {
				t.Fatalf("broken off at %d: %v", i, err)
			}
		}
	})
}

// accumulate assembles a stream with the SDK, which must know all of it.
func accumulate(t *testing.T, stream []byte) *sdk.Message {
	t.Helper()
	m := &sdk.Message{}
	err := new(sse.Reader).Feed(stream, func(e sse.Event) error {
		var decoded sdk.MessageStreamEventUnion
		if e.Name == "ping" {
			return nil
		}
		if err := decoded.UnmarshalJSON(e.Data); err != nil {
			return err
		}
		if all := unknownMembers(reflect.ValueOf(decoded)); len(all) > 0 && e.Name != "error" {
			t.Errorf("the SDK does not know %v", all)
		}
		return m.Accumulate(decoded)
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// errorReporter is a *testing.T or a *rapid.T.
type errorReporter interface {
	failer
	Errorf(format string, args ...any)
}

// assembled assembles a translated stream as a client does.
func assembled(t errorReporter, stream []byte) *chat.Answer {
	t.Helper()
	a := &chat.Answer{Object: "chat.completion", Choices: []chat.Choice{{Message: chat.Reply{Role: chat.RoleAssistant}}}}
	choice := &a.Choices[0]
	err := new(sse.Reader).Feed(stream, func(e sse.Event) error {
		if string(e.Data) == "[DONE]" {
			return nil
		}
		var c chat.Chunk
		if err := json.Unmarshal(e.Data, &c); err != nil {
			return err
		}
		a.ID, a.Created, a.Model = c.ID, c.Created, c.Model
		if len(c.Choices) == 0 {
			return json.Unmarshal(c.Usage, &a.Usage)
		}
		if reason := c.Choices[0].FinishReason; reason != nil {
			choice.FinishReason = *reason
		}
		d := c.Choices[0].Delta
		if d.Content != nil {
			if choice.Message.Content == nil {
				choice.Message.Content = new(string)
			}
			*choice.Message.Content += *d.Content
		}
		if d.Refusal != nil {
			choice.Message.Refusal = d.Refusal
		}
		if d.ReasoningContent != nil {
			choice.Message.ReasoningContent += *d.ReasoningContent
		}
		for _, piece := range d.ReasoningDetails {
			if *piece.Index == len(choice.Message.ReasoningDetails) {
				choice.Message.ReasoningDetails = append(choice.Message.ReasoningDetails, chat.Thought{Type: piece.Type, Format: piece.Format, Model: piece.Model, Position: piece.Position})
			}
			whole := &choice.Message.ReasoningDetails[*piece.Index]
			if len(whole.Text+whole.Signature+whole.Data) > 0 && (piece.Model != "" || piece.Position != nil) {
				t.Errorf("a thought goes on with %s", e.Data)
			}
			whole.Text, whole.Signature, whole.Data = whole.Text+piece.Text, whole.Signature+piece.Signature, whole.Data+piece.Data
		}
		for _, piece := range d.ToolCalls {
			if *piece.Index == len(choice.Message.ToolCalls) {
				first := piece
				first.Index = nil
				choice.Message.ToolCalls = append(choice.Message.ToolCalls, first)
				if piece.ID == "" || piece.Type != "function" || piece.Function.Name == "" || piece.Function.Arguments != "" {
					t.Errorf("a call begins with %s", e.Data)
				}
				continue
			}
			if piece.ID != "" || piece.Type != "" || piece.Function.Name != "" {
				t.Errorf("a call goes on with %s", e.Data)
			}
			choice.Message.ToolCalls[*piece.Index].Function.Arguments += piece.Function.Arguments
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAStreamYieldsTheSameAsTheCompleteAnswer(t *testing.T) {
	eachRecording(t, func(t *testing.T, name string, stream []byte) {
		out, err := translateStream(t, stream)
		if strings.HasSuffix(name, "error") {
			if bytes.Contains(out, []byte("[DONE]")) {
				t.Errorf("an error makes an answer: %s", out)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		got, want := assembled(t, out), translateAnswer(t, message(t, accumulate(t, stream).RawJSON()).RawJSON())
		compact(got)
		if strings.HasSuffix(name, "cut") { // the SDK makes no half calls; a stream cannot take one back
			want.Choices[0].Message.ToolCalls[0].Function.Arguments = `{"text":"a ti`
		}
		if diff := cmp.Diff(textOf(want), textOf(got)); diff != "" {
			t.Error(diff)
		}
	})
}

// compact removes the insignificant space in arguments.
func compact(a *chat.Answer) {
	for i := range a.Choices[0].Message.ToolCalls {
		arguments := &a.Choices[0].Message.ToolCalls[i].Function.Arguments
		var b bytes.Buffer
		if stdjson.Compact(&b, []byte(*arguments)) == nil {
			*arguments = b.String()
		}
	}
}

func TestOpenAIsSDKReadsTheStreams(t *testing.T) {
	eachRecording(t, func(t *testing.T, name string, stream []byte) {
		out, err := translateStream(t, stream)
		if strings.HasSuffix(name, "error") {
			if bytes.Contains(out, []byte("[DONE]")) {
				t.Errorf("an error makes an answer: %s", out)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		var all openai.ChatCompletionAccumulator
		err = new(sse.Reader).Feed(out, func(e sse.Event) error {
			var chunk openai.ChatCompletionChunk
			if string(e.Data) == "[DONE]" {
				return nil
			}
			if err := chunk.UnmarshalJSON(e.Data); err != nil {
				return err
			}
			if !all.AddChunk(chunk) {
				t.Errorf("it does not fit: %s", e.Data)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want := assembled(t, out)
		got := all.Choices[0]
		if got.FinishReason != want.Choices[0].FinishReason || all.Usage.TotalTokens != want.Usage.TotalTokens || len(got.Message.ToolCalls) != len(want.Choices[0].Message.ToolCalls) {
			t.Errorf("%+v", got)
		}
		for i, c := range want.Choices[0].Message.ToolCalls {
			if g := got.Message.ToolCalls[i]; g.ID != c.ID || g.Function.Name != c.Function.Name || g.Function.Arguments != c.Function.Arguments {
				t.Errorf("%+v, want %+v", g, c)
			}
		}
	})
}

func TestEventsOutOfOrderAreErrors(t *testing.T) {
	start := `{"type":"message_start","message":` + messageHead + `"content":[]}}`
	open := func(kind string) string {
		return `{"type":"content_block_start","index":0,"content_block":{"type":"` + kind + `"}}`
	}
	end := `{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`
	for name, all := range map[string][]string{
		"no JSON":                    {`x`},
		"not begun":                  {open("text")},
		"ended before it began":      {`{"type":"message_stop"}`},
		"begun twice":                {start, start},
		"begun with nothing":         {`{"type":"message_start"}`},
		"begun with content":         {`{"type":"message_start","message":` + messageHead + `"content":[{"type":"text","text":"x"}]}}`},
		"a gap":                      {start, `{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}`},
		"no block":                   {start, `{"type":"content_block_start","index":0}`},
		"an unknown block":           {start, open("server_tool_use")},
		"a delta of no block":        {start, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}`},
		"no delta":                   {start, open("text"), `{"type":"content_block_delta","index":0}`},
		"an unknown delta":           {start, open("text"), `{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta"}}`},
		"a delta of another's":       {start, open("text"), `{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"x"}}`},
		"a delta of a sealed one":    {start, open("redacted_thinking"), `{"type":"content_block_delta","index":0,"delta":{"type":"","data":"x"}}`},
		"a delta after the end":      {start, open("text"), `{"type":"content_block_stop","index":0}`, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}`},
		"the end of no block":        {start, `{"type":"content_block_stop","index":0}`},
		"an end without a reason":    {start, `{"type":"message_stop"}`},
		"an end for unknown reasons": {start, `{"type":"message_delta","delta":{"stop_reason":"bored"}}`, `{"type":"message_stop"}`},
		"something after the end":    {start, end, `{"type":"message_stop"}`, end},
		"an end after an error":      {start, end, `{"type":"error","error":{"type":"api_error","message":"x"}}`, `{"type":"message_stop"}`},
		"a call of no object":        {start, `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f","input":[1]}}`, `{"type":"content_block_stop","index":0}`},
	} {
		e := newExchange(t)
		if out, err := translateEvents(e, all...); err == nil {
			t.Errorf("%s: %s", name, out)
		}
	}
}

func TestTheInitialContentOfABlockIsSent(t *testing.T) {
	out, err := translateEvents(newExchange(t), `{"type":"message_start","message":`+messageHead+`"content":[]}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"h","signature":"s"}}`, `{"type":"content_block_stop","index":0}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"text","text":"He"}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"llo"}}`, `{"type":"an_event_of_tomorrow","x":1}`,
		`{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t","name":"f","input":{"a":1}}}`,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use"}}`, `{"type":"message_stop"}`)
	if err != nil {
		t.Fatal(err)
	}
	got := assembled(t, []byte(out)).Choices[0].Message
	want := chat.Reply{
		Role: "assistant", ReasoningContent: "h", ReasoningDetails: []chat.Thought{{Type: "reasoning.text", Text: "h", Signature: "s", Format: "anthropic-claude-v1", Model: "claude-opus-4-8"}},
		ToolCalls: []chat.ToolCall{{ID: "t", Type: "function", Function: chat.FunctionCall{Name: "f", Arguments: `{"a":1}`}}},
	}
	hello := "Hello"
	want.Content = &hello
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOtherEventsHaveNullUsageIfItWasRequested(t *testing.T) {
	for options, want := range map[string]int{`{"include_usage":true}`: 2, `{"include_usage":false}`: 0, `null`: 0} {
		e, err := dialect.NewExchange(request(`{"model":"ours",`+hello+`,"stream_options":`+options+`}`, true))
		if err != nil {
			t.Fatal(err)
		}
		out, err := translateEvents(e, `{"type":"message_start","message":`+messageHead+`"content":[],"usage":{"input_tokens":1,"output_tokens":1}}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"x"}}`, `{"type":"content_block_stop","index":0}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`, `{"type":"message_stop"}`)
		if err != nil || strings.Count(out, `"usage":null`) != want || strings.Count(out, `"usage":{`) != 1 {
			t.Errorf("%s: %s %v", options, out, err)
		}
	}
}

// The input is reported in the first event, long before the stream ends.
func TestTheUsageSoFarIsKnownBeforeTheEnd(t *testing.T) {
	start := "event: message_start\ndata: " + `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant",` +
		`"model":"m","content":[],"stop_reason":null,"stop_sequence":null,` +
		`"usage":{"input_tokens":40000,"cache_read_input_tokens":10000,"output_tokens":1}}}` + "\n\n"
	always := func(*upstream.Request) bool { return true }
	chats := upstream.NewTranslator(dialect, &pieceSender{all: [][]byte{[]byte(start)}}, always)
	response, err := chats.Send(t.Context(), request(`{"model":"ours",`+hello+`}`, true))
	if err != nil {
		t.Fatal(err)
	}
	reporter, ok := response.Body.(upstream.UsageReporter)
	if !ok || reporter.UsageSoFar() != nil {
		t.Fatalf("before the first event: %v, %v", ok, reporter)
	}
	if _, err := io.ReadAll(response.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	if got := reporter.UsageSoFar(); got == nil || *got != (live.Usage{Input: 50_000, Cached: 10_000, Output: 1}) {
		t.Errorf("after the first event: %+v", got)
	}
}
