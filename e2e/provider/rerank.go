package main

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
)

// A document is a text, written as a string or as an object with one.
type document string

// UnmarshalJSON reads either.
func (d *document) UnmarshalJSON(text []byte) error {
	if json.Unmarshal(text, (*string)(d)) == nil {
		return nil
	}
	var object struct {
		Text *string `json:"text"`
	}
	if err := json.Unmarshal(text, &object); err != nil {
		return err
	}
	if object.Text == nil {
		return bad("documents", "a document must be a text, or have one")
	}
	*d = document(*object.Text)
	return nil
}

type ranked struct {
	Index    int     `json:"index"`
	Document *shown  `json:"document,omitempty"`
	Score    float64 `json:"relevance_score"`
}

type shown struct {
	Text document `json:"text"`
}

func readRerank(a *answer) error {
	if err := readAsk(a); err != nil {
		return err
	}
	if a.ask.Query == "" || len(a.ask.Documents) == 0 {
		return bad("documents", "a query and documents are needed")
	}
	return nil
}

// rerank answers as Jina and vLLM do, but with the worst rank first: that format promises no order.
func (p *provider) rerank(a *answer) {
	results := a.ask.rank()
	slices.Reverse(results)
	if a.ask.ReturnDocuments == nil || *a.ask.ReturnDocuments {
		for i := range results {
			results[i].Document = &shown{a.ask.Documents[results[i].Index]}
		}
	}
	out := map[string]any{"id": p.id("rerank"), "model": a.plan.name, "results": results}
	if u := a.plan.report(a.ask.rankedWords(), 0, 0); u != nil {
		out["usage"] = map[string]int{"prompt_tokens": u.Prompt, "total_tokens": u.Prompt}
	}
	a.whole(out)
}

// rank orders the documents by how many of the query's words they have, and returns the best top_n.
func (a *ask) rank() []ranked {
	wanted := map[string]bool{}
	for _, word := range strings.Fields(a.Query) {
		wanted[strings.ToLower(word)] = true
	}
	out := make([]ranked, len(a.Documents))
	for i, text := range a.Documents {
		found := map[string]bool{}
		for _, word := range strings.Fields(strings.ToLower(string(text))) {
			if wanted[word] {
				found[word] = true
			}
		}
		out[i] = ranked{Index: i, Score: math.Round(1e6*float64(len(found))/float64(max(1, len(wanted)))) / 1e6}
	}
	slices.SortStableFunc(out, func(a, b ranked) int { return cmp.Compare(b.Score, a.Score) })
	if a.TopN != nil {
		out = out[:min(*a.TopN, len(out))]
	}
	return out
}

// rankedWords counts the query once, and every document.
func (a *ask) rankedWords() int {
	n := words(a.Query)
	for _, text := range a.Documents {
		n += words(string(text))
	}
	return n
}
