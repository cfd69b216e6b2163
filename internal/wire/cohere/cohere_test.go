package cohere_test

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/cohere-ai/cohere-go/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sovereign/internal/base/fault"
	"sovereign/internal/live"
	"sovereign/internal/text/sse"
	"sovereign/internal/wire/chat"
	"sovereign/internal/wire/cohere"
	"sovereign/internal/wire/rerank"
	"sovereign/internal/wire/upstream"
)

// translate translates a body for the model rerank-v3.5. The body is passed in several parts.
func translate(path, body string) (upstream.Exchange, error) {
	half := len(body) / 2
	return cohere.Dialect{}.NewExchange(&upstream.Request{
		Model: &live.Model{ID: "cohere/rerank", Upstream: "rerank-v3.5"}, Path: path, Body: [][]byte{[]byte(body[:half]), []byte(body[half:])},
	})
}

type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func mustTranslate(t fataler, path, body string) upstream.Exchange {
	t.Helper()
	e, err := translate(path, body)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return e
}

// decodeAny decodes JSON into Go's generic types, for comparison.
func decodeAny(t fataler, text []byte) (value any) {
	t.Helper()
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return value
}

// decodeStrict decodes a body into a type of Cohere's SDK, which must encode to the same.
func decodeStrict(t fataler, text []byte, into any) {
	t.Helper()
	decoder := stdjson.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	again, err := stdjson.Marshal(into)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(decodeAny(t, text), decodeAny(t, again)); diff != "" {
		t.Fatal(diff)
	}
}

func TestARequestIsTranslated(t *testing.T) {
	for _, c := range []struct{ path, body, to, translated string }{
		{
			upstream.RerankPath, `{"model":"m","query":"q","documents":["a",{"text":"b"}]}`,
			"/v2/rerank", `{"model":"rerank-v3.5","query":"q","documents":["a","b"]}`,
		},
		{
			upstream.RerankPath, `{"model":"m","query":"q","documents":[{"text":"b","id":null}],"top_n":1,"return_documents":true,"max_tokens_per_doc":100,"rank_fields":null}`,
			"/v2/rerank", `{"model":"rerank-v3.5","query":"q","documents":["b"],"top_n":1,"max_tokens_per_doc":100}`,
		},
		{
			upstream.EmbeddingsPath, `{"model":"m","input":"a"}`,
			"/v2/embed", `{"model":"rerank-v3.5","texts":["a"],"input_type":"search_document","embedding_types":["float"]}`,
		},
		{
			upstream.EmbeddingsPath, `{"model":"m","input":["a","b"],"dimensions":256,"encoding_format":"base64","input_type":"search_query","truncate":"NONE","user":"me"}`,
			"/v2/embed", `{"model":"rerank-v3.5","texts":["a","b"],"input_type":"search_query","embedding_types":["float"],"output_dimension":256,"truncate":"NONE"}`,
		},
		{
			upstream.EmbeddingsPath, `{"model":"m","input":["a"],"dimensions":null,"encoding_format":null,"input_type":null,"user":null}`,
			"/v2/embed", `{"model":"rerank-v3.5","texts":["a"],"input_type":"search_document","embedding_types":["float"]}`,
		},
	} {
		path, translated := mustTranslate(t, c.path, c.body).Request()
		if path != c.to || string(translated) != c.translated {
			t.Errorf("%s:\n got %s %s\nwant %s %s", c.body, path, translated, c.to, c.translated)
		}
		var into any = &sdk.V2RerankRequest{}
		if c.path == upstream.EmbeddingsPath {
			into = &sdk.V2EmbedRequest{}
		}
		decodeStrict(t, translated, into)
	}
}

func TestWhatCannotBeExpressedIsRefusedByName(t *testing.T) {
	ranking, embedding := `{"model":"m","query":"q","documents":["a"],`, `{"model":"m","input":"a",`
	for _, c := range []struct {
		path, body, field string
		kind              fault.Kind
	}{
		{upstream.RerankPath, ranking + `"max_chunks_per_doc":1}`, "max_chunks_per_doc", fault.UnsupportedParameter},
		{upstream.RerankPath, ranking + `"rank_fields":["a"]}`, "rank_fields", fault.UnsupportedParameter},
		{upstream.RerankPath, ranking + `"stream":true}`, "stream", fault.UnsupportedParameter},
		{upstream.RerankPath, ranking + `"max_tokens_per_doc":0}`, "max_tokens_per_doc", fault.InvalidParameter},
		{upstream.RerankPath, ranking + `"max_tokens_per_doc":"1"}`, "max_tokens_per_doc", fault.InvalidParameter},
		{upstream.RerankPath, ranking + `"top_n":0}`, "top_n", fault.InvalidParameter},
		{upstream.RerankPath, `{"model":"m","documents":["a"]}`, "query", fault.InvalidParameter},
		{upstream.RerankPath, `{"model":"m","query":"q","documents":["a",{"text":"b","title":"t","id":5}]}`, "documents[1].id", fault.UnsupportedParameter},
		{upstream.RerankPath, `{"model":"m","query":"q","documents":[{"image":"b"}]}`, "documents[0]", fault.InvalidParameter},
		{upstream.RerankPath, `[]`, "the body", fault.InvalidParameter},
		{upstream.RerankPath, ``, "", fault.InvalidBody},
		{upstream.EmbeddingsPath, embedding + `"wish":"me"}`, "wish", fault.UnsupportedParameter},
		{upstream.EmbeddingsPath, embedding + `"embedding_types":["int8"]}`, "embedding_types", fault.UnsupportedParameter},
		{upstream.EmbeddingsPath, embedding + `"max_tokens":5}`, "max_tokens", fault.UnsupportedParameter},
		{upstream.EmbeddingsPath, embedding + `"encoding_format":"int8"}`, "encoding_format", fault.InvalidParameter},
		{upstream.EmbeddingsPath, embedding + `"encoding_format":5}`, "encoding_format", fault.InvalidParameter},
		{upstream.EmbeddingsPath, embedding + `"dimensions":0}`, "dimensions", fault.InvalidParameter},
		{upstream.EmbeddingsPath, embedding + `"dimensions":1.5}`, "dimensions", fault.InvalidParameter},
		{upstream.EmbeddingsPath, embedding + `"truncate":true}`, "truncate", fault.InvalidParameter},
		{upstream.EmbeddingsPath, `{"model":"m","input":[1,2]}`, "input", fault.UnsupportedParameter},
		{upstream.EmbeddingsPath, `{"model":"m","input":[[1,2]]}`, "input", fault.UnsupportedParameter},
		{upstream.EmbeddingsPath, `{"model":"m","input":["a",1]}`, "input", fault.UnsupportedParameter},
		{upstream.EmbeddingsPath, `{"model":"m","input":["a"` + strings.Repeat(`,"a"`, 96) + `]}`, "input", fault.UnsupportedParameter},
		{upstream.EmbeddingsPath, `{"model":"m","input":[]}`, "input", fault.InvalidParameter},
		{upstream.EmbeddingsPath, `{"model":"m"}`, "input", fault.InvalidParameter},
		{upstream.EmbeddingsPath, `{`, "", fault.InvalidBody},
	} {
		_, err := translate(c.path, c.body)
		var f *fault.Fault
		if !errors.As(err, &f) || f.Field != c.field || f.Kind != c.kind || !strings.Contains(f.Message, c.field) {
			t.Errorf("%.200s: %v, want %q", c.body, err, c.field)
		}
	}
	if _, err := translate(upstream.EmbeddingsPath, `{"model":"m","input":["a"`+strings.Repeat(`,"a"`, 95)+`]}`); err != nil {
		t.Errorf("96 texts: %v", err)
	}
}

func TestChatIsRefusedWithAHintToTheOpenAIEndpoint(t *testing.T) {
	for _, path := range []string{upstream.ChatPath, upstream.ResponsesPath} {
		_, err := translate(path, `{"model":"m","messages":[]}`)
		var f *fault.Fault
		if !errors.As(err, &f) || f.Kind != fault.UnsupportedParameter || !strings.Contains(f.Message, "kind openai") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// theirs are answers as Cohere writes them.
const (
	rerankAnswer = `{"id":"07734bd2","results":[{"index":1,"relevance_score":0.999071},{"index":0,"relevance_score":0.32713068}],"meta":{"api_version":{"version":"2","is_experimental":false},"billed_units":{"search_units":1}}}`
	embedAnswer  = `{"id":"da6e531f","embeddings":{"float":[[0.016296387,-0.008354187],[1.5,-2]]},"texts":["a","b"],"meta":{"api_version":{"version":"2","is_experimental":false},"billed_units":{"input_tokens":2}}}`
)

func TestTheTestAnswersAreValidForCoheresSDK(t *testing.T) {
	var r sdk.V2RerankResponse
	decodeStrict(t, []byte(rerankAnswer), &r)
	var e sdk.EmbedByTypeResponse
	decodeStrict(t, []byte(embedAnswer), &e)
	if len(r.GetExtraProperties()) != 0 || len(e.GetExtraProperties()) != 0 || len(r.Results) != 2 || len(e.Embeddings.Float) != 2 {
		t.Errorf("%+v %+v", r, e)
	}
}

func TestAnAnswerIsTranslated(t *testing.T) {
	pair := `{"model":"m","input":["a","b"]`
	usage := func(meta string) string {
		return strings.Replace(rerankAnswer, `"billed_units":{"search_units":1}`, meta, 1)
	}
	results := `{"id":"07734bd2","model":"rerank-v3.5","results":[{"index":1,"relevance_score":0.999071},{"index":0,"relevance_score":0.32713068}]`
	data := `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.016296387,-0.008354187]},{"object":"embedding","index":1,"embedding":[1.5,-2]}],"model":"rerank-v3.5"`
	packed := `{"object":"list","data":[{"object":"embedding","index":0,"embedding":"AIAFPgAADr4="},{"object":"embedding","index":1,"embedding":"AADAPwAAAMA="}],"model":"rerank-v3.5"`
	for _, c := range []struct{ path, body, theirs, ours string }{
		{upstream.RerankPath, rerankBody, rerankAnswer, results + `,"usage":{"search_units":1}}`},
		{upstream.RerankPath, rerankBody, usage(`"billed_units":{"search_units":0.0,"input_tokens":5},"tokens":{"input_tokens":9}`), results + `,"usage":{"prompt_tokens":5,"total_tokens":5,"search_units":0}}`},
		{upstream.RerankPath, rerankBody, usage(`"tokens":{"input_tokens":9,"output_tokens":0}`), results + `,"usage":{"prompt_tokens":9,"total_tokens":9}}`},
		{upstream.RerankPath, rerankBody, usage(`"billed_units":{"search_units":"many"}`), results + `}`},
		{upstream.RerankPath, rerankBody, `{"results":[]}`, `{"model":"rerank-v3.5","results":[]}`},
		{upstream.EmbeddingsPath, pair + `}`, embedAnswer, data + `,"usage":{"prompt_tokens":2,"total_tokens":2}}`},
		{upstream.EmbeddingsPath, pair + `}`, strings.Replace(embedAnswer, `:2}}`, `:0}}`, 1), data + `,"usage":{"prompt_tokens":0,"total_tokens":0}}`},
		{upstream.EmbeddingsPath, pair + `}`, strings.Replace(embedAnswer, `"input_tokens"`, `"search_units"`, 1), data + `}`},
		{upstream.EmbeddingsPath, pair + `}`, strings.Replace(embedAnswer, `"meta"`, `"matter"`, 1), data + `}`},
		{
			upstream.EmbeddingsPath, pair + `,"encoding_format":"base64"}`,
			strings.Replace(embedAnswer, "0.016296387,-0.008354187", "0.13037109375,-0.138671875", 1), packed + `,"usage":{"prompt_tokens":2,"total_tokens":2}}`,
		},
	} {
		ours, err := mustTranslate(t, c.path, c.body).Answer([]byte(c.theirs))
		if err != nil || string(ours) != c.ours {
			t.Errorf("%v\n got %s\nwant %s", err, ours, c.ours)
		}
	}
}

const rerankBody = `{"model":"m","query":"q","documents":["a",{"text":"b"}],"return_documents":true}`

func TestARerankAnswerIsAcceptedByRender(t *testing.T) {
	theirs, err := mustTranslate(t, upstream.RerankPath, rerankBody).Answer([]byte(rerankAnswer))
	if err != nil {
		t.Fatal(err)
	}
	request, err := rerank.Decode([]byte(rerankBody))
	if err != nil {
		t.Fatal(err)
	}
	ours, counts, err := rerank.Render(request, theirs, "x")
	want := `{"id":"07734bd2","model":"rerank-v3.5","results":[{"index":1,"relevance_score":0.999071,"document":{"text":"b"}},{"index":0,"relevance_score":0.32713068,"document":{"text":"a"}}],"usage":{"search_units":1}}`
	if err != nil || string(ours) != want || counts.SearchUnits.Or0() != 1 || counts.PromptTokens != nil {
		t.Errorf("%v, %+v: %s", err, counts, ours)
	}
}

func TestAnInvalidAnswerIsAnError(t *testing.T) {
	for path, all := range map[string][]string{
		upstream.RerankPath: {``, `null`, `[]`, `{}`, `{"results":null}`, `{"results":{}}`, `{"id":5,"results":[]}`, `<html>`},
		upstream.EmbeddingsPath: {
			``, `null`, `{}`, `{"embeddings":[[1]]}`, `{"embeddings":{"int8":[[1],[2]]}}`, `{"embeddings":{"float":[[1]]}}`, `{"embeddings":{"float":[[1],[2],[3]]}}`,
			`{"embeddings":{"float":[[1],[]]}}`, `{"embeddings":{"float":[[1],["2"]]}}`, `{"embeddings":{"float":[[1],[1e999]]}}`, `{"embeddings":{"float":[[1],[1e39]]}}`,
		},
	} {
		body := rerankBody
		if path == upstream.EmbeddingsPath {
			body = `{"model":"m","input":["a","b"],"encoding_format":"base64"}`
		}
		for _, theirs := range all {
			if ours, err := mustTranslate(t, path, body).Answer([]byte(theirs)); err == nil {
				t.Errorf("%s became %s", theirs, ours)
			}
		}
	}
}

func TestThereAreNoStreams(t *testing.T) {
	e := mustTranslate(t, upstream.RerankPath, rerankBody)
	if to, err := e.Event([]byte("x"), sse.Event{}); err == nil || string(to) != "x" {
		t.Errorf("%s, %v", to, err)
	}
}

func TestAnErrorKeepsItsStatusAndMessage(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   int
		kind   string
		says   string
	}{
		{400, `{"message":"invalid request: list of documents must not be empty"}`, 400, "invalid_request_error", "invalid request: list of documents must not be empty"},
		{401, `{"id":"x","message":"invalid api token"}`, 401, "invalid_request_error", "invalid api token"},
		{402, `{"message":"pay"}`, 402, "invalid_request_error", "pay"},
		{404, `{"message":"model 'x' not found"}`, 404, "invalid_request_error", "model 'x' not found"},
		{422, `{"message":"no"}`, 422, "invalid_request_error", "no"},
		{429, `{"message":"slow down"}`, 429, "rate_limit_error", "slow down"},
		{498, `{"message":"blocked"}`, 400, "invalid_request_error", "blocked"},
		{499, `{"message":"cancelled"}`, 503, "api_error", "cancelled"},
		{500, `{"message":"oops"}`, 500, "api_error", "oops"},
	} {
		status, body := cohere.Dialect{}.ErrorAnswer(c.status, []byte(c.body))
		if want := chat.ErrorBody(c.want, c.kind, c.says); status != c.want || !bytes.Equal(body, want) {
			t.Errorf("%d %s: %d %s, want %s", c.status, c.body, status, body, want)
		}
	}
}

func TestAnErrorInAnotherFormStaysAsItIs(t *testing.T) {
	for _, body := range []string{``, `<html>`, `{"message":"half`, `{"message":{"text":"x"}}`, `{"detail":"x"}`} {
		if status, got := (cohere.Dialect{}).ErrorAnswer(498, []byte(body)); status != 400 || string(got) != body {
			t.Errorf("%s: %d %s", body, status, got)
		}
	}
}

func TestVectorsAreReturnedUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dimensions := rapid.IntRange(1, 20).Draw(t, "dimensions")
		vectors := rapid.SliceOfN(rapid.SliceOfN(rapid.Float32(), dimensions, dimensions), 1, 96).Draw(t, "vectors")
		texts := rapid.SliceOfN(rapid.String(), len(vectors), len(vectors)).Draw(t, "texts")
		tokens := rapid.Int64Range(0, 1e9).Draw(t, "tokens")
		theirs, err := json.Marshal(map[string]any{"embeddings": map[string]any{"float": vectors}, "meta": map[string]any{"billed_units": map[string]any{"input_tokens": tokens}}})
		if err != nil {
			t.Fatal(err)
		}
		input, err := json.Marshal(texts)
		if err != nil {
			t.Fatal(err)
		}
		for _, format := range []string{"float", "base64"} {
			e := mustTranslate(t, upstream.EmbeddingsPath, `{"input":`+string(input)+`,"encoding_format":"`+format+`"}`)
			_, translated := e.Request()
			var request sdk.V2EmbedRequest
			if decodeStrict(t, translated, &request); !cmp.Equal(request.Texts, texts) {
				t.Fatalf("%q became %q", texts, request.Texts)
			}
			ours, err := e.Answer(theirs)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(vectors, vectorsOf(t, ours)); diff != "" {
				t.Fatalf("%s: %s", format, diff)
			}
		}
	})
}

func TestEveryDocumentIsSent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		query := rapid.StringN(1, 20, -1).Draw(t, "query")
		texts := rapid.SliceOfN(rapid.String(), 1, 20).Draw(t, "texts")
		documents := make([]any, len(texts))
		for i, text := range texts {
			documents[i] = text
			if rapid.Bool().Draw(t, "object") {
				documents[i] = map[string]string{"text": text}
			}
		}
		body, err := json.Marshal(map[string]any{"query": query, "documents": documents})
		if err != nil {
			t.Fatal(err)
		}
		_, translated := mustTranslate(t, upstream.RerankPath, string(body)).Request()
		var request sdk.V2RerankRequest
		if decodeStrict(t, translated, &request); request.Query != query || !cmp.Equal(request.Documents, texts) {
			t.Fatalf("%s became %s", body, translated)
		}
	})
}

func FuzzRequest(f *testing.F) {
	for _, body := range []string{
		rerankBody, `{"query":"q","documents":["a"],"top_n":1,"max_tokens_per_doc":5}`, `{"query":"q","documents":[{"text":"a","id":5}]}`,
		`{"input":["a","b"],"dimensions":3,"encoding_format":"base64","input_type":"x","truncate":"END"}`, `{"input":[1]}`, `null`, `[]`, ``,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for path, into := range map[string]any{upstream.RerankPath: &sdk.V2RerankRequest{}, upstream.EmbeddingsPath: &sdk.V2EmbedRequest{}} {
			e, err := translate(path, string(body))
			var refused *fault.Fault
			switch {
			case err == nil:
				_, translated := e.Request()
				decodeStrict(t, translated, into)
			case !errors.As(err, &refused) || refused.Status != http.StatusBadRequest:
				t.Fatalf("%v", err)
			}
		}
	})
}

func FuzzAnswer(f *testing.F) {
	for _, body := range []string{rerankAnswer, embedAnswer, `{"results":[]}`, `{"message":"x"}`, "\xff", ``} {
		f.Add(418, []byte(body))
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		for path, request := range map[string]string{upstream.RerankPath: rerankBody, upstream.EmbeddingsPath: `{"input":["a","b"]}`} {
			ours, err := mustTranslate(t, path, request).Answer(body)
			if err == nil && ours[0] != '{' {
				t.Fatalf("%s", ours)
			}
		}
		if _, told := (cohere.Dialect{}).ErrorAnswer(status, body); !bytes.Equal(told, body) && !jsontext.Value(told).IsValid() {
			t.Fatalf("%s", told)
		}
	})
}
