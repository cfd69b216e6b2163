package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	cohere "github.com/cohere-ai/cohere-go/v2"
	"github.com/cohere-ai/cohere-go/v2/core"
	"github.com/cohere-ai/cohere-go/v2/option"
	"github.com/cohere-ai/cohere-go/v2/v2"
)

func cohereClient(address, key string) *v2.Client {
	return v2.NewClient(option.WithBaseURL(address+"/cohere"), option.WithToken(key), option.WithMaxAttempts(1))
}

func TestCoheresPackageReadsRanksAndEmbeddings(t *testing.T) {
	address := start(t)
	client := cohereClient(address, secretKey)
	ranks, err := client.Rerank(t.Context(), &cohere.V2RerankRequest{Model: "mock?latency=1ms", Query: "red fish", Documents: []string{"blue fish", "a cat", "red fish swim"}, TopN: cohere.Int(2)})
	if err != nil || len(ranks.Results) != 2 || ranks.Results[0].Index != 2 || ranks.Results[0].RelevanceScore != 1 || ranks.Results[1].Index != 0 || *ranks.Meta.BilledUnits.SearchUnits != 1 || ranks.GetId() == nil {
		t.Fatal(ranks, err)
	}
	floats, err := client.Embed(t.Context(), &cohere.V2EmbedRequest{Model: "mock", InputType: cohere.EmbedInputTypeSearchQuery, Texts: []string{"one two", "three"}, OutputDimension: cohere.Int(256), EmbeddingTypes: []cohere.EmbeddingType{cohere.EmbeddingTypeFloat}})
	if err != nil || len(floats.Embeddings.Float) != 2 || *floats.Meta.BilledUnits.InputTokens != 3 {
		t.Fatal(floats, err)
	}
	if !slices.EqualFunc(floats.Embeddings.Float[0], embed("one two", 256), func(a float64, b float32) bool { return float32(a) == b }) {
		t.Error(floats.Embeddings.Float[0][:3])
	}
	packed, err := client.Embed(t.Context(), &cohere.V2EmbedRequest{Model: "mock?in=70", InputType: cohere.EmbedInputTypeSearchDocument, Texts: []string{"one two"}, EmbeddingTypes: []cohere.EmbeddingType{cohere.EmbeddingTypeBase64}})
	if err != nil || packed.Embeddings.Base64[0] != pack(embed("one two", dimensions)) || *packed.Meta.BilledUnits.InputTokens != 70 {
		t.Fatal(packed, err)
	}
	for _, extra := range []map[string]any{ranks.GetExtraProperties(), ranks.Meta.GetExtraProperties(), ranks.Results[0].GetExtraProperties(), floats.GetExtraProperties(), floats.Embeddings.GetExtraProperties(), packed.Meta.BilledUnits.GetExtraProperties()} {
		if len(extra) > 0 {
			t.Errorf("unknown %v", extra)
		}
	}
}

func TestCohereRefusesInItsOwnWords(t *testing.T) {
	address := start(t)
	ask := func(model, key string) error {
		_, err := cohereClient(address, key).Rerank(t.Context(), &cohere.V2RerankRequest{Model: model, Query: "q", Documents: []string{"d"}})
		return err
	}
	for model, want := range map[string]int{"mock?status=429": 429, "mock?status=500": 500, "rerank": 404, "mock?misspelt": 400} {
		err := ask(model, secretKey)
		var refusal *core.APIError
		if status := 0; !errors.As(err, &refusal) || refusal.StatusCode != want {
			t.Errorf("%s: %d %v", model, status, err)
		}
	}
	if err := ask("mock", "other"); err == nil || !strings.Contains(err.Error(), "401") {
		t.Error(err)
	}
	many := strings.Repeat(`"a",`, mostTexts) + `"a"`
	for body, want := range map[string]string{
		`embed {"model":"mock","input_type":"classification","texts":["a"]}`:                    "",
		`embed {"model":"mock","texts":["a"]}`:                                                  "input_type is required",
		`embed {"model":"mock","input_type":"query","texts":["a"]}`:                             "input_type",
		`embed {"model":"mock","input_type":"search_query","texts":[]}`:                         "texts",
		`embed {"model":"mock","input_type":"search_query","texts":[` + many + `]}`:             "97",
		`embed {"model":"mock","input_type":"search_query","texts":["a"],"input":"a"}`:          `unknown field \"input\"`,
		`embed {"model":"mock","input_type":"search_query","texts":["a"],"output_dimension":7}`: "output_dimension",
		`embed {"model":"mock","input_type":"search_query","texts":["a"],"truncate":"LEFT"}`:    "truncate",
		`rerank {"model":"mock","query":"q","documents":["a"]}`:                                 "",
		`rerank {"model":"mock","query":"q","documents":[{"text":"a"}]}`:                        "not what it should be",
		`rerank {"model":"mock","query":"q","documents":["a"],"return_documents":true}`:         `unknown field \"return_documents\"`,
		`rerank {"model":"mock","documents":["a"]}`:                                             "query is required",
		`rerank {"model":"mock","query":"q","documents":[]}`:                                    "documents",
		`rerank {"model":"mock","query":"q","documents":["a"],"top_n":0}`:                       "top_n",
	} {
		path, body, _ := strings.Cut(body, " ")
		status, text, err := sendAs(t, address, "/cohere/v2/"+path, body, map[string]string{"Authorization": "Bearer " + secretKey})
		if err != nil || !json.Valid([]byte(text)) || (status == http.StatusOK) != (want == "") || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s %v", body, status, text, err)
		}
	}
}

// The format of Jina and vLLM promises no order, and this provider keeps none.
func TestRanksInTheWidespreadShapeComeWorstFirst(t *testing.T) {
	address := start(t)
	for more, want := range map[string]string{
		``:                                    `[{"index":1,"document":{"text":"a cat"},"relevance_score":0},{"index":0,"document":{"text":"blue fish"},"relevance_score":0.5},{"index":2,"document":{"text":"red fish swim"},"relevance_score":1}]`,
		`,"top_n":2,"return_documents":false`: `[{"index":0,"relevance_score":0.5},{"index":2,"relevance_score":1}]`,
	} {
		_, text, err := send(t, t.Context(), address, "/v1/rerank", `{"model":"mock","query":"red fish","documents":["blue fish",{"text":"a cat"},"red fish swim"]`+more+`}`)
		if err != nil || !strings.Contains(text, fmt.Sprintf(`"results":%s`, want)) || !strings.Contains(text, `"usage":{"prompt_tokens":9,"total_tokens":9}`) {
			t.Error(text, err)
		}
	}
	if response, text, _ := send(t, t.Context(), address, "/v1/rerank", `{"model":"mock","query":"q"}`); response.StatusCode != http.StatusBadRequest {
		t.Error(text)
	}
}
