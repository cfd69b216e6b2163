package rerank_test

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/rerank"
)

func TestARequestIsDecoded(t *testing.T) {
	two := int64(2)
	a, b := rerank.Document{Text: "a"}, rerank.Document{Text: "b"}
	for body, want := range map[string]rerank.Request{
		`{"model":"m","query":"q","documents":["a"]}`:                                                     {Model: "m", Query: "q", Documents: []rerank.Document{a}},
		`{"model":"m","query":"q","documents":["a",{"text":"b"}],"top_n":2}`:                              {Model: "m", Query: "q", Documents: []rerank.Document{a, b}, TopN: &two},
		`{"model":"m","query":"q","documents":["a"],"top_n":null,"return_documents":null}`:                {Model: "m", Query: "q", Documents: []rerank.Document{a}},
		`{"model":"m","query":"q","documents":["a"],"return_documents":true,"truncation":false}`:          {Model: "m", Query: "q", Documents: []rerank.Document{a}, ReturnDocuments: true},
		`{"model":"m","query":"q","documents":[{"text":"","title":"t","id":1,"page":null}],"rank":["x"]}`: {Model: "m", Query: "q", Documents: []rerank.Document{{Others: []string{"id", "title"}}}},
	} {
		got, err := rerank.Decode([]byte(body))
		if err != nil {
			t.Errorf("%s: %v", body, err)
		} else if diff := gocmp.Diff(want, *got); diff != "" {
			t.Errorf("%s: %s", body, diff)
		}
	}
}

func TestAnInvalidMemberIsRefusedByName(t *testing.T) {
	for body, want := range map[string]string{
		`{"documents":["a"]}`:                                       "query",
		`{"query":"","documents":["a"]}`:                            "query",
		`{"query":null,"documents":["a"]}`:                          "query",
		`{"query":["q"],"documents":["a"]}`:                         "query",
		`{"query":"q"}`:                                             "documents",
		`{"query":"q","documents":[]}`:                              "documents",
		`{"query":"q","documents":"a"}`:                             "documents",
		`{"query":"q","documents":["a",5]}`:                         "documents[1]",
		`{"query":"q","documents":[null]}`:                          "documents[0]",
		`{"query":"q","documents":[{"title":"a"}]}`:                 "documents[0]",
		`{"query":"q","documents":[{"text":5}]}`:                    "documents[0]",
		`{"query":"q","documents":["a"],"top_n":0}`:                 "top_n",
		`{"query":"q","documents":["a"],"top_n":1.5}`:               "top_n",
		`{"query":"q","documents":["a"],"top_n":"1"}`:               "top_n",
		`{"query":"q","documents":["a"],"return_documents":"true"}`: "return_documents",
		`{"query":"q","documents":["a"],"return_documents":1}`:      "return_documents",
		`{"model":5,"query":"q","documents":["a"]}`:                 "model",
		`{"query":"q","query":"r","documents":["a"]}`:               "",
		`{"query":"q","documents":["a"]`:                            "",
		``:                                                          "",
	} {
		_, err := rerank.Decode([]byte(body))
		var f *fault.Fault
		if !errors.As(err, &f) || f.Field != want || f.Status != http.StatusBadRequest {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}

// newRequest returns a request with n documents: d0, d1 and so on.
func newRequest(n int, members string) *rerank.Request {
	documents := make([]string, n)
	for i := range documents {
		documents[i] = fmt.Sprintf(`"d%d"`, i)
	}
	r, err := rerank.Decode([]byte(`{"model":"m","query":"q","documents":[` + strings.Join(documents, ",") + `]` + members + `}`))
	if err != nil {
		panic(err)
	}
	return r
}

func TestAProvidersAnswerIsConverted(t *testing.T) {
	for name, c := range map[string]struct{ members, theirs, ours string }{
		"the plainest": {
			``, `{"results":[{"index":1,"relevance_score":0.5},{"index":0,"relevance_score":0.25}]}`,
			`{"id":"ours","model":"m","results":[{"index":1,"relevance_score":0.5},{"index":0,"relevance_score":0.25}]}`,
		},
		"with all there is": {
			``, `{"id":"theirs","model":"up","results":[{"index":1,"relevance_score":0.5,"document":{"text":"d1"}}],"usage":{"prompt_tokens":7,"total_tokens":9,"search_units":1}}`,
			`{"id":"theirs","model":"up","results":[{"index":1,"relevance_score":0.5}],"usage":{"prompt_tokens":7,"total_tokens":9,"search_units":1}}`,
		},
		"data for results": {
			``, `{"object":"list","data":[{"relevance_score":0.4,"index":2,"document":"d2"}],"model":"up","usage":{"total_tokens":26}}`,
			`{"id":"ours","model":"up","results":[{"index":2,"relevance_score":0.4}],"usage":{"prompt_tokens":26,"total_tokens":26}}`,
		},
		"out of order, with ties": {
			``, `{"results":[{"index":2,"relevance_score":-3},{"index":1,"relevance_score":8.5},{"index":0,"relevance_score":8.5}]}`,
			`{"id":"ours","model":"m","results":[{"index":0,"relevance_score":8.5},{"index":1,"relevance_score":8.5},{"index":2,"relevance_score":-3}]}`,
		},
		"more than was asked for": {
			`,"top_n":1`, `{"results":[{"index":2,"relevance_score":0.1},{"index":1,"relevance_score":0.2}]}`,
			`{"id":"ours","model":"m","results":[{"index":1,"relevance_score":0.2}]}`,
		},
		"fewer than was asked for": {
			`,"top_n":9223372036854775807`, `{"results":[{"index":2,"relevance_score":0.1}]}`,
			`{"id":"ours","model":"m","results":[{"index":2,"relevance_score":0.1}]}`,
		},
		"the caller's own documents": {
			`,"return_documents":true`, `{"results":[{"index":1,"relevance_score":1,"document":{"text":"d1, cut"}},{"index":0,"relevance_score":0}]}`,
			`{"id":"ours","model":"m","results":[{"index":1,"relevance_score":1,"document":{"text":"d1"}},{"index":0,"relevance_score":0,"document":{"text":"d0"}}]}`,
		},
		"a usage of nothing": {
			``, `{"id":null,"results":[{"index":0,"relevance_score":1}],"usage":{"prompt_tokens":0}}`,
			`{"id":"ours","model":"m","results":[{"index":0,"relevance_score":1}],"usage":{"prompt_tokens":0,"total_tokens":0}}`,
		},
		"searches alone": {
			``, `{"results":[{"index":0,"relevance_score":1}],"usage":{"search_units":1.0}}`,
			`{"id":"ours","model":"m","results":[{"index":0,"relevance_score":1}],"usage":{"search_units":1}}`,
		},
		"a usage that cannot be": {
			``, `{"results":[{"index":0,"relevance_score":1}],"usage":{"total_tokens":-1}}`,
			`{"id":"ours","model":"m","results":[{"index":0,"relevance_score":1}]}`,
		},
		"a usage that says nothing": {
			``, `{"results":[{"index":0,"relevance_score":1}],"usage":null}`,
			`{"id":"ours","model":"m","results":[{"index":0,"relevance_score":1}]}`,
		},
		"text that is none": {
			``, "{\"id\":\"\xff\",\"results\":[{\"index\":0,\"relevance_score\":1,\"document\":\"\xff\"}],\"x\":1,\"x\":2}",
			"{\"id\":\"\uFFFD\",\"model\":\"m\",\"results\":[{\"index\":0,\"relevance_score\":1}]}",
		},
	} {
		ours, counts, err := rerank.Render(newRequest(3, c.members), []byte(c.theirs), "ours")
		if err != nil || string(ours) != c.ours {
			t.Errorf("%s: %v\n got %s\nwant %s", name, err, ours, c.ours)
		}
		if (counts != nil) != strings.Contains(c.ours, "usage") {
			t.Errorf("%s: %+v", name, counts)
		}
	}
}

func TestMissingCountsAreNotZero(t *testing.T) {
	_, counts, err := rerank.Render(newRequest(1, ""), []byte(`{"results":[{"index":0,"relevance_score":1}],"usage":{"total_tokens":0}}`), "x")
	if err != nil || counts == nil || counts.PromptTokens == nil || counts.SearchUnits != nil {
		t.Fatalf("%+v, %v", counts, err)
	}
	if counts.PromptTokens.Or0() != 0 || counts.SearchUnits.Or0() != 0 {
		t.Errorf("%+v", counts)
	}
}

func TestAnInvalidAnswerIsAnError(t *testing.T) {
	for _, providerAnswer := range []string{
		``, `null`, `[]`, `{}`, `<html>`,
		`{"results":[]}`,
		`{"results":null}`,
		`{"results":{"index":0}}`,
		`{"results":[null]}`,
		`{"results":[{"relevance_score":1}]}`,
		`{"results":[{"index":0}]}`,
		`{"results":[{"index":0,"relevance_score":null}]}`,
		`{"results":[{"index":0,"relevance_score":"0.5"}]}`,
		`{"results":[{"index":0,"relevance_score":NaN}]}`,
		`{"results":[{"index":0,"relevance_score":1e999}]}`,
		`{"results":[{"index":3,"relevance_score":1}]}`,
		`{"results":[{"index":-1,"relevance_score":1}]}`,
		`{"results":[{"index":"0","relevance_score":1}]}`,
		`{"results":[{"index":0.5,"relevance_score":1}]}`,
		`{"results":[{"index":99999999999999999999,"relevance_score":1}]}`,
		`{"results":[{"index":0,"relevance_score":1},{"index":0,"relevance_score":1}]}`,
		`{"results":[{"index":0,"relevance_score":1}],"id":5}`,
	} {
		if ours, _, err := rerank.Render(newRequest(3, ""), []byte(providerAnswer), "x"); err == nil {
			t.Errorf("%s became %s", providerAnswer, ours)
		}
	}
}

// providerAnswer returns a provider's answer with the given results.
func providerAnswer(t *rapid.T, results []rerank.Result) []byte {
	text, err := json.Marshal(map[string]any{rapid.SampledFrom([]string{"results", "data"}).Draw(t, "name"): results})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestResultsAreSortedByScoreAndComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scores := rapid.SliceOfN(rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, 0.5, 1})), 1, 30).Draw(t, "scores")
		var want []rerank.Result
		for i, s := range scores {
			want = append(want, rerank.Result{Index: i, RelevanceScore: s})
		}
		came := rapid.Permutation(want).Draw(t, "order")
		slices.SortStableFunc(want, func(a, b rerank.Result) int { return cmp.Compare(b.RelevanceScore, a.RelevanceScore) })
		request := newRequest(len(scores), "")
		if rapid.Bool().Draw(t, "cut") {
			n := rapid.Int64Range(1, 40).Draw(t, "top_n")
			request.TopN = &n
			want = want[:min(int(n), len(want))]
		}
		request.ReturnDocuments = rapid.Bool().Draw(t, "return")
		if request.ReturnDocuments {
			for i, r := range want {
				want[i].Document = &rerank.Text{Text: fmt.Sprintf("d%d", r.Index)}
			}
		}
		text, _, err := rerank.Render(request, providerAnswer(t, came), "x")
		if err != nil {
			t.Fatal(err)
		}
		var got rerank.Answer
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(want, got.Results); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, body := range []string{
		`{"model":"m","query":"q","documents":["a",{"text":"b","id":1}],"top_n":1,"return_documents":true}`,
		`{"query":"","documents":[]}`, `null`, `[]`, ``, `{"query":"q","documents":[{}]}`, `{"query":"q","documents":[""],"top_n":-1}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := rerank.Decode(body)
		var refused *fault.Fault
		switch {
		case err != nil && !errors.As(err, &refused):
			t.Fatalf("%v is no refusal", err)
		case err == nil && (r.Query == "" || len(r.Documents) == 0 || r.TopN != nil && *r.TopN < 1):
			t.Fatalf("%+v", r)
		}
	})
}

func FuzzRender(f *testing.F) {
	for _, answer := range []string{
		`{"id":"i","model":"m","results":[{"index":1,"relevance_score":0.5},{"index":0,"relevance_score":7e3}],"usage":{"total_tokens":3}}`,
		`{"data":[{"index":2,"relevance_score":-0.0}],"usage":{"search_units":1.0}}`, `{"results":[{"index":0,"relevance_score":1e400}]}`, `{}`, ``,
	} {
		f.Add([]byte(answer), int64(2))
	}
	f.Fuzz(func(t *testing.T, answer []byte, top int64) {
		request := newRequest(3, `,"return_documents":true`)
		if top > 0 {
			request.TopN = &top
		}
		text, counts, err := rerank.Render(request, answer, "x")
		if err != nil {
			return
		}
		var got rerank.Answer
		if err := json.Unmarshal(text, &got, json.RejectUnknownMembers(true)); err != nil || !jsontext.Value(text).IsValid() {
			t.Fatalf("%v: %s", err, text)
		}
		seen := map[int]bool{}
		for i, r := range got.Results {
			if seen[r.Index] || r.Document.Text != fmt.Sprintf("d%d", r.Index) || i > 0 && r.RelevanceScore > got.Results[i-1].RelevanceScore {
				t.Fatalf("%s", text)
			}
			seen[r.Index] = true
		}
		if n := len(got.Results); n == 0 || top > 0 && int64(n) > top || got.ID == "" || (counts == nil) != (got.Usage == nil) {
			t.Fatalf("%s", text)
		}
	})
}

func TestAnInvalidDocumentIsToldWhatItMustBe(t *testing.T) {
	for _, document := range []string{`5`, `null`, `[]`, `{}`, `{"text":5}`, `true`} {
		_, err := rerank.Decode([]byte(`{"query":"q","documents":[` + document + `]}`))
		var f *fault.Fault
		if !errors.As(err, &f) || f.Message != "documents[0] must be a text, or an object with a text" {
			t.Errorf("%s: %v", document, err)
		}
	}
}
