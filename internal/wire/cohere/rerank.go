package cohere

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/chat"
	"sovereign/internal/wire/rerank"
	"sovereign/internal/wire/upstream"
)

// rerankParameters are the parameters that can be expressed. return_documents is handled by the gateway;
// max_tokens_per_doc is Cohere's own.
var rerankParameters = map[string]bool{
	"model": true, "query": true, "documents": true, "top_n": true, "return_documents": true,
	"max_tokens_per_doc": true,
}

// rerankRequest is the body of POST /v2/rerank.
type rerankRequest struct {
	Model           string   `json:"model"`
	Query           string   `json:"query"`
	Documents       []string `json:"documents"`
	TopN            *int64   `json:"top_n,omitempty"`
	MaxTokensPerDoc *int64   `json:"max_tokens_per_doc,omitempty"`
}

func newRerankExchange(r *upstream.Request, body []byte) (*exchange, error) {
	if err := chat.CheckParameters(body, rerankParameters, apiName); err != nil {
		return nil, err
	}
	request, err := rerank.Decode(body)
	if err != nil {
		return nil, err
	}
	var extra struct {
		MaxTokensPerDoc *int64 `json:"max_tokens_per_doc"`
	}
	if err := json.Unmarshal(body, &extra); err != nil {
		return nil, chat.DecodeFault(err)
	}
	if extra.MaxTokensPerDoc != nil && *extra.MaxTokensPerDoc < 1 {
		return nil, fault.Invalid("max_tokens_per_doc", "must be a whole number of at least 1")
	}
	translated := rerankRequest{
		Model: r.Model.Upstream, Query: request.Query, TopN: request.TopN,
		MaxTokensPerDoc: extra.MaxTokensPerDoc,
	}
	for i, d := range request.Documents {
		if len(d.Others) > 0 {
			return nil, chat.Unsupported(fmt.Sprintf("documents[%d].%s", i, d.Others[0]),
				"cannot be expressed in the "+apiName+", whose documents are texts")
		}
		translated.Documents = append(translated.Documents, d.Text)
	}
	return newExchange("/v2/rerank", &translated, func(answer []byte) ([]byte, error) {
		return convertRerank(r.Model.Upstream, answer)
	})
}

// convertRerank converts an answer into the shape that [rerank.Render] reads, which also checks the results.
func convertRerank(model string, answer []byte) ([]byte, error) {
	var decoded struct {
		ID      string         `json:"id"`
		Results jsontext.Value `json:"results"`
		Meta    jsontext.Value `json:"meta"`
	}
	if err := json.Unmarshal(answer, &decoded, lenient); err != nil {
		return nil, err
	}
	if decoded.Results.Kind() != '[' {
		return nil, errors.New("the answer holds no results")
	}
	return json.Marshal(&struct {
		ID      string         `json:"id,omitempty"`
		Model   string         `json:"model"`
		Results jsontext.Value `json:"results"`
		Usage   *rerank.Counts `json:"usage,omitempty"`
	}{decoded.ID, model, decoded.Results, usageCounts(decoded.Meta).Normalized()}, lenient)
}
