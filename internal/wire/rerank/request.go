// Package rerank is POST /v1/rerank: how a request reads, and how our answer is made of a provider's. It is pure.
package rerank

import (
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/chat"
)

// A Request is what the road reads of a body. Members that it does not name are the provider's to judge.
type Request struct {
	Model           string     `json:"model"`
	Query           string     `json:"query"`
	Documents       []Document `json:"documents"`
	TopN            *int64     `json:"top_n"` // nil is all
	ReturnDocuments bool       `json:"return_documents"`
}

// A Document is a text, or an object that has one. Others are the names of what else the object says, in order.
type Document struct {
	Text   string
	Others []string
}

const errDocument = chat.Rule("must be a text, or an object with a text")

// UnmarshalJSONFrom reads either.
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
	maps.DeleteFunc(members, func(name string, value jsontext.Value) bool { return name == "text" || value.Kind() == 'n' })
	d.Others = slices.Sorted(maps.Keys(members))
	return json.Unmarshal(text, &d.Text)
}

// Decode reads a request, or refuses the member that breaks a rule.
func Decode(body []byte) (*Request, error) {
	r := &Request{}
	if err := json.Unmarshal(body, r); err != nil {
		return nil, chat.Refuse(err)
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

// cut is how many of n results the caller wants.
func (r *Request) cut(n int) int {
	if r.TopN == nil {
		return n
	}
	return int(min(*r.TopN, int64(n)))
}
