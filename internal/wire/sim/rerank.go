package sim

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/live"
)

// rerankRequest is the body of a rerank request.
type rerankRequest struct {
	Model           string         `json:"model"`
	Query           string         `json:"query"`
	Documents       []document     `json:"documents"`
	TopN            *int           `json:"top_n"`
	ReturnDocuments *bool          `json:"return_documents"`
	Sim             jsontext.Value `json:"sim"`
}

// document is a string or an object with a text member.
type document struct {
	Text string `json:"text"`
}

const maxDocuments = 2048

// rerankAnswer is the answer to a rerank request.
type rerankAnswer struct {
	ID      string          `json:"id"`
	Model   string          `json:"model"`
	Results []rerankResult  `json:"results"`
	Usage   *embeddingUsage `json:"usage,omitzero"`
}

type rerankResult struct {
	Index    int       `json:"index"`
	Score    float64   `json:"relevance_score"`
	Document *document `json:"document,omitzero"`
}

func (q *rerankRequest) simField() jsontext.Value { return q.Sim }

func (q *rerankRequest) seedTexts() []string {
	parts := []string{q.Query}
	for _, d := range q.Documents {
		parts = append(parts, d.Text)
	}
	return parts
}

func (q *rerankRequest) check(m *live.Model) error {
	switch {
	case q.Model == "":
		return missing("model")
	case q.Query == "":
		return missing("query")
	case len(q.Documents) == 0:
		return missing("documents")
	case len(q.Documents) > maxDocuments:
		return invalid("documents", "must not hold more than %d documents", maxDocuments)
	case q.TopN != nil && *q.TopN < 1:
		return invalid("top_n", "must be 1 or more")
	}
	for i, d := range q.Documents {
		if n := tokens(len(q.Query) + len(d.Text)); m.ContextWindow > 0 && n > m.ContextWindow {
			return contextExceeded("documents", m, fmt.Sprintf("the query with document %d has %d", i, n))
		}
	}
	return nil
}

func (q *rerankRequest) answer(m *live.Model, s settings, key uint64) (answer, error) {
	words := wordsOf(q.Query)
	results := make([]rerankResult, len(q.Documents))
	size := len(q.Query)
	for i, d := range q.Documents {
		size += len(d.Text)
		results[i] = rerankResult{Index: i, Score: relevance(words, wordsOf(d.Text))}
		if q.ReturnDocuments != nil && *q.ReturnDocuments {
			results[i].Document = &d
		}
	}
	slices.SortStableFunc(results, func(a, b rerankResult) int { return cmp.Compare(b.Score, a.Score) })
	if q.TopN != nil {
		results = results[:min(*q.TopN, len(results))]
	}
	answered := rerankAnswer{ID: "rerank-sim-" + strconv.FormatUint(key, 16), Model: m.Upstream, Results: results}
	if u := s.usage.apply(max(1, tokens(size)), nil); u != nil {
		answered.Usage = &embeddingUsage{u.Prompt, u.Prompt}
	}
	return unstreamed(s.fail, framesOf(frame{data: encode(answered)})), nil
}

// relevance is 0 for a document with none of the query's words, and 1 for one with all of them and no others. The share
// of the query's words that occur has a weight of 0.9, the share of matching words in the document one of 0.1. It does
// not depend on the seed.
func relevance(query, document map[string]bool) float64 {
	const covers, dense, precision = 0.9, 0.1, 1e4
	shared := 0
	for word := range query {
		if document[word] {
			shared++
		}
	}
	if shared == 0 {
		return 0
	}
	score := covers*float64(shared)/float64(len(query)) + dense*float64(shared)/float64(len(document))
	return math.Round(score*precision) / precision
}

func wordsOf(text string) map[string]bool {
	words := map[string]bool{}
	for _, word := range strings.Fields(normalizeWords(text)) {
		words[word] = true
	}
	return words
}

var errDocument = errors.New("must be a text, or an object with a text")

// UnmarshalJSONFrom reads a string or an object.
func (p *document) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	var object struct {
		Text *string `json:"text"`
	}
	switch {
	case json.Unmarshal(raw, &p.Text) == nil && raw.Kind() == '"':
	case json.Unmarshal(raw, &object) == nil && object.Text != nil:
		p.Text = *object.Text
	default:
		return errDocument
	}
	return nil
}
