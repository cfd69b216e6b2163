// Package cohere speaks version 2 of Cohere's API: POST /v2/rerank and POST /v2/embed below https://api.cohere.com. It
// translates rerank and embedding requests, their answers and the errors. There are no streams on these endpoints.
//
// Refused by name: chat (Cohere's OpenAI-compatible endpoint is configured as a provider of kind openai), parameters
// without an equivalent, documents that are more than a text, input in tokens, and more than 96 texts in one call. An
// embedding request without input_type is sent as search_document, because Cohere requires one.
//
// The package does no I/O.
package cohere

import (
	"bytes"
	"cmp"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/text/token"
	"sovereign/internal/wire/rerank"
	"sovereign/internal/wire/upstream"
)

// Dialect implements upstream.Dialect for Cohere's API.
type Dialect struct{}

// apiName is the name of the API in errors.
const apiName = "Cohere API"

// endpoints are the endpoints that have an equivalent.
var endpoints = map[string]func(r *upstream.Request, body []byte) (*exchange, error){
	upstream.RerankPath:     newRerankExchange,
	upstream.EmbeddingsPath: newEmbedExchange,
}

// NewExchange implements upstream.Dialect.
func (Dialect) NewExchange(r *upstream.Request) (upstream.Exchange, error) {
	newEndpoint, ok := endpoints[r.Path]
	if !ok {
		return nil, fault.UnsupportedParameter.New(
			"%s has no %s here: name Cohere's OpenAI-compatible endpoint as a provider of kind openai", r.Model.ID, r.Path)
	}
	e, err := newEndpoint(r, bytes.Join(r.Body, nil))
	if err != nil {
		return nil, err
	}
	return e, nil
}

// exchange is one request and the conversion of its answer.
type exchange struct {
	upstream.NoStream
	path    string
	body    []byte
	convert func(answer []byte) ([]byte, error)
}

// newExchange encodes request for path; convert translates the answer.
func newExchange(path string, request any, convert func(answer []byte) ([]byte, error)) (*exchange, error) {
	body, err := json.Marshal(request)
	return &exchange{path: path, body: body, convert: convert}, err
}

// Request implements upstream.Exchange.
func (e *exchange) Request() (path string, body []byte) { return e.path, e.body }

// Answer implements upstream.Exchange.
func (e *exchange) Answer(body []byte) ([]byte, error) { return e.convert(body) }

// lenient accepts duplicate names and invalid UTF-8 in a provider's answer.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// usageCounts reads the usage from an answer's meta: the billed units, and the input tokens where none are billed. It
// returns no counts when meta is not valid.
func usageCounts(meta jsontext.Value) rerank.Counts {
	var decoded struct {
		Billed struct {
			Input    *token.Count `json:"input_tokens"`
			Searches *token.Count `json:"search_units"`
		} `json:"billed_units"`
		Tokens struct {
			Input *token.Count `json:"input_tokens"`
		} `json:"tokens"`
	}
	if meta == nil || json.Unmarshal(meta, &decoded, lenient) != nil {
		return rerank.Counts{}
	}
	return rerank.Counts{
		PromptTokens: cmp.Or(decoded.Billed.Input, decoded.Tokens.Input),
		SearchUnits:  decoded.Billed.Searches,
	}
}
