package embed_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/embed"
)

var testAPI = embed.API{Name: "wire", Extra: []string{"task"}, MaxTexts: 2}

func TestWhatCannotBeExpressedIsRefusedByName(t *testing.T) {
	for body, field := range map[string]string{
		`{"model":"m","input":"a"}`:                                    "",
		`{"model":"m","input":["a","b"],"task":"x","dimensions":3}`:    "",
		`{"model":"m","input":"a","encoding_format":null,"task":null}`: "",
		`{"model":"m"}`:                                     "input",
		`{"model":"m","input":[]}`:                          "input",
		`{"model":"m","input":[1,2]}`:                       "input",
		`{"model":"m","input":["a","b","c"]}`:               "input",
		`{"model":"m","input":"a","dimensions":0}`:          "dimensions",
		`{"model":"m","input":"a","encoding_format":"hex"}`: "encoding_format",
		`{"model":"m","input":"a","task":5}`:                "task",
		`{"model":"m","input":"a","input_type":"x"}`:        "input_type",
	} {
		_, err := testAPI.Decode([]byte(body))
		var f *fault.Fault
		if errors.As(err, &f); (err == nil) != (field == "") || err != nil && (f == nil || f.Field != field || f.Status != 400) {
			t.Errorf("%s: %v, want %q", body, err, field)
		}
	}
}

func TestVectorsAreTheSameInBothEncodings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vector := rapid.SliceOfN(rapid.Float32(), 1, 8).Draw(t, "vector")
		wide := make([]float64, len(vector))
		for i, x := range vector {
			wide[i] = float64(x)
		}
		tokens := rapid.Int64Range(0, 100).Draw(t, "tokens")
		answer := func(format string) (data json.RawMessage) {
			r, err := testAPI.Decode([]byte(`{"model":"m","input":"a","encoding_format":"` + format + `"}`))
			if err != nil {
				t.Fatal(err)
			}
			text, err := r.Answer("m", [][]float64{wide}, &tokens)
			var out struct {
				Data []struct {
					Index     int
					Embedding json.RawMessage
				}
				Usage struct {
					Prompt int64 `json:"prompt_tokens"`
					Total  int64 `json:"total_tokens"`
				}
			}
			if err == nil {
				err = json.Unmarshal(text, &out)
			}
			if err != nil || len(out.Data) != 1 || out.Usage.Prompt != tokens || out.Usage.Total != tokens {
				t.Fatalf("%s %v", text, err)
			}
			return out.Data[0].Embedding
		}
		var packed string
		if err := json.Unmarshal(answer("base64"), &packed); err != nil {
			t.Fatal(err)
		}
		raw, err := base64.StdEncoding.DecodeString(packed)
		if err != nil || len(raw) != 4*len(vector) {
			t.Fatal(packed, err)
		}
		var floats []float64
		if err := json.Unmarshal(answer("float"), &floats); err != nil {
			t.Fatal(err)
		}
		for i := range vector {
			if got := math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])); got != vector[i] || floats[i] != wide[i] {
				t.Fatalf("%g is %g and %g", vector[i], got, floats[i])
			}
		}
	})
}
