package gemini_test

import (
	"context"
	stdjson "encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/genai"

	"sovereign/internal/wire/upstream"
)

// captureClient returns what Google's client sends to a server that answers with a body.
func captureClient(t *testing.T, answer string, say func(c *genai.Client) error) (path, body string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		path, body = r.URL.Path, string(text)
		if r.URL.RawQuery != "" {
			path += "?" + r.URL.RawQuery
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	client, err := genai.NewClient(context.Background(), &genai.ClientConfig{
		APIKey: "key", Backend: genai.BackendGeminiAPI, HTTPClient: server.Client(), HTTPOptions: genai.HTTPOptions{BaseURL: server.URL},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := say(client); err != nil {
		t.Fatal(err)
	}
	return path, body
}

// TestGooglesClientSendsTheSameRequest compares a translated chat request with the one of Google's client, which knows
// what the Gemini API accepts.
func TestGooglesClientSendsTheSameRequest(t *testing.T) {
	const body = `{"model":"m","temperature":0.5,"top_p":0.25,"top_k":4,"n":2,"max_tokens":9,"stop":["x"],"seed":3,"presence_penalty":0.5,"frequency_penalty":1,
		"logprobs":true,"top_logprobs":2,"reasoning_effort":"low","response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object"}}},
		"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}],
		"tool_choice":{"type":"function","function":{"name":"f"}},
		"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"t"},
			{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA","detail":"low"}},{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}]},
			{"role":"assistant","reasoning_content":"hm","content":"c","extra_content":{"google":{"thought_signature":"BBBB"}},
				"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":\"b\"}"},"extra_content":{"google":{"thought_signature":"AAAA"}}}]},
			{"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"r"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]}`
	e, err := dialect.NewExchange(request(now, upstream.ChatPath, body, false))
	if err != nil {
		t.Fatal(err)
	}
	ourPath, ours := e.Request()
	translated := translate(t, now, body)
	var all, settings map[string]stdjson.RawMessage
	if err := stdjson.Unmarshal(ours, &all); err != nil {
		t.Fatal(err)
	}
	if err := stdjson.Unmarshal(all["generationConfig"], &settings); err != nil {
		t.Fatal(err)
	}
	delete(all, "generationConfig")
	delete(all, "contents")
	maps.Copy(settings, all)
	merged, err := stdjson.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	var config genai.GenerateContentConfig
	decodeStrict(t, merged, &config)
	path, theirs := captureClient(t, `{}`, func(c *genai.Client) error {
		_, err := c.Models.GenerateContent(context.Background(), now, translated.Contents, &config)
		return err
	})
	if path != "/v1beta"+ourPath {
		t.Errorf("%s, want %s", ourPath, path)
	}
	// Who instructs, the client names and the API does not ask.
	assertEqual(t, string(ours), strings.Replace(theirs, `"systemInstruction":{"parts":[{"text":"s"}],"role":"user"}`, `"systemInstruction":{"parts":[{"text":"s"}]}`, 1))
}

func TestGooglesClientSendsTheSameEmbeddingRequest(t *testing.T) {
	e, err := dialect.NewExchange(request("gemini-embedding-001", upstream.EmbeddingsPath, `{"input":["a","b"],"dimensions":8,"task_type":"RETRIEVAL_QUERY","title":"t"}`, false))
	if err != nil {
		t.Fatal(err)
	}
	ourPath, ours := e.Request()
	dimensions := int32(8)
	path, theirs := captureClient(t, `{"embeddings":[{"values":[1]},{"values":[1]}]}`, func(c *genai.Client) error {
		_, err := c.Models.EmbedContent(context.Background(), "gemini-embedding-001",
			[]*genai.Content{{Parts: []*genai.Part{{Text: "a"}}}, {Parts: []*genai.Part{{Text: "b"}}}},
			&genai.EmbedContentConfig{TaskType: "RETRIEVAL_QUERY", Title: "t", OutputDimensionality: &dimensions})
		return err
	})
	if path != "/v1beta"+ourPath {
		t.Errorf("%s, want %s", ourPath, path)
	}
	assertEqual(t, string(ours), theirs)
}

func TestGooglesClientUsesTheSameStreamPath(t *testing.T) {
	e, err := dialect.NewExchange(request(now, upstream.ChatPath, hello, true))
	if err != nil {
		t.Fatal(err)
	}
	ourPath, ours := e.Request()
	path, theirs := captureClient(t, "data: {}\n\n", func(c *genai.Client) error {
		for _, err := range c.Models.GenerateContentStream(context.Background(), now, genai.Text("hello"), nil) {
			return err
		}
		return nil
	})
	if path != "/v1beta"+ourPath {
		t.Errorf("%s, want %s", ourPath, path)
	}
	assertEqual(t, string(ours), theirs)
}
