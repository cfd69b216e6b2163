package cohere_test

import (
	"encoding/base64"
	"encoding/binary"
	"math"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// vectorsOf returns the vectors of an answer as OpenAI's SDKs read them.
func vectorsOf(t fataler, answer []byte) (all [][]float32) {
	t.Helper()
	var list struct {
		Data []struct {
			Index     int            `json:"index"`
			Embedding jsontext.Value `json:"embedding"`
		} `json:"data"`
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		t.Fatal(err)
	}
	for i, d := range list.Data {
		if d.Index != i {
			t.Fatalf("vector %d is %d", i, d.Index)
		}
		var v []float32
		if d.Embedding.Kind() != '"' {
			if err := json.Unmarshal(d.Embedding, &v); err != nil {
				t.Fatal(err)
			}
			all = append(all, v)
			continue
		}
		var text string
		if err := json.Unmarshal(d.Embedding, &text); err != nil {
			t.Fatal(err)
		}
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		for ; len(raw) > 0; raw = raw[4:] {
			v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
		}
		all = append(all, v)
	}
	return all
}
