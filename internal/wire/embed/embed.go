// Package embed is the shape of OpenAI's embeddings, for wires that are not OpenAI's.
package embed

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/chat"
)

// A Request is the body of POST /embeddings.
type Request struct {
	Texts      []string
	Dimensions *int64
	Own        map[string]string // the wire's own members
	base64     bool
}

// A Wire is what a provider takes.
type Wire struct {
	Name string   // as refusals call it
	Own  []string // members of its own, which are texts
	Most int      // texts in a call
}

// How vectors are written.
const (
	asFloats = "float"
	asBase64 = "base64"
)

// Decode reads a request. What the wire cannot express is refused by its name; tokens are of another model's alphabet.
func (w Wire) Decode(body []byte) (*Request, error) {
	can := map[string]bool{"model": true, "models": true, "input": true, "dimensions": true, "encoding_format": true}
	for _, own := range w.Own {
		can[own] = true
	}
	if err := chat.Only(body, can, w.Name); err != nil {
		return nil, err
	}
	var members map[string]jsontext.Value
	var asked struct {
		Input          jsontext.Value `json:"input"`
		Dimensions     *int64         `json:"dimensions"`
		EncodingFormat string         `json:"encoding_format"`
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		return nil, chat.Refuse(err)
	}
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, chat.Refuse(err)
	}
	r := &Request{Dimensions: asked.Dimensions, Own: map[string]string{}}
	for _, own := range w.Own {
		var text string
		if value := members[own]; value != nil && json.Unmarshal(value, &text) != nil {
			return nil, fault.Invalid(own, "must be a text")
		}
		r.Own[own] = text
	}
	maps.DeleteFunc(r.Own, func(_, text string) bool { return text == "" })
	format := cmp.Or(asked.EncodingFormat, asFloats)
	switch {
	case format != asFloats && format != asBase64:
		return nil, fault.Invalid("encoding_format", "must be float or base64")
	case asked.Dimensions != nil && (*asked.Dimensions < 1 || *asked.Dimensions > math.MaxInt32):
		return nil, fault.Invalid("dimensions", "must be a whole number of at least 1")
	}
	r.base64 = format == asBase64
	return r, r.read(asked.Input, w)
}

func (r *Request) read(input jsontext.Value, w Wire) error {
	if len(input) == 0 || input.Kind() == 'n' {
		return fault.Invalid("input", "is required")
	}
	switch err := json.Unmarshal(input, (*chat.Texts)(&r.Texts)); {
	case err != nil:
		return chat.Unsupported("input", "must be a text or texts: the "+w.Name+" takes no tokens")
	case len(r.Texts) == 0:
		return fault.Invalid("input", "must not be empty")
	case len(r.Texts) > w.Most:
		return chat.Unsupported("input", fmt.Sprintf("must have at most %d texts in the %s", w.Most, w.Name))
	}
	return nil
}

// A vector is one text's embedding: numbers, or a text of base64.
type vector struct {
	Object    string `json:"object"` // embedding
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"`
}

// A spent is what embeddings use: what is read.
type spent struct {
	PromptTokens int64 `json:"prompt_tokens"`
	TotalTokens  int64 `json:"total_tokens"`
}

// Answer is OpenAI's, with a vector for each text. Tokens are nil where the provider tells none.
func (r *Request) Answer(model string, vectors [][]float64, tokens *int64) ([]byte, error) {
	if len(vectors) != len(r.Texts) {
		return nil, fmt.Errorf("the answer holds %d vectors for %d texts", len(vectors), len(r.Texts))
	}
	ours := struct {
		Object string   `json:"object"`
		Data   []vector `json:"data"`
		Model  string   `json:"model"`
		Usage  *spent   `json:"usage,omitzero"`
	}{Object: "list", Model: model}
	for i, v := range vectors {
		written, err := r.write(v)
		if err != nil {
			return nil, err
		}
		ours.Data = append(ours.Data, vector{"embedding", i, written})
	}
	if tokens != nil {
		ours.Usage = &spent{*tokens, *tokens}
	}
	return json.Marshal(&ours, jsontext.AllowInvalidUTF8(true))
}

// write is v as it was asked for. Base64 is of little-endian float32, as OpenAI's SDKs read it.
func (r *Request) write(v []float64) (any, error) {
	if len(v) == 0 {
		return nil, errors.New("a vector is empty")
	}
	if !r.base64 {
		return v, nil
	}
	raw := make([]byte, 0, 4*len(v))
	for _, x := range v {
		narrow := float32(x)
		if math.IsInf(float64(narrow), 0) {
			return nil, errors.New("a number of a vector is too large")
		}
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(narrow))
	}
	return base64.StdEncoding.EncodeToString(raw), nil
}
