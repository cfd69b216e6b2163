package responses_test

import (
	"fmt"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sovereign/internal/text/sse"
	"sovereign/internal/wire/chat"
)

var words = rapid.StringMatching(`[a-zé"\\{}☕ \n]{1,12}`)

// reply draws an assistant message.
func reply(t *rapid.T) chat.Reply {
	r := chat.Reply{Role: chat.RoleAssistant}
	maybe := func(label string) bool { return rapid.Bool().Draw(t, label) }
	if maybe("text") {
		text := words.Draw(t, "content")
		r.Content = &text
	}
	if maybe("refuses") {
		text := words.Draw(t, "refusal")
		r.Refusal = &text
	}
	if maybe("thinks") {
		r.ReasoningContent = words.Draw(t, "reasoning")
	}
	for range rapid.IntRange(0, 3).Draw(t, "thoughts") {
		r.ReasoningDetails = append(r.ReasoningDetails, rapid.OneOf(
			rapid.Just(chat.Thought{Type: chat.ThoughtText, Text: words.Draw(t, "thought"), Signature: words.Draw(t, "signature")}),
			rapid.Just(chat.Thought{Type: chat.ThoughtEncrypted, Data: words.Draw(t, "data")}),
		).Draw(t, "detail"))
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "calls") {
		c := chat.ToolCall{ID: fmt.Sprintf("call_%d", i), Type: "function", Function: chat.FunctionCall{Name: "f" + words.Draw(t, "name"), Arguments: words.Draw(t, "arguments")}}
		if maybe("signed") {
			c.ExtraContent = chat.SignatureContent(words.Draw(t, "google's"))
		}
		r.ToolCalls = append(r.ToolCalls, c)
	}
	if maybe("message signed") {
		r.ExtraContent = chat.SignatureContent(words.Draw(t, "google's own"))
	}
	return r
}

// outputOf returns the output of the response to a complete answer.
func outputOf(t *rapid.T, r chat.Reply) []jsontext.Value {
	body, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := translateAnswer(`{"model":"m","input":"q"}`, completion(string(body), "stop", spent))
	if err != nil {
		t.Fatal(err)
	}
	return last(t, []byte(text))
}

// streamed returns the output of the response to the same answer, streamed.
func streamed(t *rapid.T, r chat.Reply) []jsontext.Value {
	s := &chat.Stream{ID: "c", Model: "m"}
	var text []byte
	cut := func(whole string, each func(string)) {
		at := rapid.IntRange(0, len(whole)).Draw(t, "cut")
		for at > 0 && at < len(whole) && whole[at]&0xc0 == 0x80 {
			at--
		}
		each(whole[:at])
		each(whole[at:])
	}
	if r.ReasoningContent != "" {
		cut(r.ReasoningContent, func(p string) { text = s.Add(text, 0, chat.Delta{ReasoningContent: &p}) })
	}
	for i, thought := range r.ReasoningDetails {
		cut(thought.Text, func(p string) {
			text = s.Add(text, 0, chat.Delta{ReasoningDetails: []chat.Thought{{Type: thought.Type, Text: p, Index: &i}}})
		})
		text = s.Add(text, 0, chat.Delta{ReasoningDetails: []chat.Thought{{Type: thought.Type, Signature: thought.Signature, Data: thought.Data, Index: &i}}})
	}
	if r.Content != nil {
		cut(*r.Content, func(p string) { text = s.Text(text, 0, p) })
	}
	if r.Refusal != nil {
		cut(*r.Refusal, func(p string) { text = s.Add(text, 0, chat.Delta{Refusal: &p}) })
	}
	for i, c := range r.ToolCalls {
		first := true
		cut(c.Function.Arguments, func(p string) {
			call := chat.ToolCall{Index: &i, Function: chat.FunctionCall{Arguments: p}}
			if first {
				call.ID, call.Type, call.Function.Name, call.ExtraContent = c.ID, c.Type, c.Function.Name, c.ExtraContent
			}
			first = false
			text = s.Add(text, 0, chat.Delta{ToolCalls: []chat.ToolCall{call}})
		})
	}
	if r.ExtraContent != nil {
		text = s.Add(text, 0, chat.Delta{ExtraContent: r.ExtraContent})
	}
	events, err := stream(`{"model":"m","input":"q"}`, string(s.End(s.Finish(text, 0, chat.Stop), nil)))
	if err != nil {
		t.Fatal(err)
	}
	var final jsontext.Value
	var reader sse.Reader
	err = reader.Feed([]byte(events), func(e sse.Event) error {
		var told struct {
			Response jsontext.Value `json:"response"`
		}
		err := json.Unmarshal(e.Data, &told)
		final = told.Response
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return last(t, final)
}

func last(t *rapid.T, response []byte) []jsontext.Value {
	var told struct {
		Output []jsontext.Value `json:"output"`
	}
	if err := json.Unmarshal(response, &told); err != nil {
		t.Fatal(err)
	}
	return told.Output
}

// meaning returns the chat messages that a reply becomes when it is sent back.
func meaning(r chat.Reply) []chat.Message {
	m := chat.Message{
		Role: chat.RoleAssistant, Refusal: r.Refusal, ToolCalls: r.ToolCalls, ReasoningDetails: r.ReasoningDetails, ExtraContent: r.ExtraContent,
	}
	if r.Content != nil {
		m.Content = chat.TextContent(*r.Content)
	}
	if r.ReasoningContent != "" {
		m.ReasoningContent = &r.ReasoningContent
	}
	if cmp.Equal(m, chat.Message{Role: chat.RoleAssistant}) {
		return nil // an empty message has no items
	}
	return []chat.Message{m}
}

func TestOutputSentBackYieldsTheSameMessages(t *testing.T) {
	for how, output := range map[string]func(*rapid.T, chat.Reply) []jsontext.Value{"whole": outputOf, "streamed": streamed} {
		t.Run(how, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				said1 := reply(t)
				items := []any{map[string]string{"role": "user", "content": "q"}}
				for _, one := range output(t, said1) {
					items = append(items, one)
				}
				for _, c := range said1.ToolCalls {
					items = append(items, map[string]string{"type": "function_call_output", "call_id": c.ID, "output": "done"})
				}
				items = append(items, map[string]string{"role": "user", "content": "r"})
				body, err := json.Marshal(map[string]any{"model": "m", "input": items})
				if err != nil {
					t.Fatal(err)
				}
				got, err := chat.Decode(translate(t, string(body)))
				if err != nil {
					t.Fatal(err)
				}
				want := append([]chat.Message{{Role: chat.RoleUser, Content: chat.TextContent("q")}}, meaning(said1)...)
				for _, c := range said1.ToolCalls {
					want = append(want, chat.Message{Role: chat.RoleTool, ToolCallID: c.ID, Content: chat.TextContent("done")})
				}
				want = append(want, chat.Message{Role: chat.RoleUser, Content: chat.TextContent("r")})
				if d := cmp.Diff(want, got.Messages); d != "" {
					t.Fatal(d)
				}
			})
		})
	}
}

func FuzzRequest(f *testing.F) {
	f.Add(fullRequest)
	for _, m := range mappings {
		f.Add(`{"model":"m",` + m.body + `}`)
	}
	for body := range refusals {
		f.Add(`{"model":"m",` + body + `}`)
	}
	for body := range invalidRequests {
		f.Add(`{"model":"m",` + body + `}`)
	}
	f.Fuzz(func(t *testing.T, body string) {
		x, err := testDialect().NewExchange(request(body, true))
		if err != nil {
			if got := faultOf(err); got == nil || got.Status != 400 {
				t.Fatalf("%s: %v", body, err)
			}
			return
		}
		_, wire := x.Request()
		if _, err := chat.Decode(wire); err != nil {
			t.Fatalf("%s: %s: %v", body, wire, err)
		}
	})
}

func FuzzEvents(f *testing.F) {
	for _, s := range recordings {
		f.Add(chunks(s.chunks...))
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := stream(fullRequest, text)
		if err != nil {
			return
		}
		all := receivedEvents(t, got)
		if len(all) == 0 {
			t.Fatal("it ended, and said nothing")
		}
		checkEvents(t, all)
	})
}
