// Package evalendpoint stores a workspace's own OpenAI-compatible servers, and has them answer in evals. Nothing else
// reaches them: no request of a caller does, and no alias names one. An endpoint's key is sealed for its workspace, its
// endpoint and its URL, and no operation returns it.
package evalendpoint

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/net/netguard"
)

// An EvalEndpoint is what callers see of an endpoint.
type EvalEndpoint struct {
	ID        string     `json:"id" doc:"In evals, the model is endpoint/<id>"`
	Object    string     `json:"object" enum:"endpoint"`
	Name      string     `json:"name"`
	BaseURL   string     `json:"base_url" db:"base_url"`
	Model     string     `json:"model" doc:"What the server calls its model"`
	HasAPIKey bool       `json:"has_api_key" db:"has_api_key"`
	CreatedAt clock.Time `json:"created_at"`
	UpdatedAt clock.Time `json:"updated_at"`

	created bool // by the operation that returns it
}

// Created reports whether the operation that returned the endpoint has created it.
func (e EvalEndpoint) Created() bool { return e.created }

// object is what an endpoint is called on the wire and in the audit trail.
const object = "endpoint"

// Bounds of an endpoint's texts, in characters. A shorter key cannot be told from a word of an answer, and a longer one
// is a file that was pasted by mistake.
const (
	maxName  = 64
	maxModel = 256
	minKey   = 8
	maxKey   = 4096
)

// A New is an endpoint to keep.
type New struct {
	Name    string
	BaseURL string
	Model   string
	APIKey  *secret.Text // nil keeps the key that there is, or none
}

// check reports the first rule that n breaks, naming the field, and puts the URL into its one spelling.
func (n *New) check(guard *netguard.Guard) error {
	switch {
	case n.Name == "" || utf8.RuneCountInString(n.Name) > maxName || strings.ContainsFunc(n.Name, hidden):
		return fault.Invalid("name", "must be 1 to 64 characters that can be seen")
	case n.Model == "" || utf8.RuneCountInString(n.Model) > maxModel || strings.ContainsFunc(n.Model, hidden):
		return fault.Invalid("model", "must be 1 to 256 characters that can be seen")
	case n.APIKey != nil && (len(n.APIKey.Reveal()) < minKey || len(n.APIKey.Reveal()) > maxKey):
		return fault.Invalid("api_key", "must be a text of 8 to 4096 characters; leave it out if the server needs none")
	case n.APIKey != nil && strings.ContainsFunc(n.APIKey.Reveal(), func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return fault.Invalid("api_key", "must be printable characters without spaces")
	}
	at, err := guard.Parse(n.BaseURL)
	if err != nil {
		return fault.Invalid("base_url", err.Error())
	}
	n.BaseURL = at.String()
	return nil
}

func hidden(r rune) bool { return !unicode.IsGraphic(r) }

// sealedFor is the associated data that a key is sealed with: it opens for this workspace, endpoint and URL alone.
func sealedFor(ws tenant.ID, id, baseURL string) string {
	return "key of " + string(ws) + " for the eval endpoint " + id + " at " + baseURL
}
