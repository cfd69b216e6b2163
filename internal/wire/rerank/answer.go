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

// An Answer is what a caller gets, best first.
type Answer struct {
	ID      string   `json:"id"`
	Model   string   `json:"model"`
	Results []Result `json:"results"`
	Usage   *Counts  `json:"usage,omitempty"`
}

// A Result is one of the caller's documents, by its index, and how well it fits the query.
type Result struct {
	Index          int     `json:"index"`
	RelevanceScore float64 `json:"relevance_score"`
	Document       *Text   `json:"document,omitempty"`
}

// A Text is a document as it is given back.
type Text struct {
	Text string `json:"text"`
}

// Counts are what a provider says it used: nil is not told, which is not 0. Where one number of tokens is told it is
// both, as a reranker writes none.
type Counts struct {
	PromptTokens *token.Count `json:"prompt_tokens,omitempty"`
	TotalTokens  *token.Count `json:"total_tokens,omitempty"`
	SearchUnits  *token.Count `json:"search_units,omitempty"`
}

// Whole is the counts with one number of tokens standing for both, or nil when nothing is told.
func (c Counts) Whole() *Counts {
	c.PromptTokens, c.TotalTokens = cmp.Or(c.PromptTokens, c.TotalTokens), cmp.Or(c.TotalTokens, c.PromptTokens)
	if c == (Counts{}) {
		return nil
	}
	return &c
}

// read takes a usage object. One that holds something else than counts tells nothing.
func read(usage jsontext.Value) *Counts {
	var c Counts
	if usage == nil || json.Unmarshal(usage, &c, lenient) != nil {
		return nil
	}
	return c.Whole()
}

// lenient: a provider's answer is read as far as it is JSON, and written as far as it is text.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// given is a result as providers write it. What they repeat of the document is not read: the caller's own is better.
type given struct {
	Index *int     `json:"index"`
	Score *float64 `json:"relevance_score"`
}

// Render makes our answer of a provider's, in the shape that is widespread: results, which some call data, and perhaps
// an id, a model and a usage. It is an error when a result is of no document, of one that has a result already, or has
// no score, and when there is none at all.
func Render(request *Request, answer []byte, fallbackID string) ([]byte, *Counts, error) {
	var theirs struct {
		ID      string         `json:"id"`
		Model   string         `json:"model"`
		Results []given        `json:"results"`
		Data    []given        `json:"data"`
		Usage   jsontext.Value `json:"usage"`
	}
	if err := json.Unmarshal(answer, &theirs, lenient); err != nil {
		return nil, nil, fmt.Errorf("the answer is not that of a reranker: %w", err)
	}
	if theirs.Results == nil {
		theirs.Results = theirs.Data
	}
	results, err := rank(theirs.Results, len(request.Documents))
	if err != nil {
		return nil, nil, err
	}
	results = results[:request.cut(len(results))]
	if request.ReturnDocuments {
		for i, r := range results {
			results[i].Document = &Text{request.Documents[r.Index].Text}
		}
	}
	ours := Answer{
		ID: cmp.Or(theirs.ID, fallbackID), Model: cmp.Or(theirs.Model, request.Model),
		Results: results, Usage: read(theirs.Usage),
	}
	text, err := json.Marshal(&ours, lenient)
	return text, ours.Usage, err
}

// rank checks results of that many documents and puts the best first. Those of the same score keep the caller's order.
func rank(results []given, documents int) ([]Result, error) {
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
