package cohere

import (
	"cmp"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/wire/embed"
	"sovereign/internal/wire/upstream"
)

// embedding is what a request for embeddings may say here. Cohere embeds at most 96 texts in a call: more would be several
// calls, of which one may fail when others are billed; who sends more splits them, and pays for what came back.
var embedding = embed.Wire{Name: wire, Own: []string{"input_type", "truncate"}, Most: 96}

// stored is the input type of texts that are to be found. Cohere wants one named, and OpenAI's callers name none.
const stored = "search_document"

// embedRequest is the body of POST /v2/embed.
type embedRequest struct {
	Model           string   `json:"model"`
	Texts           []string `json:"texts"`
	InputType       string   `json:"input_type"`
	EmbeddingTypes  []string `json:"embedding_types"`
	OutputDimension *int64   `json:"output_dimension,omitempty"`
	Truncate        string   `json:"truncate,omitempty"`
}

func askEmbed(r *upstream.Request, body []byte) (*exchange, error) {
	asked, err := embedding.Decode(body)
	if err != nil {
		return nil, err
	}
	said := embedRequest{
		Model: r.Model.Upstream, Texts: asked.Texts, InputType: cmp.Or(asked.Own["input_type"], stored),
		EmbeddingTypes: []string{"float"}, OutputDimension: asked.Dimensions, Truncate: asked.Own["truncate"],
	}
	return exchanged("/v2/embed", &said, func(answer []byte) ([]byte, error) {
		var theirs struct {
			Embeddings struct {
				Float [][]float64 `json:"float"`
			} `json:"embeddings"`
			Meta jsontext.Value `json:"meta"`
		}
		if err := json.Unmarshal(answer, &theirs, lenient); err != nil {
			return nil, err
		}
		return asked.Answer(r.Model.Upstream, theirs.Embeddings.Float, (*int64)(counts(theirs.Meta).PromptTokens))
	})
}
