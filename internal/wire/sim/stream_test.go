package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sovereign/internal/wire/upstream"
)

// clientChunk is a chunk as a client reads it. Pointers distinguish null and absent from a value.
type clientChunk struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	Model       string `json:"model"`
	Fingerprint string `json:"system_fingerprint"`
	Choices     []struct {
		Index    int         `json:"index"`
		Delta    clientDelta `json:"delta"`
		Logprobs *struct{}   `json:"logprobs"`
		Finish   *string     `json:"finish_reason"`
	} `json:"choices"`
	Usage *usage `json:"usage"`
}

type clientDelta struct {
	Role      string      `json:"role"`
	Content   *string     `json:"content"`
	Reasoning string      `json:"reasoning_content"`
	ToolCalls []toolDelta `json:"tool_calls"`
}

// assembledStream is a stream that was put together.
type assembledStream struct {
	clientAnswer
	deltas int // with content
	events int
	done   bool
	tail   string // what is no chunk
}

// readStream reads a stream strictly: the exact framing, and the rules of chunks.
func readStream(t fataler, text string) (l assembledStream) {
	t.Helper()
	type state struct{ finished bool }
	choices := map[int]*state{}
	for text != "" {
		var event string
		var ok bool
		if event, text, ok = strings.Cut(text, "\n\n"); !ok || !strings.HasPrefix(event, "data: ") || strings.Contains(event, "\n") {
			t.Fatalf("not an event: %q", event)
		}
		event = event[len("data: "):]
		if l.done {
			t.Fatalf("%q after the end", event)
		}
		if event == "[DONE]" {
			l.done = true
			continue
		}
		var c clientChunk
		if err := json.Unmarshal([]byte(event), &c, json.RejectUnknownMembers(true)); err != nil {
			l.tail = event
			if text != "" {
				t.Fatalf("%v: %s", err, event)
			}
			return l
		}
		l.events++
		if l.ID == "" {
			l.ID, l.Object, l.Created, l.Model = c.ID, c.Object, c.Created, c.Model
		}
		if c.ID != l.ID || c.Object != "chat.completion.chunk" || c.Created != l.Created || c.Model != l.Model || l.Usage != nil {
			t.Fatalf("a chunk of something else: %s", event)
		}
		if len(c.Choices) == 0 {
			l.Usage = c.Usage
			if c.Usage == nil || !strings.Contains(event, `"choices":[]`) {
				t.Fatalf("neither a choice nor usage: %s", event)
			}
			continue
		}
		if c.Usage != nil || len(c.Choices) != 1 {
			t.Fatalf("%s", event)
		}
		choice := c.Choices[0]
		known := choices[choice.Index]
		if known == nil {
			if choice.Delta.Role != "assistant" || choice.Index != len(l.Choices) {
				t.Fatalf("the first of a choice: %s", event)
			}
			choices[choice.Index] = &state{}
			l.Choices = append(l.Choices, clientChoice{Index: choice.Index, Message: assistant{Role: choice.Delta.Role, Content: choice.Delta.Content}})
			continue
		}
		if known.finished || choice.Delta.Role != "" {
			t.Fatalf("after the end, or a second beginning: %s", event)
		}
		r := &l.Choices[choice.Index]
		if choice.Finish != nil {
			known.finished = true
			r.Finish = *choice.Finish
			if !strings.Contains(event, `"delta":{}`) {
				t.Fatalf("the last of a choice: %s", event)
			}
			continue
		}
		l.deltas++
		l.add(t, &r.Message, choice.Delta, event)
	}
	for i, c := range choices {
		if !c.finished && l.done {
			t.Fatalf("choice %d has no end", i)
		}
	}
	return l
}

func (l *assembledStream) add(t fataler, m *assistant, d clientDelta, event string) {
	t.Helper()
	told := 0
	if d.Content != nil && *d.Content != "" {
		text := *m.Content + *d.Content
		m.Content = &text
		told++
	}
	if d.Reasoning != "" {
		m.Reasoning += d.Reasoning
		told++
	}
	for _, c := range d.ToolCalls {
		told++
		switch {
		case c.Index == len(m.ToolCalls):
			if c.ID == "" || c.Type != "function" || c.Function.Name == "" || c.Function.Arguments != "" {
				t.Fatalf("the first of a call: %s", event)
			}
			m.ToolCalls = append(m.ToolCalls, toolCall{ID: c.ID, Type: c.Type, Function: functionCall{Name: c.Function.Name}})
		case c.ID != "" || c.Type != "" || c.Function.Name != "" || c.Function.Arguments == "":
			t.Fatalf("more of a call: %s", event)
		default:
			m.ToolCalls[c.Index].Function.Arguments += c.Function.Arguments
		}
	}
	if told != 1 {
		t.Fatalf("%d contents in one chunk: %s", told, event)
	}
}

// anyChatRequest draws a chat request without its closing brace.
func anyChatRequest(t *rapid.T) string {
	tools := `,"tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city"]}}},` +
		`{"type":"function","function":{"name":"clock"}}]`
	question := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"get weather and clock", "what says the clock?"})).Draw(t, "question")
	body := chatBody(question, fmt.Sprintf(`"n":%d,"sim":{"seed":%d,"chunks":%d}`,
		rapid.IntRange(1, 4).Draw(t, "n"), rapid.IntRange(0, 1000).Draw(t, "seed"), rapid.SampledFrom([]int{0, 1, 2, 7, 1000}).Draw(t, "chunks")))
	body = strings.TrimSuffix(body, "}")
	for _, extra := range []string{
		tools, `,"reasoning_effort":"low"`, `,"max_tokens":7`, `,"max_tokens":1`, `,"response_format":{"type":"json_object"}`, `,"parallel_tool_calls":false`,
	} {
		twice := strings.Contains(body, "max_tokens") && strings.Contains(extra, "max_tokens")
		if rapid.Bool().Draw(t, extra) && !twice {
			body += extra
		}
	}
	return body
}

func TestAStreamYieldsTheSameAsTheCompleteAnswer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body, asked := anyChatRequest(t), rapid.Bool().Draw(t, "asked for usage")
		id := rapid.SampledFrom([]string{"sim/chat", "sim/judge"}).Draw(t, "model")
		answer := askChat(t, id, body+"}")
		stream := body + `,"stream":true`
		if asked {
			stream += `,"stream_options":{"include_usage":true}`
		}
		text := ask(t, id, stream+"}")
		l := readStream(t, text)
		want := answer
		want.Object = "chat.completion.chunk"
		if !asked {
			want.Usage = nil
		}
		if diff := cmp.Diff(want, l.clientAnswer); diff != "" || !l.done || l.tail != "" {
			t.Fatalf("done %v, then %q: %s", l.done, l.tail, diff)
		}
		if nulls := strings.Count(text, `"usage":null`); asked != (nulls > 0) || asked && nulls != l.events-1 {
			t.Fatalf("usage is null in %d of %d chunks: %s", nulls, l.events, text)
		}
	})
}

func TestATextIsSplitIntoTheRequestedChunks(t *testing.T) {
	for chunks, want := range map[int]int{0: 50, 1: 1, 2: 2, 7: 7, 100: 100, 200: 200} {
		l := readStream(t, ask(t, "sim/chat", chatWith(fmt.Sprintf(`"stream":true,"sim":{"tokens":50,"chunks":%d}`, chunks))))
		if l.deltas != want || len(l.text()) != 200 {
			t.Errorf("%d chunks: %d of %q", chunks, l.deltas, l.text())
		}
	}
}

func TestAStreamFailsAfterTheRequestedChunks(t *testing.T) {
	for _, fail := range []string{die, errorEvent, garbage} {
		for after, want := range map[string]int{`"fail_after":0`: 0, `"fail_after":1`: 1, `"fail_after":4`: 4, `"fail_after":99`: 10, `"quality":1`: 5} {
			if fail == garbage && want == 5 {
				want = 0
			}
			response, text, err := send(t, New(), model("sim/chat"), chatWith(`"stream":true,"sim":{"chunks":5,"fail":"`+fail+`",`+after+`},"n":2`))
			l := readStream(t, text)
			if response.Status != http.StatusOK || response.ContentType != streamType || l.deltas != want || l.done || want == 0 && l.events > 0 {
				t.Errorf("%s, %s: %+v, %d of %d", fail, after, response, l.deltas, want)
			}
			switch fail {
			case die:
				if !errors.Is(err, io.ErrUnexpectedEOF) || l.tail != "" {
					t.Errorf("die: %q, %v", l.tail, err)
				}
			case errorEvent:
				if e := envelope(t, l.tail); err != nil || e.Type != serverError || e.Message == "" {
					t.Errorf("error: %q, %v", l.tail, err)
				}
			case garbage:
				if err != nil || l.tail != garbageBody {
					t.Errorf("garbage: %q, %v", l.tail, err)
				}
			}
		}
	}
}

func TestLatencyAndChunkDelayAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := &upstream.Request{Model: model("sim/chat"), Path: "/chat/completions", Body: [][]byte{[]byte(chatWith(`"stream":true,"sim":{"latency_ms":700,"chunk_ms":30,"chunks":5}`))}}
		response, err := New().Send(t.Context(), r)
		if err != nil || time.Since(start) != 700*time.Millisecond {
			t.Fatalf("the head came after %s: %v", time.Since(start), err)
		}
		var arrivals []time.Duration
		buffer := make([]byte, 4096)
		for {
			n, err := response.Body.Read(buffer)
			if err != nil {
				break
			}
			if strings.Contains(string(buffer[:n]), `"delta":{"content":"`) {
				arrivals = append(arrivals, (time.Since(start)-700*time.Millisecond)/time.Millisecond)
			}
		}
		if diff := cmp.Diff([]time.Duration{0, 30, 60, 90, 120}, arrivals); diff != "" {
			t.Error(diff)
		}
		if total := time.Since(start); total != 820*time.Millisecond {
			t.Errorf("%s in all", total)
		}
		_ = response.Body.Close()
	})
}

func TestCancellingOrClosingEndsAnAnswerAtOnce(t *testing.T) {
	const delay = 20 * time.Millisecond
	gone := errors.New("gone")
	for name, body := range map[string]string{
		"before the header":      chatWith(`"sim":{"latency_ms":60000}`),
		"hang before the header": chatWith(`"stream":true,"sim":{"fail":"hang"}`),
		"hang without a stream":  chatWith(`"sim":{"fail":"hang","fail_after":3}`),
		"hang before any event":  chatWith(`"stream":true,"sim":{"fail":"hang","fail_after":0}`),
		"hang in the stream":     chatWith(`"stream":true,"sim":{"fail":"hang","fail_after":2}`),
		"between two chunks":     chatWith(`"stream":true,"sim":{"chunk_ms":60000}`),
	} {
		hasHeader := !strings.Contains(name, "before the header") && !strings.Contains(name, "without a stream")
		for _, how := range []string{"context", "close"} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				r := &upstream.Request{Model: model("sim/chat"), Path: "/chat/completions", Body: [][]byte{[]byte(body)}}
				if how == "context" || !hasHeader {
					time.AfterFunc(delay, func() { cancel(gone) })
				}
				start := time.Now()
				response, err := New().Send(ctx, r)
				if err == nil {
					if how == "close" {
						time.AfterFunc(delay, func() { _ = response.Body.Close() })
					}
					_, err = io.Copy(io.Discard, response.Body)
					_ = response.Body.Close()
					if _, again := response.Body.Read(make([]byte, 1)); again == nil {
						t.Errorf("%s: a closed body can be read", name)
					}
				}
				if took := time.Since(start); !errors.Is(err, gone) && !errors.Is(err, errClosed) || took != delay {
					t.Errorf("%s, %s: %v after %s", name, how, err, took)
				}
			})
		}
	}
}

func TestACancelledRequestReadsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := &upstream.Request{Model: model("sim/chat"), Path: "/chat/completions", Body: [][]byte{[]byte(chatWith(""))}}
	response, err := New().Send(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := response.Body.Read(make([]byte, 10)); n != 10 || err != nil {
		t.Errorf("read %d bytes: %v", n, err)
	}
	cancel()
	if n, err := response.Body.Read(make([]byte, 10)); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("read %d bytes: %v", n, err)
	}
	if _, err := New().Send(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("sent: %v", err)
	}
}
