package anthropic

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/live"
	"sovereign/internal/wire/chat"
)

// expressible are the parameters that have an equivalent or need none.
var expressible = map[string]bool{
	"model": true, "models": true, "messages": true, "stream": true, "stream_options": true, "max_tokens": true,
	"max_completion_tokens": true, "temperature": true, "top_p": true, "top_k": true, "stop": true, "tools": true,
	"tool_choice": true, "parallel_tool_calls": true, "response_format": true, "reasoning_effort": true, "user": true,
	"safety_identifier": true, "service_tier": true, "prompt_cache_key": true, "prompt_cache_retention": true,
	"metadata": true,
}

// messagesRequest is the body of POST /messages.
type messagesRequest struct {
	Model         string            `json:"model"`
	MaxTokens     int64             `json:"max_tokens"`
	System        []block           `json:"system,omitempty"`
	Messages      []turn            `json:"messages"`
	Stream        bool              `json:"stream,omitzero"`
	Temperature   *float64          `json:"temperature,omitzero"`
	TopP          *float64          `json:"top_p,omitzero"`
	TopK          *int64            `json:"top_k,omitzero"`
	StopSequences []string          `json:"stop_sequences,omitempty"`
	Tools         []tool            `json:"tools,omitempty"`
	ToolChoice    *toolChoice       `json:"tool_choice,omitzero"`
	Thinking      *thinking         `json:"thinking,omitzero"`
	OutputConfig  outputConfig      `json:"output_config,omitzero"`
	Metadata      metadata          `json:"metadata,omitzero"`
	ServiceTier   string            `json:"service_tier,omitempty"`
	callNames     map[string]string // function names of the calls so far, by call id
}

// outputConfig is the effort and the format of an answer.
type outputConfig struct {
	Effort string        `json:"effort,omitempty"`
	Format *outputFormat `json:"format,omitzero"`
}

// outputFormat is the schema of an answer.
type outputFormat struct {
	Type   string         `json:"type"` // json_schema
	Schema jsontext.Value `json:"schema"`
}

type metadata struct {
	UserID string `json:"user_id,omitempty"`
}

// newMessagesRequest translates a request. Each step refuses what it cannot express.
func newMessagesRequest(r *chat.Request, m *live.Model) (*messagesRequest, error) {
	q := &messagesRequest{Model: m.Upstream, StopSequences: r.Stop}
	for _, step := range []func(*chat.Request, *live.Model) error{
		q.setMessages, q.setMaxTokens, q.setSampling, q.setTools, q.setFormat, q.setMetadata, q.setThinking,
	} {
		if err := step(r, m); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// setMaxTokens sets the maximum of output tokens, which Anthropic requires.
func (q *messagesRequest) setMaxTokens(r *chat.Request, m *live.Model) error {
	q.MaxTokens = m.MaxOutput
	field := "max_tokens"
	if limit := r.Limit(); limit != nil {
		q.MaxTokens = *limit
	}
	if r.MaxCompletionTokens != nil {
		field = "max_completion_tokens"
	}
	switch one, other := r.MaxTokens, r.MaxCompletionTokens; {
	case q.MaxTokens < 1:
		return fault.Invalid(field, "must be at least 1")
	case one != nil && other != nil && *one != *other:
		return fault.Invalid("max_tokens", "is another limit than max_completion_tokens")
	}
	return nil
}

// setSampling sets temperature, top_p and top_k. A temperature or top_p of 1 is the default and is left out. Anthropic
// has no temperature above 1.
func (q *messagesRequest) setSampling(r *chat.Request, m *live.Model) error {
	q.Temperature, q.TopP, q.TopK = nilIfOne(r.Temperature), nilIfOne(r.TopP), r.TopK
	modelTraits := traitsOf(m)
	switch t := q.Temperature; {
	case t != nil && *t < 0:
		return fault.Invalid("temperature", "must not be below 0")
	case t != nil && *t > 1:
		return chat.Unsupported("temperature", "cannot be over 1 in the "+apiName)
	case modelTraits.has(fixedSampling):
		return q.refuseSampling()
	case modelTraits.has(temperatureOrTopP) && t != nil && q.TopP != nil:
		return chat.Unsupported("top_p", "cannot be said beside a temperature with this model")
	}
	return nil
}

// refuseSampling refuses all sampling parameters, for models that support none.
func (q *messagesRequest) refuseSampling() error {
	for _, parameter := range []struct {
		field string
		set   bool
	}{{"temperature", q.Temperature != nil}, {"top_p", q.TopP != nil}, {"top_k", q.TopK != nil}} {
		if parameter.set {
			return chat.Unsupported(parameter.field, "cannot be chosen with this model")
		}
	}
	return nil
}

func nilIfOne(v *float64) *float64 {
	if v != nil && *v == 1 {
		return nil
	}
	return v
}

// setFormat sets the schema of the answer.
func (q *messagesRequest) setFormat(r *chat.Request, _ *live.Model) error {
	f := r.ResponseFormat
	switch {
	case f == nil:
		return nil
	case f.Type != "json_schema" && f.JSONSchema != nil:
		return fault.Invalid("response_format.json_schema", "does not belong to the type "+f.Type)
	case f.Type == "text":
		return nil
	case f.Type == "json_object":
		return chat.Unsupported("response_format",
			"of type json_object has no equivalent in the "+apiName+"; json_schema has")
	case f.Type != "json_schema":
		return fault.Invalid("response_format.type", "must be text or json_schema")
	case f.JSONSchema == nil || f.JSONSchema.Schema.Kind() != '{':
		return fault.Invalid("response_format.json_schema.schema", "must be a schema")
	}
	schema, err := f.JSONSchema.SchemaWithDescription()
	q.OutputConfig.Format = &outputFormat{Type: "json_schema", Schema: schema}
	return err
}

// pseudonym hashes a user's id: Anthropic refuses e-mail addresses and the like.
func pseudonym(user string) string {
	if user == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(user))
	return hex.EncodeToString(sum[:16])
}

// serviceTiers are OpenAI's tiers that have an equivalent at the same price.
var serviceTiers = map[string]string{"": "", "auto": "auto", "default": "standard_only"}

// setMetadata sets the user and the service tier, and checks the stream options.
func (q *messagesRequest) setMetadata(r *chat.Request, _ *live.Model) error {
	if r.User != "" && r.SafetyIdentifier != "" && r.User != r.SafetyIdentifier {
		return chat.Unsupported("safety_identifier", "cannot be said beside another user in the "+apiName)
	}
	q.Metadata.UserID = pseudonym(cmp.Or(r.User, r.SafetyIdentifier))
	tier, ok := serviceTiers[r.ServiceTier]
	if !ok {
		return chat.Unsupported("service_tier", "must be auto or default for the "+apiName)
	}
	q.ServiceTier = tier
	if o := r.StreamOptions; o != nil && o.IncludeObfuscation != nil && *o.IncludeObfuscation {
		return chat.Unsupported("stream_options.include_obfuscation", "has no equivalent in the "+apiName)
	}
	return nil
}
