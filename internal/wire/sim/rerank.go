package sim

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/live"
)

// A ranking is what is read of a request to rerank.
type ranking struct {
	Model           string         `json:"model"`
	Query           string         `json:"query"`
	Documents       []passage      `json:"documents"`
	TopN            *int           `json:"top_n"`
	ReturnDocuments *bool          `json:"return_documents"`
	Sim             jsontext.Value `json:"sim"`
}

// A passage is one document: a text, or an object that has one.
type passage struct {
	Text string `json:"text"`
}

const mostDocuments = 2048

// ranked is the answer.
type ranked struct {
	ID      string          `json:"id"`
	Model   string          `json:"model"`
	Results []rankedResult  `json:"results"`
	Usage   *embeddingUsage `json:"usage,omitzero"`
}

type rankedResult struct {
	Index    int      `json:"index"`
	Score    float64  `json:"relevance_score"`
	Document *passage `json:"document,omitzero"`
}

func (q *ranking) overrides() jsontext.Value { return q.Sim }

func (q *ranking) matter() []string {
	parts := []string{q.Query}
	for _, d := range q.Documents {
		parts = append(parts, d.Text)
	}
	return parts
}

func (q *ranking) check(m *live.Model) error {
	switch {
	case q.Model == "":
		return missing("model")
	case q.Query == "":
		return missing("query")
	case len(q.Documents) == 0:
		return missing("documents")
	case len(q.Documents) > mostDocuments:
		return invalid("documents", "must not hold more than %d documents", mostDocuments)
	case q.TopN != nil && *q.TopN < 1:
		return invalid("top_n", "must be 1 or more")
	}
	for i, d := range q.Documents {
		if n := tokens(len(q.Query) + len(d.Text)); m.ContextWindow > 0 && n > m.ContextWindow {
			return refuse("context_length_exceeded", "documents", "This model's maximum context length is "+
				strconv.FormatInt(m.ContextWindow, 10)+" tokens. However, the query with document "+strconv.Itoa(i)+" has "+strconv.FormatInt(n, 10)+".")
		}
	}
	return nil
}

func (q *ranking) answer(m *live.Model, s settings, key uint64) (answer, error) {
	words := wordsOf(q.Query)
	results := make([]rankedResult, len(q.Documents))
	size := len(q.Query)
	for i, d := range q.Documents {
		size += len(d.Text)
		results[i] = rankedResult{Index: i, Score: relevance(words, wordsOf(d.Text))}
		if q.ReturnDocuments != nil && *q.ReturnDocuments {
			results[i].Document = &d
		}
	}
	slices.SortStableFunc(results, func(a, b rankedResult) int { return cmp.Compare(b.Score, a.Score) })
	if q.TopN != nil {
		results = results[:min(*q.TopN, len(results))]
	}
	told := ranked{ID: "rerank-sim-" + strconv.FormatUint(key, 16), Model: m.Upstream, Results: results}
	if u := s.usage.of(max(1, tokens(size)), nil); u != nil {
		told.Usage = &embeddingUsage{u.Prompt, u.Prompt}
	}
	return whole(s.fail, once(frame{data: encode(told)})), nil
}

// relevance is 0 for a document without any of the query's words, and 1 for one with all of them and no other. Most of
// it is the share of the query's words that the document has; a little is how much else it says. No seed moves it.
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
	for _, word := range strings.Fields(spoken(text)) {
		words[word] = true
	}
	return words
}

var errPassage = errors.New("must be a text, or an object with a text")

// UnmarshalJSONFrom reads a text, or an object that has one.
func (p *passage) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
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
		return errPassage
	}
	return nil
}
