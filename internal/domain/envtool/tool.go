// Package envtool calls the tools of a customer's environment for a model that is being trained: HTTPS endpoints,
// called through the guarded dialer, each call signed with the tool's secret.
package envtool

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/net/netguard"
)

// A Tool is what callers see of a tool.
type Tool struct {
	ID          string         `json:"id"`
	Object      string         `json:"object" db:"-" enum:"environment_tool"`
	Name        string         `json:"name"`
	Description string         `json:"description"`
	EndpointURL string         `json:"endpoint_url" db:"endpoint_url"`
	Text        string         `json:"-" db:"parameters"`
	Parameters  jsontext.Value `json:"parameters" db:"-" doc:"The JSON schema of the arguments"`
	TimeoutMS   int64          `json:"timeout_ms" db:"timeout_ms"`
	CreatedAt   clock.Time     `json:"created_at"`
	UpdatedAt   clock.Time     `json:"updated_at"`
	Secret      *string        `json:"secret,omitempty" db:"-" doc:"Shown once, when the server made it"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Tool) SchemaName() string { return "EnvironmentTool" }

// object is what a tool is called on the wire and in the audit trail.
const object = "environment_tool"

// A Request is a tool to be kept.
type Request struct {
	Name        string         `json:"name" doc:"What the model calls it: letters, digits, underscores and dashes"`
	Description string         `json:"description" doc:"What the model is told of it"`
	EndpointURL string         `json:"endpointUrl" doc:"A public https URL"`
	Parameters  jsontext.Value `json:"parameters,omitempty" doc:"The JSON schema of the arguments: an object; without one it takes none"`
	TimeoutMS   int64          `json:"timeoutMs,omitempty" default:"10000" minimum:"100" maximum:"30000"`
	Secret      *secret.Text   `json:"secret,omitempty" doc:"Signs the calls; without one the server makes it and shows it once"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Request) SchemaName() string { return "EnvironmentToolRequest" }

// Bounds of a tool.
const (
	maxDescription = 1000
	maxParameters  = 16 << 10
	minSecret      = 16
	maxSecret      = 256
	defaultTimeout = 10_000
)

var toolName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

// check reports the first rule that a request breaks, naming the field, and puts the URL into its one spelling.
func (r *Request) check(guard *netguard.Guard) error {
	if r.TimeoutMS == 0 {
		r.TimeoutMS = defaultTimeout
	}
	if len(r.Parameters) == 0 {
		r.Parameters = jsontext.Value(`{"type":"object","properties":{}}`)
	}
	var schema struct {
		Type string `json:"type"`
	}
	switch {
	case !toolName.MatchString(r.Name):
		return fault.Invalid(
			"name", "must be 1 to 64 letters, digits, underscores and dashes, and not begin with a digit",
		)
	case r.Description == "" || utf8.RuneCountInString(r.Description) > maxDescription:
		return fault.Invalid("description", "must be 1 to 1000 characters: the model decides by it")
	case len(r.Parameters) > maxParameters || json.Unmarshal(r.Parameters, &schema) != nil || schema.Type != "object":
		return fault.Invalid("parameters", "must be a JSON schema of the type object, of at most 16 KiB")
	case r.TimeoutMS < 100 || r.TimeoutMS > 30_000:
		return fault.Invalid("timeoutMs", "must be 100 to 30000")
	case r.Secret != nil && (len(r.Secret.Reveal()) < minSecret || len(r.Secret.Reveal()) > maxSecret):
		return fault.Invalid("secret", "must be 16 to 256 characters")
	case !strings.HasPrefix(r.EndpointURL, "https://"):
		return fault.Invalid("endpointUrl", "must begin with https://")
	}
	at, err := guard.Parse(r.EndpointURL)
	if err != nil {
		return fault.Invalid("endpointUrl", err.Error())
	}
	r.EndpointURL = at.String()
	return nil
}

// sealedFor is the associated data that a secret is sealed with: it opens for this workspace, tool and URL alone.
func sealedFor(ws tenant.ID, id, url string) string {
	return fmt.Sprintf("secret of %s for the environment tool %s at %s", ws, id, url)
}

// A Call is one use of a tool.
type Call struct {
	Tool      string         `json:"tool"`
	Arguments jsontext.Value `json:"arguments"`
	RunID     string         `json:"run_id"`
	RolloutID string         `json:"rollout_id"`
	Step      int64          `json:"step"`
}

// A Result is what a tool answered. Error says why there is no answer; the model is shown it like one.
type Result struct {
	Content   string   `json:"content"`
	Done      bool     `json:"done" doc:"The episode is over"`
	Reward    *float64 `json:"reward" doc:"Of the environment; null where it gives none"`
	Error     string   `json:"error,omitempty"`
	Status    int      `json:"status" doc:"HTTP status; 0 where there was no answer"`
	LatencyMS int64    `json:"latency_ms"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Result) SchemaName() string { return "EnvironmentToolResult" }
