package chat_test

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"pgregory.net/rapid"

	"sovereign/internal/text/sse"
	"sovereign/internal/wire/chat"
)

// canonical returns JSON in canonical form, with integers unchanged.
func canonical(t interface{ Fatalf(string, ...any) }, text []byte) string {
	v := jsontext.Value(bytes.Clone(text))
	if err := v.Canonicalize(jsontext.CanonicalizeRawInts(false)); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return string(v)
}

func assemble(t interface{ Fatalf(string, ...any) }, events [][]byte) []byte {
	var a chat.Assembler
	for _, e := range events {
		if err := a.Add(e); err != nil {
			t.Fatalf("%s: %v", e, err)
		}
	}
	whole, err := a.Answer()
	if err != nil {
		t.Fatalf("%v\n%s", err, bytes.Join(events, []byte("\n")))
	}
	return whole
}

func TestChunksAreAssembledIntoTheAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		events []string
		want   string
	}{
		"text": {
			[]string{
				`{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","system_fingerprint":null,"choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"x9"}`,
				`{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","system_fingerprint":"fp","choices":[{"index":0,"delta":{"content":"Hel"},"logprobs":null,"finish_reason":null}],"usage":null}`,
				`{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","system_fingerprint":"fp","choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":null}],"usage":null}`,
				`{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","system_fingerprint":"fp","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}`,
				`{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":1,"total_tokens":3}}`,
			},
			`{"id":"c1","object":"chat.completion","created":1,"model":"m","system_fingerprint":"fp","choices":[{"index":0,"message":{"role":"assistant","content":"Hello","refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"total_tokens":3}}`,
		},
		"an empty head, as Azure sends it": {
			[]string{
				`{"id":"","object":"","created":0,"model":"","prompt_filter_results":[{"prompt_index":0}],"choices":[]}`,
				`{"id":"c","created":5,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"a"}}]}`,
				`{"id":"","created":5,"model":"","choices":[{"index":0,"delta":{"role":""},"finish_reason":"stop"}]}`,
			},
			`{"id":"c","object":"chat.completion","created":5,"model":"m","prompt_filter_results":[{"prompt_index":0}],"choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}`,
		},
		"calls side by side, out of order": {
			[]string{
				`{"choices":[{"index":0,"delta":{"content":null,"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":""}}]}}]}`,
				`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\""},"extra_content":{"google":{"thought_signature":"s"}}}]}}]}`,
				`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"","function":{"name":"","arguments":"{}"}},{"index":0,"function":{"arguments":":1}"}}]}}]}`,
				`{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`,
			},
			`{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[
				{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"},"extra_content":{"google":{"thought_signature":"s"}}},
				{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`,
		},
		"calls without an index": {
			[]string{
				`{"choices":[{"delta":{"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{"}}]}}]}`,
				`{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"}"}}]}}]}`,
				`{"choices":[{"delta":{"tool_calls":[{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`,
			},
			`{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[
				{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`,
		},
		"thoughts": {
			[]string{
				`{"choices":[{"index":0,"delta":{"reasoning_content":"I ","reasoning_details":[{"type":"reasoning.text","text":"I ","index":0}]}}]}`,
				`{"choices":[{"index":0,"delta":{"reasoning_content":"am","reasoning_details":[{"type":"reasoning.text","text":"am","index":0}]}}]}`,
				`{"choices":[{"index":0,"delta":{"reasoning_details":[{"type":"reasoning.text","signature":"s1","index":0},{"type":"reasoning.encrypted","data":"d","index":1}]}}]}`,
				`{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}`,
			},
			`{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"x","reasoning_content":"I am","reasoning_details":[
				{"type":"reasoning.text","text":"I am","signature":"s1"},{"type":"reasoning.encrypted","data":"d"}]},"finish_reason":"stop"}]}`,
		},
		"log probabilities, lists and unknown members": {
			[]string{
				`{"choices":[{"index":1,"delta":{"content":"b","annotations":[{"n":1}],"mood":"calm"},"logprobs":{"content":[ {"token":"b"} ],"refusal":null},"x":1}]}`,
				`{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"length"},{"index":1,"delta":{"annotations":[ ]}}],"x_groq":{"id":1}}`,
				`{"choices":[{"index":1,"delta":{"content":"","annotations":[{"n":2},{"n":3}],"mood":"glad"},"logprobs":{"content":[{"token":"c"},{"token":"d"}]},"finish_reason":"stop","x":2}],"x_groq":{"id":2}}`,
			},
			`{"object":"chat.completion","x_groq":{"id":2},"choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"length"},
				{"index":1,"message":{"role":"assistant","content":"b","annotations":[{"n":1},{"n":2},{"n":3}],"mood":"glad"},"logprobs":{"content":[{"token":"b"},{"token":"c"},{"token":"d"}],"refusal":null},"finish_reason":"stop","x":2}]}`,
		},
		"a character in two halves": {
			[]string{
				`{"choices":[{"index":0,"delta":{"content":"\ud83d"}}]}`,
				`{"choices":[{"index":0,"delta":{"content":"\ude00"},"message":{"role":"assistant","content":"so far"}}]}`,
			},
			`{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"😀"},"finish_reason":null}]}`,
		},
		"a choice that says nothing": {
			[]string{`{"choices":[{"index":0,"finish_reason":"content_filter"}]}`},
			`{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":null},"finish_reason":"content_filter"}]}`,
		},
		"parts instead of a text": {
			[]string{`{"choices":[{"index":0,"delta":{"content":""}}]}`, `{"choices":[{"index":0,"delta":{"content":[{"type":"text","text":"x"}]}}]}`, `{"choices":[{"index":0,"delta":{"content":""}}]}`},
			`{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":[{"type":"text","text":"x"}]},"finish_reason":null}]}`,
		},
	} {
		events := make([][]byte, len(c.events))
		for i, e := range c.events {
			events[i] = []byte(e)
		}
		if got, want := canonical(t, assemble(t, events)), canonical(t, []byte(c.want)); got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
}

func TestAnInvalidStreamIsNotAssembled(t *testing.T) {
	for want, all := range map[error][]string{
		chat.ErrIncompatible: {
			`nonsense`, `[DONE]`, `[]`, `{"choices":{}}`, `{"choices":[5]}`, `{"choices":[{"index":"0"}]}`, `{"choices":[{"index":0,"delta":7}]}`,
			`{"choices":[{"index":0,"delta":{"content":"a"}}],"error":{"message":"x"}}`, `{"choices":[{"index":0,"message":{"content":"a"}}]}`,
			`{"choices":[{"index":0,"delta":{"content":"\ud83d"}}]}`, `{"choices":[{"index":0,"delta":{"mood":nul}}]}`, `{"choices":[{"index":0,"delta":{"content":"\x"}}]}`,
			`{"choices":[{"index":0,"delta":{"content":"a"}},{"index":0,"delta":{"content":["b"]}}]}`,
			`{"choices":[{"index":0,"delta":{"content":["a"]}},{"index":0,"delta":{"content":"b"}}]}`,
		},
		chat.ErrNoChoices: {`{"choices":[]}`, `{"id":"x"}`, `{"choices":null}`},
	} {
		for _, event := range all {
			var a chat.Assembler
			err := a.Add([]byte(event))
			again := a.Add([]byte(`{"choices":[{"index":0,"delta":{}}]}`))
			if (err == nil) != (again == nil) {
				t.Errorf("%s: %v, and then %v", event, err, again)
			}
			a = chat.Assembler{}
			if a.Add([]byte(event)) != nil {
				err = a.Add([]byte(`{}`))
			}
			if _, none := a.Answer(); !errors.Is(none, want) || err != nil && !errors.Is(err, want) {
				t.Errorf("%s: %v, %v", event, err, none)
			}
		}
	}
}

func TestMaxBytesBoundsWhatIsKept(t *testing.T) {
	for name, event := range map[string]string{
		"a text":      `{"choices":[{"index":0,"delta":{"content":"0123456789"}}]}`,
		"an unknown":  `{"x%d":1,"choices":[{"index":0,"delta":{}}]}`,
		"an element":  `{"choices":[{"index":%d,"delta":{}}]}`,
		"a list":      `{"choices":[{"index":0,"delta":{"annotations":[{"n":1}]}}]}`,
		"a last word": `{"id":"` + strings.Repeat("x", 5000) + `"}`,
	} {
		a := chat.Assembler{MaxBytes: 4000}
		var err error
		for i := 0; err == nil && i < 1000; i++ {
			if strings.Contains(event, "%d") {
				err = a.Add(fmt.Appendf(nil, event, i))
			} else {
				err = a.Add([]byte(event))
			}
		}
		if _, none := a.Answer(); !errors.Is(err, chat.ErrTooLong) || !errors.Is(none, chat.ErrTooLong) {
			t.Errorf("%s: %v, %v", name, err, none)
		}
	}
	var err error
	for a, i := (chat.Assembler{}), 0; err == nil && i < 1000; i++ { // of any size, a search has its bound
		err = a.Add(fmt.Appendf(nil, `{"x%d":1}`, i))
	}
	if !errors.Is(err, chat.ErrIncompatible) {
		t.Errorf("very many members: %v", err)
	}
	a := chat.Assembler{MaxBytes: 4000}
	for range 1000 { // a repeated value is not kept again
		if err := a.Add([]byte(`{"id":"chatcmpl-1","model":"m","x":{"y":1},"choices":[{"index":0,"delta":{"role":"assistant"}}]}`)); err != nil {
			t.Fatal(err)
		}
	}
}

// readEvents reads a stream as a client does, and checks OpenAI's framing.
func readEvents(t interface{ Fatalf(string, ...any) }, stream []byte) (events [][]byte) {
	var r sse.Reader
	err := r.Feed(stream, func(e sse.Event) error {
		if e.Name != "" || bytes.IndexByte(e.Data, '\n') >= 0 {
			t.Fatalf("an event %q: %s", e.Name, e.Data)
		}
		events = append(events, bytes.Clone(e.Data))
		return nil
	})
	if err != nil || r.Rest() || !bytes.HasSuffix(stream, []byte("}\n\ndata: [DONE]\n\n")) {
		t.Fatalf("%v: %s", err, stream)
	}
	return events[:len(events)-1]
}

func TestAReplayedAnswerIsAssembledToTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole, usage := anyAnswer(t), rapid.Bool().Draw(t, "usage")
		spaced := jsontext.Value(encode(t, whole))
		if rapid.Bool().Draw(t, "spaced") {
			if err := spaced.Indent(); err != nil {
				t.Fatal(err)
			}
		}
		stream, err := chat.Replay(spaced, usage)
		if err != nil {
			t.Fatal(err)
		}
		if !usage {
			delete(whole, "usage")
		}
		if diff := cmp.Diff(canonical(t, encode(t, whole)), canonical(t, assemble(t, readEvents(t, stream)))); diff != "" {
			t.Fatalf("%s\n%s", diff, stream)
		}
	})
}

func TestAStreamSplitAnywhereAssemblesToTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := anyAnswer(t)
		events := randomStream(t, whole, true)
		if diff := cmp.Diff(canonical(t, encode(t, whole)), canonical(t, assemble(t, events))); diff != "" {
			t.Fatalf("%s\n%s", diff, bytes.Join(events, []byte("\n")))
		}
	})
}

func TestOpenAIsAccumulatorYieldsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := randomStream(t, anyAnswer(t), false)
		var theirs openai.ChatCompletionAccumulator
		for _, e := range events {
			var chunk openai.ChatCompletionChunk
			if err := chunk.UnmarshalJSON(e); err != nil || !theirs.AddChunk(chunk) {
				t.Fatalf("%v: %s", err, e)
			}
		}
		var ours openai.ChatCompletion
		if err := ours.UnmarshalJSON(assemble(t, events)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(summary(&theirs.ChatCompletion), summary(&ours)); diff != "" {
			t.Fatalf("%s\n%s", diff, bytes.Join(events, []byte("\n")))
		}
	})
}

// summary lists what OpenAI's accumulator collects.
func summary(c *openai.ChatCompletion) []string {
	all := []string{c.ID, c.Model, strconv.FormatInt(c.Usage.TotalTokens, 10)}
	for _, choice := range c.Choices {
		m := choice.Message
		all = append(all, strconv.FormatInt(choice.Index, 10), choice.FinishReason, string(m.Role), m.Content, m.Refusal)
		for _, call := range m.ToolCalls {
			all = append(all, call.ID, call.Type, call.Function.Name, call.Function.Arguments)
		}
		for _, token := range choice.Logprobs.Content {
			all = append(all, token.Token)
		}
	}
	return all
}

func FuzzAssembler(f *testing.F) {
	f.Add([]byte(`{"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":"a"}}]}` + "\n" + `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}}]}`))
	f.Add([]byte(`{"choices":[{"delta":{"reasoning_details":[{"type":"a"},{"type":"b"},null]}}]}`))
	f.Add([]byte(`{"choices":[{"index":9223372036854775807},{"index":-1}],"usage":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		a := chat.Assembler{MaxBytes: 1 << 16}
		for event := range bytes.SplitSeq(text, []byte("\n")) {
			_ = a.Add(event)
		}
		whole, err := a.Answer()
		if err != nil {
			return
		}
		if !jsontext.Value(whole).IsValid(jsontext.AllowDuplicateNames(true)) {
			t.Fatalf("%s", whole)
		}
		stream, err := chat.Replay(whole, true)
		if err != nil {
			return // a message of a shape that no stream has
		}
		readEvents(t, stream)
	})
}

func FuzzReplay(f *testing.F) {
	f.Add([]byte(`{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"a","tool_calls":[{"id":"x","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"stop"}],"usage":{"total_tokens":1}}`))
	f.Add([]byte(`{"choices":[{"message":{"reasoning_details":[{}],"content":[1]},"logprobs":{}}],"error":null}`))
	f.Fuzz(func(t *testing.T, whole []byte) {
		for _, usage := range []bool{false, true} {
			if stream, err := chat.Replay(whole, usage); err == nil {
				for _, e := range readEvents(t, stream) {
					if !jsontext.Value(e).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
						t.Fatalf("%s", e)
					}
				}
			}
		}
	})
}

func BenchmarkAssembler(b *testing.B) {
	event := []byte(`{"id":"chatcmpl-CQxG4Zs5lD1q0pUVhyzO5rV0Aoz1Y","object":"chat.completion.chunk","created":1760000000,"model":"gpt-5-mini-2025-08-07","service_tier":"default","system_fingerprint":null,"choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"h1Kx"}`)
	var a chat.Assembler
	b.SetBytes(int64(len(event)))
	b.ReportAllocs()
	for i := range b.N {
		if i%10_000 == 0 {
			a = chat.Assembler{MaxBytes: 1 << 20}
		}
		if err := a.Add(event); err != nil {
			b.Fatal(err)
		}
	}
}
