package scan_test

import (
	stdjson "encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"sovereign/internal/text/scan"
)

// benchSize is the approximate size of a request body with a long conversation.
const benchSize = 200_000

type message struct {
	Role    string `json:"role"`
	Content any    `json:"content"`
}

// request returns a request body with these messages. Like most clients, it escapes only what JSON requires.
func request(contents ...any) []byte {
	var messages []message
	for i, content := range contents {
		messages = append(messages, message{[]string{"user", "assistant"}[i%2], content})
	}
	var b strings.Builder
	encoder := stdjson.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(map[string]any{"model": "m", "messages": messages, "stream": true, "max_tokens": 100, "temperature": 0.5})
	return []byte(b.String())
}

// made returns text of about size bytes, of phrases in random order: the branch predictor would learn a fixed order.
func made(rng *rand.Rand, size int, phrases ...string) string {
	var b strings.Builder
	for b.Len() < size {
		b.WriteString(phrases[rng.IntN(len(phrases))])
	}
	return b.String()
}

// pieces returns texts for a body of benchSize bytes, each about size bytes at most.
func pieces(rng *rand.Rand, size int, phrases ...string) (all []any) {
	for total := 0; total < benchSize; {
		text := made(rng, 1+rng.IntN(size), phrases...)
		all = append(all, text)
		total += len(text) + len(`{"role":"assistant","content":""},`)
	}
	return all
}

var (
	prose  = []string{"The quick brown fox jumps over the lazy dog. ", "It does not mind at all, ", "and nobody saw it; ", "once upon a time there was a fox, ", "in the middle of nowhere "}
	source = []string{"\tif err := run(\"a\", name); err != nil {\n", "\t\treturn fmt.Errorf(\"%w: %q\\n\", err, x)\n", "\t}\n", "}\n\n", "func (s *scanner) next(at int) (end int, ok bool) {\n", "\t// why it is so\n", "\tfor i := range 10 {\n"}
	nested = []string{`{"role": "user", `, `"name":"x", `, `"content": "hello there"}, `, `[1, 2, 3], `, `"\"quoted\"", `, `{"temperature":0.25},`}
	han    = []string{"敏捷的棕色狐狸跳过懒狗。", "从前有一只狐狸，", "没有人看见它，", "在很远很远的地方，", "人工智能 API "}
	emoji  = []string{"😀", "🚀 ", "👍🏽", "ok ", "❤️ ", "great! "}
	cyril  = []string{"Съешь ещё этих мягких французских булок, ", "да выпей чаю. ", "Жил-был лис, ", "и никто его не видел. "}
	typed  = []string{"It’s here — “now” — and everyone’s glad. ", "The quick brown fox jumps over the lazy dog, again and again. ", "Nothing else is to be said of it… "}
	hangul = []string{"빠른 갈색 여우가 ", "게으른 개를 뛰어넘는다. ", "옛날 옛적에 ", "한 마리 여우가 있었다. "}
)

const (
	event  = `{"id":"chatcmpl-9f8c2b6d41e74a0c","object":"chat.completion.chunk","created":1760000000,"model":"some-model-2025-08-07","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":{"content":" there"},"logprobs":null,"finish_reason":null}]}`
	answer = `{"id":"chatcmpl-9f8c2b6d41e74a0c","object":"chat.completion","created":1760000000,"model":"some-model-2025-08-07","choices":[{"index":0,"message":{"role":"assistant","content":"The capital of France is Paris.\nIt lies on the Seine, and has been the \"city of light\" since the 17th century.","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":24,"completion_tokens":28,"total_tokens":52,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_44709d6fcb"}`
	asked  = `{"model":"some-model","messages":[{"role":"system","content":"You are a helpful assistant. Answer in one or two sentences, and say so when you do not know."},{"role":"user","content":"What is the capital of France?"},{"role":"assistant","content":"Paris."},{"role":"user","content":"Tell me one thing about it that \"nobody\" knows.\nThank you!"}],"stream":true,"stream_options":{"include_usage":true},"max_tokens":256,"temperature":0.7,"top_p":1,"user":"8f14e45f","tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{"at":{"type":"string"}}}}}],"seed":7}`
)

func BenchmarkObject(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	bodies := []struct {
		name string
		text []byte
	}{
		{"prose", request(pieces(rng, 8_000, prose...)...)},
		{"prose in paragraphs", request(pieces(rng, 8_000, append(prose, "\n\n")...)...)},
		{"typographic prose", request(pieces(rng, 8_000, typed...)...)},
		{"source", request(pieces(rng, 8_000, source...)...)},
		{"JSON in JSON", request(pieces(rng, 8_000, nested...)...)},
		{"escapes alone", request(strings.Repeat(`"\`, benchSize/4))},
		{"tiny messages", request(pieces(rng, 40, prose...)...)},
		{"tiny messages alike", fmt.Appendf(nil, `{"messages":[%s{}]}`, strings.Repeat(`{"role":"user","content":"hello"},`, benchSize/34))},
		{"tiny messages indented", indented(request(pieces(rng, 40, prose...)...))},
		{"Chinese", request(pieces(rng, 8_000, han...)...)},
		{"Korean", request(pieces(rng, 8_000, hangul...)...)},
		{"Russian", request(pieces(rng, 8_000, cyril...)...)},
		{"emoji", request(pieces(rng, 8_000, emoji...)...)},
		{"picture", request([]any{map[string]any{"type": "image_url", "image_url": map[string]any{"url": "data:image/png;base64," + strings.Repeat("iVBORw0KGgoA", benchSize/12)}}})},
		{"deep", fmt.Appendf(nil, `{"a":[%s0]}`, strings.Repeat(strings.Repeat(`[{"a":`, 100)+"1"+strings.Repeat("}]", 100)+",", benchSize/800))},
		{"numbers", fmt.Appendf(nil, `{"input":[%s0]}`, strings.Repeat("15496,995,11,", benchSize/13))},
		{"vectors", fmt.Appendf(nil, `{"data":[{"index":0,"embedding":[%s0]}]}`, strings.Repeat("-0.01234567,0.00765432,", benchSize/23))},
		{"event", []byte(event)},
		{"answer", []byte(answer)},
		{"question", []byte(asked)},
	}
	for _, body := range bodies {
		b.Run(body.name, func(b *testing.B) {
			members := make([]scan.Member, 0, 16)
			b.SetBytes(int64(len(body.text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := scan.Object(body.text, members); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func indented(text []byte) []byte {
	var v any
	_ = stdjson.Unmarshal(text, &v)
	text, _ = stdjson.MarshalIndent(v, "", "  ")
	return text
}
