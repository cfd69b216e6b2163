// Package cohere speaks version 2 of Cohere's own wire, for reranking and embeddings. Chat has Cohere's OpenAI-compatible
// endpoint. It is pure.
package cohere

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/text/sse"
	"sovereign/internal/text/token"
	"sovereign/internal/wire/chat"
	"sovereign/internal/wire/rerank"
	"sovereign/internal/wire/upstream"
)

// A Dialect is the wire below https://api.cohere.com.
type Dialect struct{}

// wire is what refusals call it.
const wire = "Cohere API"

// ways are the endpoints that have an equivalent.
var ways = map[string]func(r *upstream.Request, body []byte) (*exchange, error){
	upstream.RerankPath:     askRerank,
	upstream.EmbeddingsPath: askEmbed,
}

// Ask implements upstream.Dialect.
func (Dialect) Ask(r *upstream.Request) (upstream.Exchange, error) {
	way, ok := ways[r.Path]
	if !ok {
		return nil, fault.UnsupportedParameter.New("%s has no %s here: name Cohere's OpenAI-compatible endpoint as a provider of kind openai", r.Model.ID, r.Path)
	}
	e, err := way(r, bytes.Join(r.Body, nil))
	if err != nil {
		return nil, err
	}
	return e, nil
}

// statuses are those of Cohere's own that nobody else knows: a word in the request that it does not take, and a request
// that it believes we gave up.
var statuses = map[int]int{
	498: http.StatusBadRequest,
	499: http.StatusServiceUnavailable,
}

// Refusal implements upstream.Dialect.
func (Dialect) Refusal(status int, body []byte) (int, []byte) {
	if known, ok := statuses[status]; ok {
		status = known
	}
	var told struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(body, &told, lenient) != nil {
		told.Message = "" // it may be half of one
	}
	return status, chat.Refused(status, told.Message)
}

// An exchange is one request, and how its answer is read. There are no streams on these endpoints.
type exchange struct {
	path string
	body []byte
	read func(answer []byte) ([]byte, error)
}

// exchanged is what is said to path, read by read.
func exchanged(path string, said any, read func(answer []byte) ([]byte, error)) (*exchange, error) {
	body, err := json.Marshal(said)
	return &exchange{path: path, body: body, read: read}, err
}

// Wire implements upstream.Exchange.
func (e *exchange) Wire() (path string, body []byte) { return e.path, e.body }

// Answer implements upstream.Exchange.
func (e *exchange) Answer(body []byte) ([]byte, error) { return e.read(body) }

// Event implements upstream.Exchange.
func (*exchange) Event(to []byte, _ sse.Event) ([]byte, error) {
	return to, errors.New("a stream came, and none was asked for")
}

// End implements upstream.Exchange.
func (*exchange) End(to []byte) ([]byte, error) { return to, io.ErrUnexpectedEOF }

// lenient: an answer is read as far as it is JSON, and written as far as it is text.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// counts is what an answer's meta tells of its usage: what is billed and, where no tokens are, what was read. A meta that
// holds something else than counts tells nothing.
func counts(meta jsontext.Value) rerank.Counts {
	var told struct {
		Billed struct {
			Input    *token.Count `json:"input_tokens"`
			Searches *token.Count `json:"search_units"`
		} `json:"billed_units"`
		Tokens struct {
			Input *token.Count `json:"input_tokens"`
		} `json:"tokens"`
	}
	if meta == nil || json.Unmarshal(meta, &told, lenient) != nil {
		return rerank.Counts{}
	}
	return rerank.Counts{PromptTokens: cmp.Or(told.Billed.Input, told.Tokens.Input), SearchUnits: told.Billed.Searches}
}
