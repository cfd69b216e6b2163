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

// rerankable is what a request to rerank may say. Documents come back from the gateway itself, and max_tokens_per_doc is
// Cohere's own.
var rerankable = map[string]bool{
	"model": true, "query": true, "documents": true, "top_n": true, "return_documents": true, "max_tokens_per_doc": true,
}

// rerankRequest is the body of POST /v2/rerank.
type rerankRequest struct {
	Model           string   `json:"model"`
	Query           string   `json:"query"`
	Documents       []string `json:"documents"`
	TopN            *int64   `json:"top_n,omitempty"`
	MaxTokensPerDoc *int64   `json:"max_tokens_per_doc,omitempty"`
}

func askRerank(r *upstream.Request, body []byte) (*exchange, error) {
	if err := chat.Only(body, rerankable, wire); err != nil {
		return nil, err
	}
	asked, err := rerank.Decode(body)
	if err != nil {
		return nil, err
	}
	var own struct {
		MaxTokensPerDoc *int64 `json:"max_tokens_per_doc"`
	}
	if err := json.Unmarshal(body, &own); err != nil {
		return nil, chat.Refuse(err)
	}
	if own.MaxTokensPerDoc != nil && *own.MaxTokensPerDoc < 1 {
		return nil, fault.Invalid("max_tokens_per_doc", "must be a whole number of at least 1")
	}
	said := rerankRequest{Model: r.Model.Upstream, Query: asked.Query, TopN: asked.TopN, MaxTokensPerDoc: own.MaxTokensPerDoc}
	for i, d := range asked.Documents {
		if len(d.Others) > 0 {
			return nil, chat.Unsupported(fmt.Sprintf("documents[%d].%s", i, d.Others[0]), "cannot be expressed in the "+wire+", whose documents are texts")
		}
		said.Documents = append(said.Documents, d.Text)
	}
	return exchanged("/v2/rerank", &said, func(answer []byte) ([]byte, error) { return reranked(r.Model.Upstream, answer) })
}

// reranked is an answer in the shape that other providers have. Whether its results can be is for [rerank.Render] to say.
func reranked(model string, answer []byte) ([]byte, error) {
	var theirs struct {
		ID      string         `json:"id"`
		Results jsontext.Value `json:"results"`
		Meta    jsontext.Value `json:"meta"`
	}
	if err := json.Unmarshal(answer, &theirs, lenient); err != nil {
		return nil, err
	}
	if theirs.Results.Kind() != '[' {
		return nil, errors.New("the answer holds no results")
	}
	return json.Marshal(&struct {
		ID      string         `json:"id,omitempty"`
		Model   string         `json:"model"`
		Results jsontext.Value `json:"results"`
		Usage   *rerank.Counts `json:"usage,omitempty"`
	}{theirs.ID, model, theirs.Results, counts(theirs.Meta).Whole()}, lenient)
}
