// Package request reads inference requests: what the gateway must know of a body, and the body that goes to a provider.
// What the gateway does not have to know is left to the provider.
package request

import (
	"fmt"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/infer"
	"sovereign/internal/plane/meter"
	"sovereign/internal/text/scan"
	"sovereign/internal/text/token"
	"sovereign/internal/wire/embed"
	"sovereign/internal/wire/rerank"
	"sovereign/internal/wire/upstream"
)

// A Request is an inference request: admitted, with its body in memory. The exported fields of Parsed are valid after
// Parse.
type Request struct {
	Endpoint    *Endpoint
	Caller      tenant.Caller
	ID          string
	Body        []byte
	BodyRef     upstream.RefCounted // of the body; nil if its memory is not reused
	Cache       string              // "on" or "off" by the caller's X-Service-Cache; else empty
	Annotations *Annotations        // by the caller's headers; nil for the product's own requests
	Internal    *infer.Request      // the completion that the product asks for; nil for a caller's request
	Grant       *live.Grant         // of the caller's key; nil for the product's own requests
	Pass        meter.Pass          // through the limits of the key and the workspace

	Parsed
}

// Annotations are what a caller says about a request for the log. Only callers' requests have them: the product's own
// requests are never logged.
type Annotations struct {
	Tag   string
	Trace string
	NoLog bool // the request must not be logged
}

// Parsed is what the gateway reads in a body.
type Parsed struct {
	Model        string
	Stream       bool
	IncludeUsage bool            // the caller asked for usage in the stream
	MaxTokens    int64           // most tokens of output per choice, as the caller says; 0 if it does not
	Choices      int64           // how many are asked for
	Fallbacks    []string        // models that the caller names; nil if it names none
	Elements     int             // length of the content, if that is a list
	Question     *rerank.Request // for Rerank
	Encoding     embed.Encoding  // of the vectors that the caller wants; empty leaves it to the provider
	QueryTokens  int64           // upper bound of the tokens of a reranker's query
	Stored       string          // the member that refers to data stored at the provider
	Priced       string          // the member that asks for something with a price of its own, which no hold covers
	Members      []scan.Member

	membersArray [12]scan.Member // backs Members of most requests
	bounds       *token.Bounds   // once they were computed
	ownEncoding  bool            // a provider's own member names the encoding
}

// Bounds of what a caller may ask for.
const (
	MaxChoices   = 128
	maxFallbacks = 8
	maxModelName = 256
)

// Parse reads the body.
func (q *Request) Parse() error {
	var err error
	if q.Members, err = scan.ObjectWithWords(q.Body, q.membersArray[:0], soughtWords); err != nil {
		return fault.InvalidBody.New("the body %s", err)
	}
	q.Choices = 1
	content := false
	for _, m := range q.Members {
		if m.Name == q.Endpoint.content {
			if content, err = true, q.checkContent(m); err != nil {
				return err
			}
		}
		read := q.Endpoint.readers[m.Name]
		if read == nil {
			if known, twin := q.Endpoint.twin(m.Name); twin {
				return fault.Invalid(m.Name, "must be written "+known)
			}
			continue
		}
		if string(m.Value) == "null" {
			continue
		}
		if err := read(q, m.Value); err != nil {
			return fault.Invalid(m.Name, err.Error())
		}
	}
	if q.Model == "" {
		return fault.Invalid("model", "is required")
	}
	if !content {
		return fault.Invalid(q.Endpoint.content, "is required")
	}
	if q.Endpoint.check != nil {
		return q.Endpoint.check(q)
	}
	return nil
}

// soughtWords are the words that matter wherever they stand in a body: the role that only some providers know, and the
// names of media.
var soughtWords = scan.NewWords(append([]string{"developer"}, token.Media()...)...)

const (
	developerWord scan.WordSet = 1
	mediaWords                 = ^developerWord
)

// HasMedia reports whether the name of a medium stands anywhere in the body.
func (q *Request) HasMedia() bool {
	for i := range q.Members {
		if q.Members[i].Seen&mediaWords != 0 {
			return true
		}
	}
	return false
}

// Tokens returns bounds of the request's tokens. It takes time for a long body, and is computed once.
func (q *Request) Tokens() token.Bounds {
	if q.bounds == nil {
		b := token.Body(q.Body)
		q.bounds = &b
	}
	return *q.bounds
}

func (q *Request) checkContent(m scan.Member) error {
	n, array := max(m.Elements, 0), m.Elements >= 0
	q.Elements = n
	switch {
	case array && n == 0:
		return fault.Invalid(q.Endpoint.content, "must not be empty")
	case array && n > q.Endpoint.maxElements:
		return fault.Invalid(q.Endpoint.content, fmt.Sprintf("must have at most %d elements", q.Endpoint.maxElements))
	case !array && q.Endpoint.mustBeList:
		return fault.Invalid(q.Endpoint.content, "must be an array")
	}
	return nil
}

// MaxSearches returns the most searches that a reranker may charge for. A search is a query with up to a hundred
// documents, of which a long one counts as several. It is 0 for other endpoints.
func (q *Request) MaxSearches() int64 {
	if q.Endpoint.Kind != live.Rerank {
		return 0
	}
	const longDocument = 250 // tokens of a document and the query
	return (int64(q.Elements)+(q.Tokens().High+int64(q.Elements)*q.QueryTokens)/longDocument)/rerank.DocumentsPerSearch + 1
}

// MinSearches returns the searches that a reranker has made at least.
func (q *Request) MinSearches() int64 {
	return rerank.Searches(q.Elements)
}

// promptMembers returns the members that are part of the prompt.
func (q *Request) promptMembers() (parts []scan.Member) {
	for _, m := range q.Members {
		for _, name := range q.Endpoint.prompt {
			if m.Name == name {
				parts = append(parts, m)
			}
		}
	}
	return parts
}

// InputLimit returns the most input tokens that a model can have read for the request.
func (q *Request) InputLimit(m *live.Model) int64 {
	if m.Kind == live.Chat {
		return m.ContextWindow
	}
	return max(int64(q.Elements), 1) * m.ContextWindow // each text of a list may fill the window
}

// MaxInput returns the most tokens that the request can be for a model, if its prompt has at most prompt tokens.
func (q *Request) MaxInput(m *live.Model, prompt int64) int64 {
	switch {
	case q.Stored != "": // stored data adds to what the caller sent
		return m.ContextWindow
	case m.Kind == live.Chat:
		return min(prompt, m.ContextWindow)
	case m.Kind == live.Rerank: // the query may be counted with every document
		return prompt + int64(q.Elements)*q.QueryTokens
	default:
		return prompt // each text of a list may fill the window
	}
}
