package fold_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sovereign/internal/text/fold"
)

// short is a conversation of about 600 bytes with its answer, as most are.
const (
	short = `[{"role":"system","content":"You are a helpful assistant. Answer in one or two sentences, and say so when you do not know."},` +
		`{"role":"user","content":"What is the capital of France?"},{"role":"assistant","content":"Paris."},` +
		`{"role":"user","content":"Tell me one thing about it that \"nobody\" knows.\nThank you!"}]`
	shortAnswer = `{"role":"assistant","content":"Under the opera there is a lake, which the fire brigade dives in to practise.\nIt was found ` +
		`when the foundations were dug, and could not be pumped dry.","refusal":null,"annotations":[]}`
	called = `{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_9f8c2b6d","type":"function",` +
		`"function":{"name":"edit","arguments":"{\"path\":\"src/main.go\",\"old\":\"\\tif err != nil {\\n\\t\\treturn err\\n\\t}\",\"new\":\"\"}"}}],"refusal":null}`
)

// agent is a conversation of so many steps: a call of a tool, and what it returns.
func agent(steps int) []byte {
	result := `{"role":"tool","tool_call_id":"call_9f8c2b6d","content":"` + strings.Repeat(`func main() {\n\tfmt.Println(\"hello\")\n}\n`, 40) + `"}`
	return []byte(`[{"role":"user","content":"Mend it."}` + strings.Repeat(`,`+called+`,`+result, steps) + `]`)
}

func BenchmarkKeys(b *testing.B) {
	for _, c := range []struct {
		name               string
		messages, response []byte
	}{
		{"short", []byte(short), []byte(shortAnswer)},
		{"agent of 20 steps", agent(20), []byte(called)},
		{"agent of 1000 steps", agent(1000), []byte(called)},
		{"picture", []byte(`[{"role":"user","content":[{"type":"text","text":"What is it?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` +
			strings.Repeat("iVBORw0KGgoA", 50_000) + `"}}]}]`), []byte(shortAnswer)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.messages) + len(c.response)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := fold.Keys(c.messages, c.response); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkExample(b *testing.B) {
	messages, line := agent(20), []byte(nil)
	b.SetBytes(int64(len(messages)))
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if line, err = fold.Example(line[:0], messages, []byte(called), nil, true); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLeaves is an export's most: conversations of so many turns, each logged at every one.
func BenchmarkLeaves(b *testing.B) {
	const exchanges = 10_000
	for _, turns := range []int{1, 10, 1000} {
		var chains []fold.Chain
		for i := range exchanges {
			messages := fmt.Appendf(nil, `[{"role":"user","content":"%d"}%s]`, i/turns, strings.Repeat(`,`+called, i%turns))
			c, err := fold.Keys(messages, []byte(called))
			if err != nil {
				b.Fatal(err)
			}
			chains = append(chains, c)
		}
		b.Run(fmt.Sprintf("%d turns", turns), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if conversations, _ := fold.Count(fold.Leaves(slices.Values(chains))); turns > 1 && conversations != exchanges/turns {
					b.Fatal(conversations)
				}
			}
		})
	}
}
