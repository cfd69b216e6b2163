// Package embed has the types of OpenAI's embeddings, for dialects: it decodes a request, refuses what another API
// cannot express, and encodes the answer.
package embed

import (
	"cmp"
	"fmt"
	"maps"
	"math"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/chat"
)

// Request is the body of POST /embeddings.
type Request struct {
	Texts      []string
	Dimensions *int64
	Extra      map[string]string // parameters of the API beside OpenAI's
	base64     bool
}

// API says what a provider's embedding API accepts.
type API struct {
	Name     string   // as named in errors
	Extra    []string // string parameters beside OpenAI's
	MaxTexts int      // maximum of texts in one call
}

// Decode reads a request. A parameter that the API cannot express is refused by name. Input in tokens is refused,
// because another model has other tokens.
func (api API) Decode(body []byte) (*Request, error) {
	expressible := map[string]bool{
		"model": true, "models": true, "input": true, "dimensions": true,
		"encoding_format": true,
	}
	for _, name := range api.Extra {
		expressible[name] = true
	}
	if err := chat.CheckParameters(body, expressible, api.Name); err != nil {
		return nil, err
	}
	var members map[string]jsontext.Value
	var request struct {
		Input          jsontext.Value `json:"input"`
		Dimensions     *int64         `json:"dimensions"`
		EncodingFormat Encoding       `json:"encoding_format"`
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, chat.DecodeFault(err)
	}
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, chat.DecodeFault(err)
	}
	r := &Request{Dimensions: request.Dimensions, Extra: map[string]string{}}
	for _, name := range api.Extra {
		var text string
		if value := members[name]; value != nil && json.Unmarshal(value, &text) != nil {
			return nil, fault.Invalid(name, "must be a text")
		}
		r.Extra[name] = text
	}
	maps.DeleteFunc(r.Extra, func(_, text string) bool { return text == "" })
	format := cmp.Or(request.EncodingFormat, Float)
	switch {
	case format != Float && format != Base64:
		return nil, fault.Invalid("encoding_format", "must be float or base64")
	case request.Dimensions != nil && (*request.Dimensions < 1 || *request.Dimensions > math.MaxInt32):
		return nil, fault.Invalid("dimensions", "must be a whole number of at least 1")
	}
	r.base64 = format == Base64
	return r, r.readInput(request.Input, api)
}

func (r *Request) readInput(input jsontext.Value, api API) error {
	if len(input) == 0 || input.Kind() == 'n' {
		return fault.Invalid("input", "is required")
	}
	switch err := json.Unmarshal(input, (*chat.Texts)(&r.Texts)); {
	case err != nil:
		return chat.Unsupported("input", "must be a text or texts: the "+api.Name+" takes no tokens")
	case len(r.Texts) == 0:
		return fault.Invalid("input", "must not be empty")
	case len(r.Texts) > api.MaxTexts:
		return chat.Unsupported("input", fmt.Sprintf("must have at most %d texts in the %s", api.MaxTexts, api.Name))
	}
	return nil
}

// vector is the embedding of one text: numbers, or a base64 string.
type vector struct {
	Object    string `json:"object"` // embedding
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"`
}

// usage counts the tokens of the input; embeddings have no output tokens.
type usage struct {
	PromptTokens int64 `json:"prompt_tokens"`
	TotalTokens  int64 `json:"total_tokens"`
}

// Answer encodes the answer in OpenAI's shape, with one vector for each text. tokens is nil when the provider reported
// no usage.
func (r *Request) Answer(model string, vectors [][]float64, tokens *int64) ([]byte, error) {
	if len(vectors) != len(r.Texts) {
		return nil, fmt.Errorf("the answer holds %d vectors for %d texts", len(vectors), len(r.Texts))
	}
	answer := struct {
		Object string   `json:"object"`
		Data   []vector `json:"data"`
		Model  string   `json:"model"`
		Usage  *usage   `json:"usage,omitzero"`
	}{Object: "list", Model: model}
	for i, v := range vectors {
		encoded, err := r.encodeVector(v)
		if err != nil {
			return nil, err
		}
		answer.Data = append(answer.Data, vector{"embedding", i, encoded})
	}
	if tokens != nil {
		answer.Usage = &usage{*tokens, *tokens}
	}
	return json.Marshal(&answer, jsontext.AllowInvalidUTF8(true))
}

// encodeVector returns v in the requested encoding.
func (r *Request) encodeVector(v []float64) (any, error) {
	switch {
	case len(v) == 0:
		return nil, errEmpty
	case r.base64:
		return pack(v)
	default:
		return v, nil
	}
}
