package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"
)

func google(t *testing.T, address, key string) *genai.Client {
	t.Helper()
	client, err := genai.NewClient(t.Context(), &genai.ClientConfig{Backend: genai.BackendGeminiAPI, APIKey: key, HTTPOptions: genai.HTTPOptions{BaseURL: address + "/gemini"}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// geminiModel is a model's name as it stands in a path; Google's package wants no & in it.
func geminiModel(model string) string { return strings.ReplaceAll(url.PathEscape(model), "&", "%26") }

// geminiGist is a summary of an answer in one line.
func geminiGist(pieces ...*genai.GenerateContentResponse) string {
	var said, thought, signature strings.Builder
	var calls []string
	var finish, usage []string
	for _, r := range pieces {
		if r.PromptFeedback != nil {
			finish = append(finish, "blocked", string(r.PromptFeedback.BlockReason))
		}
		for _, c := range r.Candidates[:min(1, len(r.Candidates))] {
			for _, p := range c.Content.Parts {
				switch {
				case p.FunctionCall != nil:
					calls = append(calls, p.FunctionCall.Name+encode(p.FunctionCall.Args))
				case p.Thought:
					thought.WriteString(p.Text)
				default:
					said.WriteString(p.Text)
				}
				signature.Write(p.ThoughtSignature)
			}
			if c.FinishReason != "" {
				finish = append(finish, string(c.FinishReason))
			}
		}
		if u := r.UsageMetadata; u != nil {
			usage = []string{fmt.Sprintf("in %d cached %d out %d thought %d total %d", u.PromptTokenCount, u.CachedContentTokenCount, u.CandidatesTokenCount, u.ThoughtsTokenCount, u.TotalTokenCount)}
			for _, d := range u.PromptTokensDetails[1:] {
				usage = append(usage, fmt.Sprintf("%s %d", d.Modality, d.TokenCount))
			}
		}
	}
	vouched := ""
	if signature.Len() > 0 {
		vouched = " signed"
	}
	return fmt.Sprintf("%q %q %v%s | %s | %s", thought.String(), said.String(), calls, vouched, strings.Join(finish, " "), strings.Join(usage, " "))
}

func geminiFunctions(names ...string) []*genai.Tool {
	out := &genai.Tool{}
	for _, name := range names {
		out.FunctionDeclarations = append(out.FunctionDeclarations, &genai.FunctionDeclaration{Name: name, Parameters: &genai.Schema{
			Type: genai.TypeObject, Required: []string{"city"}, Properties: map[string]*genai.Schema{"city": {Type: genai.TypeString, Enum: []string{"Ulm"}}},
		}})
	}
	return []*genai.Tool{out}
}

func TestGooglesPackageReadsTheSameFromStreamsAndBodies(t *testing.T) {
	client := google(t, start(t), secretKey)
	thinking := &genai.GenerateContentConfig{ThinkingConfig: &genai.ThinkingConfig{IncludeThoughts: true}}
	tools := &genai.GenerateContentConfig{Tools: geminiFunctions("today", "tomorrow")}
	chosen := &genai.GenerateContentConfig{Tools: tools.Tools, ToolConfig: &genai.ToolConfig{FunctionCallingConfig: &genai.FunctionCallingConfig{Mode: genai.FunctionCallingConfigModeAny, AllowedFunctionNames: []string{"tomorrow"}}}}
	none := &genai.GenerateContentConfig{Tools: tools.Tools, ToolConfig: &genai.ToolConfig{FunctionCallingConfig: &genai.FunctionCallingConfig{Mode: genai.FunctionCallingConfigModeNone}}}
	structured := &genai.GenerateContentConfig{ResponseMIMEType: "application/json", ResponseSchema: &genai.Schema{Type: genai.TypeObject, Required: []string{"pass"}, Properties: map[string]*genai.Schema{"pass": {Type: genai.TypeBoolean}}}}
	plain := &genai.GenerateContentConfig{ResponseMIMEType: "application/json", ResponseJsonSchema: map[string]any{"type": "object", "required": []string{"n"}, "properties": map[string]any{"n": map[string]any{"type": "integer"}}}}
	for name, c := range map[string]struct {
		model  string
		config *genai.GenerateContentConfig
		want   string
	}{
		"text":        {"mock?text=5", nil, `"" "every request is held before" [] | STOP | in 3 cached 0 out 5 thought 0 total 8`},
		"system":      {"mock?text=1", &genai.GenerateContentConfig{SystemInstruction: genai.NewContentFromText("be brief", "")}, `"" "every" [] | STOP | in 5 cached 0 out 1 thought 0 total 6`},
		"limit":       {"mock?text=9", &genai.GenerateContentConfig{MaxOutputTokens: 4, Temperature: genai.Ptr[float32](0), TopK: genai.Ptr[float32](3), Seed: genai.Ptr[int32](7)}, `"" "every request is held" [] | MAX_TOKENS | in 3 cached 0 out 4 thought 0 total 7`},
		"thinking":    {"mock?reasoning=2&text=1", thinking, `"every request" "every" [] signed | STOP | in 3 cached 0 out 1 thought 2 total 6`},
		"no thoughts": {"mock?reasoning=2&text=1", nil, `"" "every" [] | STOP | in 3 cached 0 out 1 thought 2 total 6`},
		"tools":       {"mock?tool", tools, `"" "" [today{"city":"Ulm"} tomorrow{"city":"Ulm"}] signed | STOP | in 3 cached 0 out 4 thought 0 total 7`},
		"chosen":      {"mock?tool", chosen, `"" "" [tomorrow{"city":"Ulm"}] signed | STOP | in 3 cached 0 out 2 thought 0 total 5`},
		"none":        {"mock?tool&text=1", none, `"" "every" [] | STOP | in 3 cached 0 out 1 thought 0 total 4`},
		"structured":  {"mock?json", structured, `"" "{\"pass\":true}" [] | STOP | in 3 cached 0 out 1 thought 0 total 4`},
		"JSON schema": {"mock?json", plain, `"" "{\"n\":0}" [] | STOP | in 3 cached 0 out 1 thought 0 total 4`},
		"figures":     {"mock?text=1&in=1000&cached=900&audio=30&out=7", nil, `"" "every" [] | STOP | in 1000 cached 900 out 7 thought 0 total 1007 AUDIO 30`},
		"safety":      {"mock?text=0&finish=SAFETY", nil, `"" "" [] | SAFETY | in 3 cached 0 out 0 thought 0 total 3`},
		"blocked":     {"mock?block=PROHIBITED_CONTENT", nil, `"" "" [] | blocked PROHIBITED_CONTENT | in 3 cached 0 out 0 thought 0 total 3`},
		"odd framing": {"mock?text=2&crlf&split=5", nil, `"" "every request" [] | STOP | in 3 cached 0 out 2 thought 0 total 5`},
	} {
		t.Run(name, func(t *testing.T) {
			question := []*genai.Content{genai.NewContentFromText("one two three", genai.RoleUser)}
			whole, err := client.Models.GenerateContent(t.Context(), geminiModel(c.model), question, c.config)
			if err != nil {
				t.Fatal(err)
			}
			if got := geminiGist(whole); got != c.want {
				t.Errorf("\n%s\nis not\n%s", got, c.want)
			}
			var pieces []*genai.GenerateContentResponse
			for piece, err := range client.Models.GenerateContentStream(t.Context(), geminiModel(c.model), question, c.config) {
				if err != nil {
					t.Fatal(err)
				}
				pieces = append(pieces, piece)
			}
			if got := geminiGist(pieces...); got != c.want {
				t.Errorf("streamed\n%s\nis not\n%s", got, c.want)
			}
		})
	}
}

// Google's package drops what it does not know, so its types are held against the bytes.
func TestGooglesTypesKnowEveryMember(t *testing.T) {
	address := start(t)
	for _, model := range []string{"mock?reasoning=2&cached=1&audio=1", "mock?tool", "mock?block=SAFETY", "mock?finish=SAFETY&text=0"} {
		body := `{"contents":[{"role":"user","parts":[{"text":"a"}]}],"generationConfig":{"thinkingConfig":{"includeThoughts":true}},"tools":[{"functionDeclarations":[{"name":"f"}]}]}`
		status, text, err := sendAs(t, address, "/gemini/v1beta/models/"+geminiModel(model)+":generateContent", body, map[string]string{"X-Goog-Api-Key": secretKey})
		type strict genai.GenerateContentResponse // without its own way of reading, which drops members
		var known strict
		if err != nil || status != http.StatusOK {
			t.Fatal(status, text, err)
		}
		if err := understood("", []byte(text), &known); err != nil && !strings.Contains(err.Error(), "createTime is required") {
			t.Errorf("%s: %v in %s", model, err, text)
		}
	}
}

func TestGooglesToolTurnsGoRound(t *testing.T) {
	client := google(t, start(t), secretKey)
	config := &genai.GenerateContentConfig{Tools: geminiFunctions("today", "tomorrow")}
	turns := []*genai.Content{
		{Role: genai.RoleUser, Parts: []*genai.Part{{Text: "look"}, {InlineData: &genai.Blob{MIMEType: "image/png", Data: []byte("png")}}, {FileData: &genai.FileData{FileURI: "https://example.test/a.png", MIMEType: "image/png"}}}},
	}
	first, err := client.Models.GenerateContent(t.Context(), geminiModel("mock?tool"), turns, config)
	if err != nil || len(first.FunctionCalls()) != 2 {
		t.Fatal(err)
	}
	answers := &genai.Content{Role: genai.RoleUser}
	for _, call := range first.FunctionCalls() {
		answers.Parts = append(answers.Parts, &genai.Part{FunctionResponse: &genai.FunctionResponse{ID: call.ID, Name: call.Name, Response: map[string]any{"output": "fine"}}})
	}
	turns = append(turns, first.Candidates[0].Content, answers)
	second, err := client.Models.GenerateContent(t.Context(), geminiModel("mock?tool&text=1"), turns, config)
	if err != nil || second.Text() != "every" {
		t.Fatal(second, err)
	}
	for want, spoil := range map[string]func(){
		"missing its thought signature": func() { turns[1].Parts[0].ThoughtSignature = nil },
		"is not mine":                   func() { turns[1].Parts[0].ThoughtSignature = []byte("other") },
		"not of this part":              func() { turns[1].Parts[0].ThoughtSignature = []byte(foreign[0]) },
		"answers no function call":      func() { turns[2].Parts[0].FunctionResponse.Name = "never" },
		"must equal that of":            func() { turns[2].Parts = turns[2].Parts[1:] },
	} {
		before := encode(turns)
		spoil()
		if _, err := client.Models.GenerateContent(t.Context(), geminiModel("mock?tool&vouched"), turns, config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		turns = nil
		if err := json.Unmarshal([]byte(before), &turns); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 { // another model made the calls
		turns[1].Parts[i].FunctionCall.ID = fmt.Sprint("other", i)
		turns[2].Parts[i].FunctionResponse.ID = fmt.Sprint("other", i)
	}
	for _, signature := range []string{"", foreign[0]} {
		turns[1].Parts[0].ThoughtSignature = []byte(signature)
		if _, err := client.Models.GenerateContent(t.Context(), geminiModel("mock?tool&vouched"), turns, config); err != nil {
			t.Errorf("%q: %v", signature, err)
		}
	}
}

func TestGooglesPackageReadsEmbeddings(t *testing.T) {
	address := start(t)
	got, err := google(t, address, secretKey).Models.EmbedContent(t.Context(), geminiModel("mock?latency=1ms"), []*genai.Content{genai.NewContentFromText("one two", ""), genai.NewContentFromText("three", "")}, &genai.EmbedContentConfig{OutputDimensionality: genai.Ptr[int32](5), TaskType: "RETRIEVAL_QUERY"})
	if err != nil || len(got.Embeddings) != 2 || !slices.Equal(got.Embeddings[0].Values, embed("one two", 5)) || !slices.Equal(got.Embeddings[1].Values, embed("three", 5)) {
		t.Fatal(got, err)
	}
}

func TestGooglesRefusalsAndFaultsAreItsOwn(t *testing.T) {
	address := start(t)
	client, question := google(t, address, secretKey), genai.Text("one two three")
	for model, want := range map[string]genai.APIError{
		"mock?status=429&retry_after=7": {Code: 429, Status: "RESOURCE_EXHAUSTED"}, "mock?status=503": {Code: 503, Status: "UNAVAILABLE"},
		"gemini": {Code: 404, Status: "NOT_FOUND"}, "mock?misspelt": {Code: 400, Status: "INVALID_ARGUMENT"},
	} {
		var refusal genai.APIError
		if _, err := client.Models.GenerateContent(t.Context(), geminiModel(model), question, nil); !errors.As(err, &refusal) || refusal.Code != want.Code || refusal.Status != want.Status {
			t.Errorf("%s: %v", model, err)
		}
	}
	if _, err := google(t, address, "other").Models.GenerateContent(t.Context(), "mock", question, nil); err == nil || !strings.Contains(err.Error(), "API_KEY_INVALID") {
		t.Error(err)
	}
	for model, want := range map[string]string{"mock?error_event_after=1": "UNAVAILABLE", "mock?die_after=1": "EOF", "mock?garbage_after=1": "invalid character", "mock?reset_after=1": "reset"} {
		heard, failed := 0, error(nil)
		for piece, err := range client.Models.GenerateContentStream(t.Context(), geminiModel(model), question, nil) {
			if err != nil {
				failed = err
				break
			}
			heard += len(piece.Text())
		}
		if failed == nil || !strings.Contains(failed.Error(), want) || heard == 0 {
			t.Errorf("%s: %v after %d", model, failed, heard)
		}
	}
}

func TestGoogleRefusesWhatItsTypesOrItsRulesDoNotAllow(t *testing.T) {
	address := start(t)
	const hi = `"contents":[{"role":"user","parts":[{"text":"hi"}]}]`
	for body, want := range map[string]string{
		hi:                     "",
		`"contents":[]`:        "contents",
		hi + `,"max_tokens":3`: `unknown field \"max_tokens\"`,
		hi + `,"generationConfig":{"maxTokens":3}`:                                                                                      `unknown field \"maxTokens\"`,
		hi + `,"generationConfig":{"temperature":0}`:                                                                                    "",
		hi + `,"generationConfig":{"temperature":3}`:                                                                                    "temperature",
		hi + `,"generationConfig":{"responseJsonSchema":{"a":1}}`:                                                                       "responseMimeType",
		hi + `,"generationConfig":{"thinkingConfig":{"thinkingBudget":1,"thinkingLevel":"LOW"}}`:                                        "thinkingConfig",
		hi + `,"tools":[{"functionDeclarations":[{"name":"f","parameters":{"type":"object","additionalProperties":false}}]}]`:           `unknown field \"additionalProperties\"`,
		hi + `,"tools":[{"functionDeclarations":[{"name":"f","parametersJsonSchema":{"type":"object","additionalProperties":false}}]}]`: "",
		hi + `,"tools":[{"functionDeclarations":[{"name":"a b"}]}]`:                                                                     "name",
		hi + `,"toolConfig":{"functionCallingConfig":{"mode":"ANY"}}`:                                                                   "toolConfig",
		`"contents":[{"role":"assistant","parts":[{"text":"hi"}]}]`:                                                                     "role",
		`"contents":[{"role":"user","parts":[]}]`:                                                                                       "parts",
		`"contents":[{"role":"user","parts":[{"text":""}]}]`:                                                                            "one initialized field",
		`"contents":[{"role":"user","parts":[{"text":"a","inlineData":{"mimeType":"a/b","data":"AA=="}}]}]`:                             "one initialized field",
		`"contents":[{"role":"user","parts":[{"functionResponse":{"name":"f","response":{}}}]}]`:                                        "response",
		`"contents":[{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"a":1}}}]}]`:                                   "answers no function call",
		`"contents":[{"role":"model","parts":[{"functionCall":{"name":"f"}}]}]`:                                                         "right after the user's",
	} {
		status, text, err := sendAs(t, address, "/gemini/v1beta/models/mock:generateContent", `{`+body+`}`, map[string]string{"X-Goog-Api-Key": secretKey})
		if err != nil || !json.Valid([]byte(text)) || (status == http.StatusOK) != (want == "") || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s %v", body, status, text, err)
		}
	}
	for path, want := range map[string]string{"mock:streamGenerateContent": "alt=sse", "mock": "no method", "mock:countTokens": "countTokens", "mock:batchEmbedContents": `unknown field \"contents\"`} {
		if status, text, _ := sendAs(t, address, "/gemini/v1beta/models/"+path, `{`+hi+`}`, map[string]string{"X-Goog-Api-Key": secretKey}); status != http.StatusBadRequest || !strings.Contains(text, want) {
			t.Error(path, status, text)
		}
	}
}
