package sim

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

type embeddingsAnswer struct {
	Object string `json:"object"`
	Model  string `json:"model"`
	Data   []struct {
		Object    string         `json:"object"`
		Index     int            `json:"index"`
		Embedding jsontext.Value `json:"embedding"`
	} `json:"data"`
	Usage *embeddingUsage `json:"usage"`
}

func vectors(t fataler, body string) (all [][]float32, h embeddingsAnswer) {
	t.Helper()
	h = parse[embeddingsAnswer](t, ask(t, "sim/embedding", body))
	for i, d := range h.Data {
		if d.Index != i || d.Object != "embedding" || h.Object != "list" || h.Model != "sim/embedding" {
			t.Fatalf("%+v", h)
		}
		if d.Embedding.Kind() != '"' {
			all = append(all, parse[[]float32](t, string(d.Embedding)))
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(parse[string](t, string(d.Embedding)))
		if err != nil {
			t.Fatal(err)
		}
		v := make([]float32, len(raw)/4)
		for i := range v {
			v[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
		all = append(all, v)
	}
	return all, h
}

func cosine(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

func TestVectorsHaveLengthOneAndAreTheSameInBothEncodings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.StringN(1, 50, -1), 1, 4).Draw(t, "texts")
		dimensions := rapid.IntRange(1, 3072).Draw(t, "dimensions")
		body := fmt.Sprintf(`{"model":"m","input":%s,"dimensions":%d,"sim":{"seed":%d}`, encode(texts), dimensions, rapid.IntRange(0, 5).Draw(t, "seed"))
		floats, h := vectors(t, body+"}")
		packed, _ := vectors(t, body+`,"encoding_format":"base64"}`)
		var counted int64
		for i, v := range floats {
			counted += tokens(len(texts[i]))
			if length := cosine(v, v); len(v) != dimensions || math.Abs(length-1) > 1e-5 || len(floats) != len(texts) {
				t.Fatalf("%d dimensions of length %v", len(v), length)
			}
			for j := range v {
				if v[j] != packed[i][j] {
					t.Fatalf("%v as a number, %v packed", v[j], packed[i][j])
				}
			}
		}
		if *h.Usage != (embeddingUsage{counted, counted}) {
			t.Fatalf("%+v, not %d", *h.Usage, counted)
		}
	})
}

func TestSimilarTextsPointInSimilarDirections(t *testing.T) {
	groups := [][]string{
		{"How do I reset my password?", "I forgot my password and want to reset it", "password resetting does not work"},
		{"The weather in Paris is sunny today", "Is it sunny weather in Paris?", "sunny weather today, says Paris"},
		{"Calculate compound interest on a loan", "What interest does the loan compound?", "loan with compounded interests"},
	}
	var texts []string
	for _, g := range groups {
		texts = append(texts, g...)
	}
	for seed := range 20 {
		for _, dimensions := range []int{256, 1536} {
			all, _ := vectors(t, fmt.Sprintf(`{"model":"m","input":%s,"dimensions":%d,"sim":{"seed":%d}}`, encode(texts), dimensions, seed))
			worst, best, sum := 1.0, -1.0, 0.0
			for i := range all {
				for j := range i {
					if c := cosine(all[i], all[j]); i/3 == j/3 {
						worst = min(worst, c)
					} else {
						best = max(best, c)
						sum += c
					}
				}
			}
			if worst <= best || math.Abs(sum/27) > 0.1 {
				t.Errorf("seed %d: %v among the similar, %v among the others, %v on average", seed, worst, best, sum/27)
			}
		}
	}
}

func TestEveryShapeOfInputIsEmbedded(t *testing.T) {
	for input, want := range map[string]struct {
		texts  int
		tokens int64
	}{`"hello"`: {1, 2}, `["hello","you"]`: {2, 3}, `[1,2,3]`: {1, 3}, `[[1,2,3],[4]]`: {2, 4}, `"…"`: {1, 1}} {
		all, h := vectors(t, `{"model":"m","input":`+input+`}`)
		if len(all) != want.texts || len(all[0]) != 256 || h.Usage.Prompt != want.tokens {
			t.Errorf("%s: %d texts, %+v", input, len(all), *h.Usage)
		}
	}
	a, _ := vectors(t, `{"model":"m","input":[[11,12,13],[11,12,14],[95,96,97]]}`)
	if cosine(a[0], a[1]) <= cosine(a[0], a[2]) {
		t.Error("tokens do not count")
	}
	if _, h := vectors(t, `{"model":"m","input":"x","sim":{"usage":"none"}}`); h.Usage != nil {
		t.Errorf("%+v", h.Usage)
	}
	if _, h := vectors(t, `{"model":"m","input":"x","sim":{"usage":{"prompt_tokens":12}}}`); *h.Usage != (embeddingUsage{12, 12}) {
		t.Errorf("%+v", h.Usage)
	}
	if all, _ := vectors(t, `{"model":"m","input":[`+strings.Repeat(`"a",`, 2047)+`"b"]}`); len(all) != 2048 {
		t.Error(len(all))
	}
}
