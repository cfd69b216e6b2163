package anthropic_test

import (
	stdjson "encoding/json"
	"fmt"
	"strings"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sovereign/internal/wire/chat"
	"sovereign/internal/wire/upstream"
)

// statement is the smallest unit of a conversation. Requests of both APIs can be read as a list of statements.
type statement struct{ Who, Kind, A, B, C string }

// object is a JSON object.
type object = map[string]any

func textOf(m any) string {
	b, err := stdjson.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// writer draws a conversation in OpenAI's format and records its statements.
type writer struct {
	*rapid.T
	messages []object
	want     []statement
	n        int // of names, so that each is another's
}

// words draws a text that is not blank.
func (w *writer) words() string { return rapid.StringN(0, 20, -1).Draw(w.T, "words") + "." }

func (w *writer) some(what string, most int) int { return rapid.IntRange(0, most).Draw(w.T, what) }

func (w *writer) name(kind string) string {
	w.n++
	return fmt.Sprintf("%s_%d", kind, w.n)
}

func (w *writer) note(who, kind, a, b, c string) {
	w.want = append(w.want, statement{who, kind, a, b, c})
}

// parts draws texts and images, or one plain text.
func (w *writer) parts(who, about string, pictures bool) any {
	if w.some("plain", 1) == 0 {
		t := w.words()
		w.note(who, "text", t, "", about)
		return t
	}
	var all []any
	for range 1 + w.some("parts", 2) {
		switch kind := w.some("kind", 2); {
		case kind == 0 && pictures:
			data := w.name("base64")
			w.note(who, "image", "image/gif", data, about)
			all = append(all, object{"type": "image_url", "image_url": object{"url": "data:image/gif;base64," + data}})
		case kind == 1 && pictures:
			url := "https://example.com/" + w.name("picture")
			w.note(who, "image", "url", url, about)
			all = append(all, object{"type": "image_url", "image_url": object{"url": url}})
		default:
			t := w.words()
			w.note(who, "text", t, "", about)
			all = append(all, object{"type": "text", "text": t})
		}
	}
	return all
}

func (w *writer) system() {
	role := rapid.SampledFrom([]string{"system", "developer"}).Draw(w.T, "role")
	w.messages = append(w.messages, object{"role": role, "content": w.parts("system", "", false)})
}

func (w *writer) user() {
	w.messages = append(w.messages, object{"role": "user", "content": w.parts("user", "", true)})
}

// assistant draws thoughts, text and calls, with the results of the calls.
func (w *writer) assistant() {
	m := object{"role": "assistant"}
	w.messages = append(w.messages, m)
	var thoughts []object
	var reasoning strings.Builder
	for range w.some("thoughts", 2) {
		if w.some("sealed", 1) == 1 {
			data := w.name("sealed")
			w.note("assistant", "sealed", data, "", "")
			thoughts = append(thoughts, object{"type": "reasoning.encrypted", "data": data})
			continue
		}
		t, signature := w.words(), w.name("signature")
		w.note("assistant", "thought", t, signature, "")
		thoughts = append(thoughts, object{"type": "reasoning.text", "text": t, "signature": signature})
		reasoning.WriteString(t)
	}
	if len(thoughts) > 0 {
		m["reasoning_details"], m["reasoning_content"] = thoughts, reasoning.String()
	}
	calls := w.some("calls", 3)
	if calls == 0 || w.some("speaks", 1) == 1 {
		m["content"] = w.parts("assistant", "", false)
	}
	var all []object
	for range calls {
		id, name := w.name("call"), w.name("tool")
		arguments := textOf(object{w.words(): w.words(), "n": w.some("n", 1000), "deep": object{"list": []any{true, nil}}})
		w.note("assistant", "call", id, name, canonical([]byte(arguments)))
		all = append(all, object{"id": id, "type": "function", "function": object{"name": name, "arguments": arguments}})
	}
	if calls > 0 {
		m["tool_calls"] = all
	}
	for _, c := range all {
		id := c["id"].(string)
		w.note("user", "result", id, "", "")
		w.messages = append(w.messages, object{"role": "tool", "tool_call_id": id, "content": w.parts("user", id, true)})
	}
}

func (w *writer) conversation() {
	for range w.some("system", 2) {
		w.system()
	}
	for range 1 + w.some("rounds", 2) {
		for range 1 + w.some("user", 1) {
			w.user()
		}
		for range w.some("later system", 2) {
			w.system()
		}
		w.assistant()
	}
	if len(w.want) > 0 && w.want[len(w.want)-1].Who == "user" {
		for range w.some("last system", 1) {
			w.system()
		}
	}
}

// readRequest reads the statements of an Anthropic request.
func readRequest(t failer, p sdk.MessageNewParams) (all []statement) {
	for _, b := range p.System {
		all = append(all, statement{"system", "text", b.Text, "", ""})
	}
	before := sdk.MessageParamRole("")
	for _, m := range p.Messages {
		if m.Role == before {
			t.Fatalf("two turns of the %s's follow each other", before)
		}
		before = m.Role
		for _, b := range m.Content {
			all = append(all, readBlock(t, string(m.Role), b)...)
		}
	}
	return all
}

func readBlock(t failer, who string, b sdk.ContentBlockParamUnion) []statement {
	switch {
	case b.OfText != nil:
		return []statement{{who, "text", b.OfText.Text, "", ""}}
	case b.OfImage != nil:
		return []statement{readImage(who, "", b.OfImage)}
	case b.OfThinking != nil:
		return []statement{{who, "thought", b.OfThinking.Thinking, b.OfThinking.Signature, ""}}
	case b.OfRedactedThinking != nil:
		return []statement{{who, "sealed", b.OfRedactedThinking.Data, "", ""}}
	case b.OfToolUse != nil:
		return []statement{{who, "call", b.OfToolUse.ID, b.OfToolUse.Name, canonical([]byte(textOf(b.OfToolUse.Input)))}}
	case b.OfToolResult != nil:
		id := b.OfToolResult.ToolUseID
		all := []statement{{who, "result", id, "", ""}}
		for _, c := range b.OfToolResult.Content {
			if c.OfText != nil {
				all = append(all, statement{who, "text", c.OfText.Text, "", id})
			} else {
				all = append(all, readImage(who, id, c.OfImage))
			}
		}
		return all
	}
	t.Fatalf("a block of no kind: %s", textOf(b))
	return nil
}

func readImage(who, about string, b *sdk.ImageBlockParam) statement {
	if s := b.Source.OfBase64; s != nil {
		return statement{who, "image", string(s.MediaType), s.Data, about}
	}
	return statement{who, "image", "url", b.Source.OfURL.URL, about}
}

func TestAConversationKeepsItsContent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &writer{T: t}
		w.conversation()
		params, _ := translate(t, request(textOf(object{"model": "ours", "messages": w.messages}), false))
		if diff := cmp.Diff(w.want, readRequest(t, params)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// blocks draws the content blocks of an answer, in any order.
func (w *writer) blocks() (all []object) {
	for range 1 + w.some("blocks", 7) {
		switch rapid.SampledFrom([]string{"thinking", "redacted_thinking", "text", "tool_use"}).Draw(w.T, "type") {
		case "thinking":
			thought := ""
			if w.some("omitted", 3) > 0 {
				thought = w.words()
			}
			all = append(all, object{"type": "thinking", "thinking": thought, "signature": w.name("signature")})
		case "redacted_thinking":
			all = append(all, object{"type": "redacted_thinking", "data": w.name("sealed")})
		case "text":
			all = append(all, object{"type": "text", "text": w.words()})
		default:
			input := object{}
			if w.some("input", 3) > 0 {
				input[w.words()] = []any{w.words(), 1.5, nil}
			}
			all = append(all, object{"type": "tool_use", "id": w.name("toolu"), "name": w.name("tool"), "input": input})
		}
	}
	return all
}

// normalizedOrder is the order in which blocks are sent back: between two thoughts, one text and then the calls.
// OpenAI's format does not preserve more.
func normalizedOrder(blocks []object) (all []object) {
	var words string
	var calls []object
	settle := func() {
		if words != "" {
			all = append(all, object{"type": "text", "text": words})
		}
		all = append(all, calls...)
		words, calls = "", nil
	}
	for _, b := range blocks {
		switch b["type"] {
		case "text":
			words += b["text"].(string)
		case "tool_use":
			calls = append(calls, b)
		default:
			settle()
			all = append(all, b)
		}
	}
	settle()
	return all
}

// messageEvents returns the events of a message with these blocks.
func messageEvents(blocks []object) (all []string) {
	add := func(o object) { all = append(all, textOf(o)) }
	add(object{"type": "message_start", "message": object{"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []any{}}})
	for i, b := range blocks {
		delta := func(kind, name, words string) {
			half := len([]rune(words)) / 2
			for _, part := range []string{string([]rune(words)[:half]), string([]rune(words)[half:])} {
				add(object{"type": "content_block_delta", "index": i, "delta": object{"type": kind, name: part}})
			}
		}
		start := object{"type": b["type"]}
		for name, value := range b {
			if start[name] = value; name != "type" && name != "id" && name != "name" && name != "data" {
				delete(start, name)
			}
		}
		add(object{"type": "content_block_start", "index": i, "content_block": start})
		switch b["type"] {
		case "text":
			delta("text_delta", "text", b["text"].(string))
		case "thinking":
			delta("thinking_delta", "thinking", b["thinking"].(string))
			delta("signature_delta", "signature", b["signature"].(string))
		case "tool_use":
			delta("input_json_delta", "partial_json", textOf(b["input"]))
		}
		add(object{"type": "content_block_stop", "index": i})
	}
	add(object{"type": "message_delta", "delta": object{"stop_reason": "end_turn"}})
	add(object{"type": "message_stop"})
	return all
}

func TestAnAnswerIsSentBackUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &writer{T: t}
		blocks := w.blocks()
		body := textOf(object{"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": blocks, "stop_reason": "end_turn"})
		message(t, body)
		whole := translateAnswer(t, body).Choices[0].Message
		out, err := translateEvents(newExchange(t), messageEvents(blocks)...)
		if err != nil {
			t.Fatal(err)
		}
		streamed := assembled(t, []byte(out))
		compact(streamed)
		if diff := cmp.Diff(canonical([]byte(textOf(whole))), canonical([]byte(textOf(streamed.Choices[0].Message)))); diff != "" {
			t.Fatalf("streamed: %s", diff)
		}
		translated, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		messages := []any{object{"role": "user", "content": "x"}, stdjson.RawMessage(translated)}
		for _, b := range blocks {
			if b["type"] == "tool_use" {
				messages = append(messages, object{"role": "tool", "tool_call_id": b["id"], "content": "done"})
			}
		}
		messages = append(messages, object{"role": "user", "content": "y"})
		params, _ := translate(t, request(textOf(object{"model": "ours", "messages": messages}), false))
		if diff := cmp.Diff(canonical([]byte(textOf(normalizedOrder(blocks)))), canonical([]byte(textOf(params.Messages[1].Content)))); diff != "" {
			t.Fatal(diff)
		}
	})
}

// translateAnswer returns the translation of a complete answer.
func translateAnswer(t failer, body string) *chat.Answer {
	t.Helper()
	a := &chat.Answer{}
	if err := json.Unmarshal(translateBody(t, body), a); err != nil {
		t.Fatal(err)
	}
	return a
}

func translateBody(t failer, body string) []byte {
	t.Helper()
	out, err := newExchange(t).Answer([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func newExchange(t failer) upstream.Exchange {
	t.Helper()
	e, err := dialect.NewExchange(request(`{"model":"ours",`+hello+`}`, true))
	if err != nil {
		t.Fatal(err)
	}
	return e
}
