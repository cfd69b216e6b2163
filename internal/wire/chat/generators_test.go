package chat_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

// members are the members of a JSON object.
type members = map[string]any

func anyText() *rapid.Generator[string] {
	return rapid.OneOf(rapid.String(), rapid.StringOfN(rapid.SampledFrom([]rune("ab\"\\\n\r\u2028<é漢😀\x00")), 0, 12, -1))
}

func anyValue() *rapid.Generator[any] {
	return rapid.OneOf(
		rapid.Map(anyText(), func(s string) any { return s }), rapid.Map(rapid.Int64(), func(i int64) any { return i }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }), rapid.Just(any(nil)),
		rapid.Map(rapid.MapOfN(anyText(), anyText(), 0, 3), func(m map[string]string) any { return m }),
		rapid.Map(rapid.SliceOfN(anyText(), 0, 3), func(s []string) any { return s }),
	)
}

// addUnknown adds unknown members.
func addUnknown(t *rapid.T, to members) members {
	for _, name := range rapid.SliceOfN(rapid.SampledFrom([]string{"mood", "x_y", "é\"", "stop_reason"}), 0, 2).Draw(t, "names") {
		to[name] = anyValue().Draw(t, name)
	}
	return to
}

func addMaybe(t *rapid.T, to members, name string, g *rapid.Generator[any]) {
	if rapid.Bool().Draw(t, "has "+name) {
		to[name] = g.Draw(t, name)
	}
}

func textOrNull() *rapid.Generator[any] {
	return rapid.OneOf(rapid.Map(anyText(), func(s string) any { return s }), rapid.Just(any(nil)))
}

func anyCall(t *rapid.T) any {
	return addUnknown(t, members{"id": rapid.StringN(1, 5, -1).Draw(t, "id"), "type": "function", "function": members{"name": rapid.StringN(1, 5, -1).Draw(t, "f"), "arguments": anyText().Draw(t, "arguments")}})
}

func anyThought(t *rapid.T) any {
	thought := members{"type": "reasoning.text"}
	for _, name := range []string{"text", "signature", "data"} {
		addMaybe(t, thought, name, rapid.Map(anyText(), func(s string) any { return s }))
	}
	return addUnknown(t, thought)
}

func anyToken() *rapid.Generator[any] {
	return rapid.Map(anyText(), func(s string) any { return members{"token": s, "logprob": -0.5, "bytes": nil, "top_logprobs": []any{}} })
}

func anyMessage(t *rapid.T) members {
	m := addUnknown(t, members{"role": "assistant", "content": textOrNull().Draw(t, "content")})
	for _, name := range []string{"refusal", "reasoning_content", "reasoning"} {
		addMaybe(t, m, name, textOrNull())
	}
	addMaybe(t, m, "tool_calls", rapid.Map(rapid.SliceOfN(rapid.Custom(anyCall), 0, 3), func(s []any) any { return s }))
	addMaybe(t, m, "reasoning_details", rapid.Map(rapid.SliceOfN(rapid.Custom(anyThought), 0, 3), func(s []any) any { return s }))
	addMaybe(t, m, "annotations", rapid.Map(rapid.SliceOfN(anyToken(), 0, 2), func(s []any) any { return s }))
	return m
}

// anyAnswer draws a provider's answer with unknown members in every object.
func anyAnswer(t *rapid.T) members {
	all := []any{}
	for i := range rapid.IntRange(1, 3).Draw(t, "choices") {
		c := addUnknown(t, members{"index": i, "message": anyMessage(t), "finish_reason": rapid.SampledFrom([]any{"stop", "length", nil}).Draw(t, "finish")})
		if rapid.Bool().Draw(t, "probable") {
			c["logprobs"] = members{"content": rapid.SliceOfN(anyToken(), 0, 4).Draw(t, "tokens"), "refusal": nil}
		}
		all = append(all, c)
	}
	w := addUnknown(t, members{"id": "chatcmpl-1", "object": "chat.completion", "created": rapid.Int64().Draw(t, "created"), "model": anyText().Draw(t, "model"), "choices": all})
	if rapid.Bool().Draw(t, "counted") {
		w["usage"] = members{"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7, "prompt_tokens_details": members{"cached_tokens": 1}}
	}
	return w
}

func encode(t interface{ Fatalf(string, ...any) }, v any) []byte {
	text, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		t.Fatalf("%v", err)
	}
	return text
}

// splitText splits a text anywhere, with halves even between the surrogates of a character.
func splitText(t *rapid.T, text string, halves bool) (all []jsontext.Value) {
	units := utf16.Encode([]rune(text))
	for first := true; first || len(units) > 0; first = false {
		n := rapid.IntRange(0, len(units)).Draw(t, "cut")
		if rapid.IntRange(0, 3).Draw(t, "all") == 0 {
			n = len(units)
		}
		if !halves && n > 0 && n < len(units) && utf16.IsSurrogate(rune(units[n])) && utf16.DecodeRune(rune(units[n-1]), rune(units[n])) != '\uFFFD' {
			n++
		}
		var b strings.Builder
		for _, u := range units[:n] {
			fmt.Fprintf(&b, `\u%04x`, u)
		}
		all, units = append(all, jsontext.Value(`"`+b.String()+`"`)), units[n:]
	}
	return all
}

// deltaAt wraps a value into a delta at a path of names, with an index after the name of each list.
func deltaAt(path []any, value any) any {
	for i := len(path) - 1; i >= 0; i-- {
		if index, ok := path[i].(int); ok {
			element := members{"index": index}
			maps.Copy(element, value.(members))
			value = []any{element}
			continue
		}
		value = members{path[i].(string): value}
	}
	return value
}

// splitDeltas splits a value into deltas that must keep their order.
func splitDeltas(t *rapid.T, path []any, value any, halves bool) (deltas []any) {
	switch v := value.(type) {
	case string:
		if joinedMembers[path[len(path)-1].(string)] {
			for _, p := range splitText(t, v, halves) {
				deltas = append(deltas, deltaAt(path, p))
			}
			return deltas
		}
	case members:
		if len(path) == 0 || hasMembers(path) {
			for _, name := range slices.Sorted(maps.Keys(v)) {
				deltas = append(deltas, splitDeltas(t, append(slices.Clone(path), name), v[name], halves)...)
			}
			return deltas
		}
	case []any:
		if last := path[len(path)-1]; len(v) > 0 && (last == "tool_calls" || last == "reasoning_details") {
			for i, e := range v {
				deltas = append(deltas, splitDeltas(t, append(slices.Clone(path), i), e, halves)...)
			}
			return deltas
		}
	}
	return []any{deltaAt(path, value)}
}

func hasMembers(path []any) bool {
	_, element := path[len(path)-1].(int)
	return element || path[len(path)-1] == "function"
}

var joinedMembers = map[string]bool{"content": true, "reasoning_content": true, "reasoning": true, "refusal": true, "arguments": true, "text": true, "signature": true, "data": true}

// randomStream splits an answer into chunks with interleaved choices.
func randomStream(t *rapid.T, whole members, halves bool) (events [][]byte) {
	head := members{"object": "chat.completion.chunk"}
	for name, v := range whole {
		if name != "choices" && name != "object" && name != "usage" {
			head[name] = v
		}
	}
	var lines [][]any // of choices
	for i, c := range whole["choices"].([]any) {
		var line []any
		choice := c.(members)
		for _, delta := range splitDeltas(t, nil, choice["message"], halves) {
			line = append(line, members{"index": i, "delta": delta, "finish_reason": nil})
		}
		if p, ok := choice["logprobs"].(members); ok {
			for _, token := range p["content"].([]any) {
				line = append(line, members{"index": i, "delta": members{}, "logprobs": members{"content": []any{token}, "refusal": nil}})
			}
			line = append(line, members{"index": i, "delta": members{}, "logprobs": members{"content": []any{}, "refusal": nil}})
		}
		last := members{"delta": members{}}
		for name, v := range choice {
			if name != "message" && name != "logprobs" {
				last[name] = v
			}
		}
		lines = append(lines, append(line, last))
	}
	for len(lines) > 0 {
		i := rapid.IntRange(0, len(lines)-1).Draw(t, "whose")
		chunk := maps.Clone(head)
		chunk["choices"] = []any{lines[i][0]}
		events = append(events, encodeLenient(t, chunk))
		if lines[i] = lines[i][1:]; len(lines[i]) == 0 {
			lines = slices.Delete(lines, i, i+1)
		}
	}
	if u := whole["usage"]; u != nil {
		chunk := maps.Clone(head)
		chunk["choices"], chunk["usage"] = []any{}, u
		events = append(events, encodeLenient(t, chunk))
	}
	return events
}

func encodeLenient(t *rapid.T, v any) []byte {
	text, err := json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true), jsontext.PreserveRawStrings(true))
	if err != nil {
		t.Fatalf("%v", err)
	}
	return text
}
