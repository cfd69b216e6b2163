// Package providerkey stores the workspaces' own provider keys. No operation returns a key: it is sealed for its
// workspace, its provider and the URL that it is sent to, and only the data plane uses it.
package providerkey

import (
	"strings"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/net/netguard"
)

// A ProviderKey is what callers see of a key.
type ProviderKey struct {
	Object    string     `json:"object" enum:"provider_key"`
	Provider  string     `json:"provider"`
	BaseURL   string     `json:"base_url,omitempty" db:"base_url" doc:"Where it is sent, if not to the provider's own URL"`
	CreatedAt clock.Time `json:"created_at"`
	UpdatedAt clock.Time `json:"updated_at" doc:"When it was last rotated"`
}

// object is what a key is called on the wire and in the audit trail.
const object = "provider_key"

// maxKey bounds a key: more is a file that was pasted by mistake.
const maxKey = 4096

// A New is a key to keep. It is whole: a key for another URL is another key, so that a secret is never sent where it
// was not meant to go.
type New struct {
	Provider string
	APIKey   secret.Text
	BaseURL  string
}

// check reports the first rule that n breaks, naming the field, and puts the URL into its one spelling.
func (n *New) check(c *live.Catalog, guard *netguard.Guard) error {
	p := c.Providers()[n.Provider]
	key := n.APIKey.Reveal()
	switch {
	case p == nil:
		return fault.UnknownProvider.New("no provider %q is known", n.Provider)
	case p.Protocol == live.Sim:
		return fault.Invalid("provider", "is simulated, and has no keys")
	case key == "" || len(key) > maxKey:
		return fault.Invalid("api_key", "must be a text of 1 to 4096 characters")
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return fault.Invalid("api_key", "must be printable characters without spaces")
	case n.BaseURL == "" && p.Keyless():
		return fault.Invalid("base_url", "is required: the provider wants no key at the operator's URL")
	case n.BaseURL == "":
		return nil
	}
	at, err := guard.Parse(n.BaseURL)
	if err != nil {
		return fault.Invalid("base_url", err.Error())
	}
	n.BaseURL = at.String()
	return nil
}

// sealedFor is the associated data that a key is sealed with: it opens for this workspace, provider and URL alone.
func sealedFor(ws tenant.ID, provider, baseURL string) string {
	return "provider key of " + string(ws) + " for " + provider + " at " + baseURL
}
