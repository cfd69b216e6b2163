package cohere

import (
	"cmp"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/wire/embed"
	"sovereign/internal/wire/upstream"
)

// embedAPI is what POST /v2/embed accepts. Cohere embeds at most 96 texts in one call. A request with more is refused
// and not split: one of several calls could fail after others were billed.
var embedAPI = embed.API{Name: apiName, Extra: []string{"input_type", "truncate"}, MaxTexts: 96}

// defaultInputType is sent when the caller names none: Cohere requires one, and OpenAI's API has no such parameter.
const defaultInputType = "search_document"

// embedRequest is the body of POST /v2/embed.
type embedRequest struct {
	Model           string   `json:"model"`
	Texts           []string `json:"texts"`
	InputType       string   `json:"input_type"`
	EmbeddingTypes  []string `json:"embedding_types"`
	OutputDimension *int64   `json:"output_dimension,omitempty"`
	Truncate        string   `json:"truncate,omitempty"`
}

func newEmbedExchange(r *upstream.Request, body []byte) (*exchange, error) {
	request, err := embedAPI.Decode(body)
	if err != nil {
		return nil, err
	}
	translated := embedRequest{
		Model: r.Model.Upstream, Texts: request.Texts, InputType: cmp.Or(request.Extra["input_type"], defaultInputType),
		EmbeddingTypes: []string{"float"}, OutputDimension: request.Dimensions, Truncate: request.Extra["truncate"],
	}
	return newExchange("/v2/embed", &translated, func(answer []byte) ([]byte, error) {
		var decoded struct {
			Embeddings struct {
				Float [][]float64 `json:"float"`
			} `json:"embeddings"`
			Meta jsontext.Value `json:"meta"`
		}
		if err := json.Unmarshal(answer, &decoded, lenient); err != nil {
			return nil, err
		}
		return request.Answer(
			r.Model.Upstream, decoded.Embeddings.Float, (*int64)(usageCounts(decoded.Meta).PromptTokens),
		)
	})
}
