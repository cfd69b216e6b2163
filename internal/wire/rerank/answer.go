package rerank

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/text/token"
)

// Answer is the answer that a caller gets, with the best result first.
type Answer struct {
	ID      string   `json:"id"`
	Model   string   `json:"model"`
	Results []Result `json:"results"`
	Usage   *Counts  `json:"usage,omitempty"`
}

// Result is the relevance of one of the caller's documents, which Index names.
type Result struct {
	Index          int     `json:"index"`
	RelevanceScore float64 `json:"relevance_score"`
	Document       *Text   `json:"document,omitempty"`
}

// Text is a document in an answer.
type Text struct {
	Text string `json:"text"`
}

// Counts is the usage that a provider reports. nil means not reported, which is not zero.
type Counts struct {
	PromptTokens *token.Count `json:"prompt_tokens,omitempty"`
	TotalTokens  *token.Count `json:"total_tokens,omitempty"`
	SearchUnits  *token.Count `json:"search_units,omitempty"`
}

// Normalized fills a missing token count from the other one, because a reranker has no output tokens. It returns nil
// when nothing was reported.
func (c Counts) Normalized() *Counts {
	c.PromptTokens, c.TotalTokens = cmp.Or(c.PromptTokens, c.TotalTokens), cmp.Or(c.TotalTokens, c.PromptTokens)
	if c == (Counts{}) {
		return nil
	}
	return &c
}

// readUsage decodes a usage object. It returns nil when the object is not a valid usage.
func readUsage(usage jsontext.Value) *Counts {
	var c Counts
	if usage == nil || json.Unmarshal(usage, &c, lenient) != nil {
		return nil
	}
	return c.Normalized()
}

// lenient accepts duplicate names and invalid UTF-8 in a provider's answer.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// providerResult is a result as providers send it. Their copy of the document is ignored: the caller's own is returned.
type providerResult struct {
	Index *int     `json:"index"`
	Score *float64 `json:"relevance_score"`
}

// Render converts a provider's answer in the common shape: results or data, and optionally an id, a model and a usage.
// It fails when there is no result, when a result has no score, and when its index is out of range or repeated.
func Render(request *Request, answer []byte, fallbackID string) ([]byte, *Counts, error) {
	read, err := readAnswer(request, answer, fallbackID)
	if err != nil {
		return nil, nil, err
	}
	text, err := json.Marshal(read, lenient)
	return text, read.Usage, err
}

// readAnswer reads a provider's answer.
func readAnswer(request *Request, answer []byte, fallbackID string) (*Answer, error) {
	var decoded struct {
		ID      string           `json:"id"`
		Model   string           `json:"model"`
		Results []providerResult `json:"results"`
		Data    []providerResult `json:"data"`
		Usage   jsontext.Value   `json:"usage"`
	}
	if err := json.Unmarshal(answer, &decoded, lenient); err != nil {
		return nil, fmt.Errorf("the answer is not that of a reranker: %w", err)
	}
	if decoded.Results == nil {
		decoded.Results = decoded.Data
	}
	results, err := rank(decoded.Results, len(request.Documents))
	if err != nil {
		return nil, err
	}
	results = results[:request.limit(len(results))]
	if request.ReturnDocuments {
		for i, r := range results {
			results[i].Document = &Text{request.Documents[r.Index].Text}
		}
	}
	return &Answer{
		ID: cmp.Or(decoded.ID, fallbackID), Model: cmp.Or(decoded.Model, request.Model),
		Results: results, Usage: readUsage(decoded.Usage),
	}, nil
}

// rank checks the results and sorts them by descending score. Equal scores keep the order of the documents.
func rank(results []providerResult, documents int) ([]Result, error) {
	if len(results) == 0 {
		return nil, errors.New("the answer holds no results")
	}
	seen := make([]bool, documents)
	ranked := make([]Result, 0, min(len(results), documents))
	for i, r := range results {
		switch {
		case r.Index == nil || *r.Index < 0 || *r.Index >= documents:
			return nil, fmt.Errorf("result %d is of no document", i)
		case seen[*r.Index]:
			return nil, fmt.Errorf("document %d has two results", *r.Index)
		case r.Score == nil:
			return nil, fmt.Errorf("result %d has no score", i)
		}
		seen[*r.Index] = true
		ranked = append(ranked, Result{Index: *r.Index, RelevanceScore: *r.Score})
	}
	slices.SortFunc(ranked, func(a, b Result) int {
		return cmp.Or(cmp.Compare(b.RelevanceScore, a.RelevanceScore), cmp.Compare(a.Index, b.Index))
	})
	return ranked, nil
}
