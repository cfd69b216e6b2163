package gemini_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/text/sse"
	"sovereign/internal/wire/upstream"
)

func FuzzRequest(f *testing.F) {
	for _, body := range []string{
		hello, helloWith(`"stream":true,"n":2,"seed":5,"tools":[{"type":"function","function":{"name":"f","strict":true}}],"tool_choice":"required","reasoning_effort":"high"`),
		helloWith(`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{}}},"stop":["a"],"logprobs":true,"top_logprobs":2`),
		messages(`{"role":"system","content":"s"},{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA==","detail":"low"}},{"type":"input_audio","input_audio":{"data":"AA==","format":"wav"}},{"type":"file","file":{"file_data":"data:a/b;base64,AA=="}}]},
			{"role":"assistant","content":null,"reasoning_content":"x","reasoning_details":[{"type":"reasoning.text","text":"x","signature":"AA=="}],"extra_content":{"google":{"thought_signature":"AA=="}},"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"{}"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}`),
		`{"input":["a"],"dimensions":3,"encoding_format":"base64"}`, `{"input":[1]}`, `[]`, `{`, ``, "{\"messages\":\"\xff\"}",
	} {
		f.Add(body, true, true)
		f.Add(body, false, false)
	}
	f.Fuzz(func(t *testing.T, body string, chats, early bool) {
		path, model := upstream.EmbeddingsPath, now
		if chats {
			path = upstream.ChatPath
		}
		if early {
			model = before
		}
		for _, stream := range []bool{false, true} {
			e, err := dialect.NewExchange(request(model, path, body, stream))
			if err != nil {
				var refused *fault.Fault
				if !errors.As(err, &refused) || refused.Status != 400 {
					t.Fatalf("%s: %v", body, err)
				}
				continue
			}
			if _, translated := e.Request(); !jsontext.Value(translated).IsValid() {
				t.Fatalf("%s became %s", body, translated)
			}
		}
	})
}

func FuzzEvents(f *testing.F) {
	for _, c := range recordings(f) {
		f.Add([]byte(c.events), 2)
		f.Add([]byte(c.whole), 1)
	}
	f.Add([]byte("data: {\"error\":{\"code\":503,\"status\":\"UNAVAILABLE\"}}\n\n"), 1)
	f.Add([]byte(`{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":[]}}]}}]}`), 1)
	f.Fuzz(func(t *testing.T, text []byte, n int) {
		body := hello
		if n > 1 {
			body = helloWith(`"n":2`)
		}
		e, err := dialect.NewExchange(request(now, upstream.ChatPath, body, true))
		if err != nil {
			t.Fatal(err)
		}
		var out []byte
		var events sse.Reader
		err = events.Feed(text, func(event sse.Event) (err error) {
			out, err = e.Event(out, event)
			return err
		})
		if bytes.Contains(out, []byte(done)) && (!isComplete(e) || err == nil && !bytes.HasSuffix(out, []byte(done))) {
			t.Fatalf("%s", out)
		}
		var read sse.Reader
		if err := read.Feed(out, func(event sse.Event) error {
			if !bytes.Equal(event.Data, []byte("[DONE]")) && !jsontext.Value(event.Data).IsValid(jsontext.AllowInvalidUTF8(true)) {
				t.Fatalf("%s", event.Data)
			}
			return nil
		}); err != nil || read.Rest() {
			t.Fatalf("%s: %v", out, err)
		}
		whole, err := dialect.NewExchange(request(now, upstream.ChatPath, body, false))
		if err != nil {
			t.Fatal(err)
		}
		if translated, err := whole.Answer(text); err == nil && !jsontext.Value(translated).IsValid(jsontext.AllowInvalidUTF8(true)) {
			t.Fatalf("%s", translated)
		}
		status, translated := dialect.ErrorAnswer(500, text)
		if status < 400 || status > 599 || !bytes.Equal(translated, text) && !jsontext.Value(translated).IsValid(jsontext.AllowInvalidUTF8(true)) {
			t.Fatalf("%d %s", status, translated)
		}
	})
}

// isComplete reports whether the stream was complete.
func isComplete(e upstream.Exchange) bool {
	_, err := e.End(nil)
	return err == nil
}
