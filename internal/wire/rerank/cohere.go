package rerank

import (
	"cmp"

	"github.com/go-json-experiment/json"

	"sovereign/internal/text/token"
)

// DocumentsPerSearch is how many documents one search ranks, as Cohere counts searches.
const DocumentsPerSearch = 100

// Searches returns how many searches it takes to rank so many documents, at least.
func Searches(documents int) int64 {
	return (int64(documents) + DocumentsPerSearch - 1) / DocumentsPerSearch
}

// cohereAnswer is an answer of Cohere's API, version 2.
type cohereAnswer struct {
	ID      string   `json:"id"`
	Results []Result `json:"results"`
	Meta    meta     `json:"meta"`
}

type meta struct {
	APIVersion  apiVersion  `json:"api_version"`
	BilledUnits billedUnits `json:"billed_units"`
}

type apiVersion struct {
	Version string `json:"version"`
}

// billedUnits are what the provider reports. The searches are counted where it does not report them.
type billedUnits struct {
	SearchUnits token.Count  `json:"search_units"`
	InputTokens *token.Count `json:"input_tokens,omitempty"`
}

// RenderV2 is Render in the form of Cohere's API, version 2.
func RenderV2(request *Request, answer []byte, fallbackID string) ([]byte, *Counts, error) {
	read, err := readAnswer(request, answer, fallbackID)
	if err != nil {
		return nil, nil, err
	}
	searches := token.Count(Searches(len(request.Documents)))
	reported := cmp.Or(read.Usage, &Counts{})
	text, err := json.Marshal(&cohereAnswer{ID: read.ID, Results: read.Results, Meta: meta{
		APIVersion: apiVersion{Version: "2"},
		BilledUnits: billedUnits{
			SearchUnits: *cmp.Or(reported.SearchUnits, &searches), InputTokens: reported.PromptTokens,
		},
	}}, lenient)
	return text, read.Usage, err
}
