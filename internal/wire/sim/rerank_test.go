package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sovereign/internal/live"
	"sovereign/internal/wire/rerank"
	"sovereign/internal/wire/upstream"
)

// sendRerank sends a request and reads the answer; the error is that of the body.
func sendRerank(t fataler, p upstream.Sender, m *live.Model, body string) (*upstream.Response, string, error) {
	t.Helper()
	response, err := p.Send(context.Background(), &upstream.Request{Model: m, Path: upstream.RerankPath, Body: [][]byte{[]byte(body)}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response, string(text), err
}

// askRerank returns the answer, which must have status 200.
func askRerank(t fataler, body string) (rerankAnswer, string) {
	t.Helper()
	response, text, err := sendRerank(t, New(), model("sim/rerank"), body)
	if response.Status != http.StatusOK || response.ContentType != jsonType || err != nil {
		t.Fatalf("%s: %d %s, %v", body, response.Status, text, err)
	}
	return parse[rerankAnswer](t, text), text
}

// rerankBody is a request with three documents, of which the last fits best and the first not at all.
func rerankBody(fields string) string {
	if fields != "" {
		fields = "," + fields
	}
	return `{"model":"m","query":"Why is the sky blue?","documents":["grass","The sky",{"text":"The sky is blue. Why?"}]` + fields + `}`
}

func TestTheDocumentWithTheMostOfTheQuerysWordsComesFirst(t *testing.T) {
	r, text := askRerank(t, rerankBody(""))
	want := []rerankResult{{Index: 2, Score: 1}, {Index: 1, Score: 0.46}, {Index: 0, Score: 0}}
	if diff := cmp.Diff(want, r.Results); diff != "" {
		t.Error(diff)
	}
	if r.Model != "sim/rerank" || !strings.HasPrefix(r.ID, "rerank-sim-") || *r.Usage != (embeddingUsage{14, 14}) {
		t.Errorf("%+v", r)
	}
	if _, again := askRerank(t, rerankBody("")); again != text {
		t.Errorf("%s, and then %s", text, again)
	}
	if seeded, _ := askRerank(t, rerankBody(`"sim":{"seed":5}`)); !cmp.Equal(seeded.Results, r.Results) {
		t.Errorf("a seed moved the scores: %+v", seeded)
	}
	if cut, _ := askRerank(t, rerankBody(`"top_n":2`)); !cmp.Equal(cut.Results, r.Results[:2]) || *cut.Usage != *r.Usage {
		t.Errorf("%+v", cut)
	}
	if told, _ := askRerank(t, rerankBody(`"return_documents":true`)); told.Results[1].Document.Text != "The sky" {
		t.Errorf("%+v", told)
	}
	if wordless, _ := askRerank(t, `{"model":"m","query":"?!","documents":["","?!"]}`); wordless.Results[0] != (rerankResult{}) {
		t.Errorf("%+v", wordless)
	}
}

func TestRelevanceScores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune("ab ")))
		query := "x " + text.Draw(t, "query")
		documents := rapid.SliceOfN(text, 1, 20).Draw(t, "documents")
		body := fmt.Sprintf(`{"model":"m","query":%s,"documents":%s,"return_documents":true}`, encode(query), encode(append(documents, query)))
		r, told := askRerank(t, body)
		for i, result := range r.Results {
			if result.Score < 0 || result.Score > 1 || i > 0 && result.Score > r.Results[i-1].Score {
				t.Fatalf("%+v", r)
			}
		}
		if r.Results[0].Score != 1 || len(r.Results) != len(documents)+1 {
			t.Fatalf("the query itself is not the best: %+v", r)
		}
		request, err := rerank.Decode([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if ours, counts, err := rerank.Render(request, []byte(told), "x"); err != nil || string(ours) != told || counts == nil {
			t.Fatalf("%v: the gateway makes\n%s of\n%s", err, ours, told)
		}
	})
}

func TestARerankerFollowsTheSimField(t *testing.T) {
	_, whole := askRerank(t, rerankBody(""))
	for told, want := range map[string]*embeddingUsage{`"none"`: nil, `"zero"`: {}, `{"prompt_tokens":7}`: {7, 7}} {
		if r, _ := askRerank(t, rerankBody(`"sim":{"usage":`+told+`}`)); !cmp.Equal(r.Usage, want) {
			t.Errorf("%s: %+v", told, r.Usage)
		}
	}
	failing := func(how string) (*upstream.Response, string, error) {
		return sendRerank(t, New(), model("sim/rerank"), rerankBody(`"sim":{"fail":"`+how+`"}`))
	}
	for fail := range statusErrors {
		if response, text, err := failing(fail); err != nil || "status_"+strconv.Itoa(response.Status) != fail || envelope(t, text).Message == "" {
			t.Errorf("%s: %d %s, %v", fail, response.Status, text, err)
		}
	}
	if response, text, err := failing(die); response.Status != http.StatusOK || !errors.Is(err, io.ErrUnexpectedEOF) || text == whole || !strings.HasPrefix(whole, text) {
		t.Errorf("die: %s, %v", text, err)
	}
	if _, text, err := failing(garbage); err != nil || jsontext.Value(text).IsValid() {
		t.Errorf("garbage: %s, %v", text, err)
	}
	if _, text, err := failing(errorEvent); err != nil || envelope(t, text).Type != serverError {
		t.Errorf("error: %s, %v", text, err)
	}
	if response, _, _ := sendRerank(t, New(), model("sim/rerank"), rerankBody(`"sim":{"error_rate":1}`)); response.Status != http.StatusServiceUnavailable {
		t.Errorf("an error rate of 1: %d", response.Status)
	}
}

func TestARerankerAppliesLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if askRerank(t, rerankBody(`"sim":{"latency_ms":1500}`)); time.Since(start) != 1500*time.Millisecond {
			t.Errorf("%s", time.Since(start))
		}
	})
}

func TestAnInvalidRerankParameterIsRefusedByName(t *testing.T) {
	for body, want := range map[string]string{
		``:                                                      "",
		`{"query":"q","documents":["a"]}`:                       "model",
		`{"model":"m","documents":["a"]}`:                       "query",
		`{"model":"m","query":5}`:                               "query",
		`{"model":"m","query":"q"}`:                             "documents",
		`{"model":"m","query":"q","documents":[]}`:              "documents",
		`{"model":"m","query":"q","documents":["a",5]}`:         "documents[1]",
		`{"model":"m","query":"q","documents":[null]}`:          "documents[0]",
		`{"model":"m","query":"q","documents":[{"title":"a"}]}`: "documents[0]",
		`{"model":"m","query":"q","documents":["a"` + strings.Repeat(`,"a"`, 2048) + `]}`:           "documents",
		`{"model":"m","query":"q","documents":["a","` + strings.Repeat("many words ", 4000) + `"]}`: "documents",
		rerankBody(`"top_n":0`):                "top_n",
		rerankBody(`"top_n":1.5`):              "top_n",
		rerankBody(`"return_documents":"yes"`): "return_documents",
		rerankBody(`"sim":{"colour":"red"}`):   "sim.colour",
	} {
		response, text, err := sendRerank(t, New(), model("sim/rerank"), body)
		if err != nil || response.Status != http.StatusBadRequest {
			t.Errorf("%.200s: %d %.200s, %v", body, response.Status, text, err)
			continue
		}
		param := ""
		if e := envelope(t, text); e.Param != nil {
			param = *e.Param
		}
		if param != want {
			t.Errorf("%.200s: %q, not %q: %s", body, param, want, text)
		}
	}
	if response, _, _ := sendRerank(t, New(), model("sim/embedding"), rerankBody("")); response.Status != http.StatusBadRequest {
		t.Errorf("a model for embeddings: %d", response.Status)
	}
}

func FuzzRerank(f *testing.F) {
	for _, body := range []string{rerankBody(""), rerankBody(`"top_n":1,"return_documents":true,"sim":{"usage":"none"}`), `{"model":"m","query":"?","documents":[""]}`, `null`, ``} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := (&provider{}).answer(&upstream.Request{Model: model("sim/rerank"), Path: upstream.RerankPath, Body: [][]byte{body}})
		if err != nil {
			a = errorAnswer(err)
		}
		text, _, _ := drain(a.frames)
		switch {
		case a.status != http.StatusOK:
			envelope(t, text)
		case !strings.Contains(string(body), "fail") && len(parse[rerankAnswer](t, text).Results) == 0:
			t.Fatal(text)
		}
	})
}
