// Package rerank implements POST /v1/rerank, and POST /v2/rerank as Cohere's clients call it: it decodes the request
// and converts a provider's answer. It does no I/O.
package rerank

import (
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/chat"
)

// Request is the body of a request. Members that it does not name are passed to the provider unchecked.
type Request struct {
	Model           string     `json:"model"`
	Query           string     `json:"query"`
	Documents       []Document `json:"documents"`
	TopN            *int64     `json:"top_n"` // nil means all
	ReturnDocuments bool       `json:"return_documents"`
}

// Document is a string or an object with a text member. Others are the names of the object's other members, sorted.
type Document struct {
	Text   string
	Others []string
}

const errDocument = chat.ValueError("must be a text, or an object with a text")

// UnmarshalJSONFrom reads a string or an object.
func (d *Document) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	*d = Document{}
	if from.PeekKind() == '"' {
		return json.UnmarshalDecode(from, &d.Text)
	}
	if kind := from.PeekKind(); kind != '{' && kind != 'n' {
		return errDocument
	}
	var members map[string]jsontext.Value
	if err := json.UnmarshalDecode(from, &members); err != nil {
		return err
	}
	text := members["text"]
	if text.Kind() != '"' {
		return errDocument
	}
	maps.DeleteFunc(members, func(name string, value jsontext.Value) bool {
		return name == "text" || value.Kind() == 'n'
	})
	d.Others = slices.Sorted(maps.Keys(members))
	return json.Unmarshal(text, &d.Text)
}

// Decode reads a request and refuses invalid members by name.
func Decode(body []byte) (*Request, error) {
	r := &Request{}
	if err := json.Unmarshal(body, r); err != nil {
		return nil, chat.DecodeFault(err)
	}
	switch {
	case r.Query == "":
		return nil, fault.Invalid("query", "must be a text that is not empty")
	case len(r.Documents) == 0:
		return nil, fault.Invalid("documents", "must hold at least one document")
	case r.TopN != nil && *r.TopN < 1:
		return nil, fault.Invalid("top_n", "must be a whole number of at least 1")
	}
	return r, nil
}

// limit returns how many of n results the caller wants.
func (r *Request) limit(n int) int {
	if r.TopN == nil {
		return n
	}
	return int(min(*r.TopN, int64(n)))
}
