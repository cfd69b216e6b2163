package main

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"net/http"
)

// dimensions is how long a vector is, unless the request says otherwise.
const dimensions = 8

type embedding struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"` // numbers, or their little-endian float32s in base64
}

func (*provider) embeddings(a *answer) {
	inputs, tokens := a.ask.inputs()
	if len(inputs) == 0 {
		a.refuse(http.StatusBadRequest, "invalid_value", "input", "input must be texts or tokens")
		return
	}
	size := dimensions
	if a.ask.Dimensions != nil {
		size = *a.ask.Dimensions
	}
	data := make([]embedding, len(inputs))
	for i, input := range inputs {
		vector := embed(input, size)
		data[i] = embedding{"embedding", i, vector}
		if cmp.Or(a.plan.encoding, a.ask.EncodingFormat) == "base64" {
			data[i].Embedding = pack(vector)
		}
	}
	out := map[string]any{"object": "list", "data": data, "model": a.plan.name}
	if u := a.plan.report(tokens, 0, 0); u != nil {
		out["usage"] = map[string]int{"prompt_tokens": u.Prompt, "total_tokens": u.Prompt}
	}
	a.whole(out)
}

// inputs are the texts to embed and their tokens: one text, one list of tokens, or several of either.
func (a *ask) inputs() (out []string, tokens int) {
	var (
		text  string
		ids   []int
		texts []string
		lists [][]int
	)
	switch {
	case json.Unmarshal(a.Input, &text) == nil:
		return []string{text}, words(text)
	case json.Unmarshal(a.Input, &texts) == nil:
		for _, text := range texts {
			tokens += words(text)
		}
		return texts, tokens
	case json.Unmarshal(a.Input, &ids) == nil:
		lists = [][]int{ids}
	case json.Unmarshal(a.Input, &lists) != nil:
		return nil, 0
	}
	for _, ids := range lists {
		out = append(out, encode(ids))
		tokens += len(ids)
	}
	return out, tokens
}

// embed is a unit vector that depends on text alone.
func embed(text string, size int) []float32 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(text))
	random := rand.New(rand.NewPCG(hash.Sum64(), 0))
	out, length := make([]float32, size), 0.0
	for i := range out {
		out[i] = float32(random.NormFloat64())
		length += float64(out[i]) * float64(out[i])
	}
	for i := range out {
		out[i] /= float32(math.Sqrt(length))
	}
	return out
}

func pack(vector []float32) string {
	out := make([]byte, 0, 4*len(vector))
	for _, x := range vector {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(out)
}
