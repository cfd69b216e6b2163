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

// expressible are the parameters that have an equivalent, or that ask nothing of the provider.
var expressible = map[string]bool{
	"model": true, "models": true, "messages": true, "stream": true, "stream_options": true, "max_tokens": true,
	"max_completion_tokens": true, "temperature": true, "top_p": true, "top_k": true, "stop": true, "tools": true,
	"tool_choice": true, "parallel_tool_calls": true, "response_format": true, "reasoning_effort": true, "user": true,
	"safety_identifier": true, "service_tier": true, "prompt_cache_key": true, "prompt_cache_retention": true, "metadata": true,
}

// A question is the body of POST /messages.
type question struct {
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
	ToolChoice    *choice           `json:"tool_choice,omitzero"`
	Thinking      *thinking         `json:"thinking,omitzero"`
	OutputConfig  output            `json:"output_config,omitzero"`
	Metadata      metadata          `json:"metadata,omitzero"`
	ServiceTier   string            `json:"service_tier,omitempty"`
	called        map[string]string // the functions that were called, by the ids of the calls
}

// output is how an answer shall be.
type output struct {
	Effort string  `json:"effort,omitempty"`
	Format *format `json:"format,omitzero"`
}

// A format is the schema of an answer.
type format struct {
	Type   string         `json:"type"` // json_schema
	Schema jsontext.Value `json:"schema"`
}

type metadata struct {
	UserID string `json:"user_id,omitempty"`
}

// ask makes the question. Every step refuses what it cannot say.
func ask(r *chat.Request, m *live.Model) (*question, error) {
	q := &question{Model: m.Upstream, StopSequences: r.Stop}
	for _, step := range []func(*chat.Request, *live.Model) error{
		q.converse, q.limit, q.sample, q.offer, q.form, q.sign, q.reason,
	} {
		if err := step(r, m); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// limit bounds the answer, which Anthropic insists on.
func (q *question) limit(r *chat.Request, m *live.Model) error {
	q.MaxTokens = m.MaxOutput
	field := "max_tokens"
	if most := r.Limit(); most != nil {
		q.MaxTokens = *most
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

// sample says how random the answer shall be. A temperature or a top_p of 1 asks for what happens anyway; what OpenAI has
// above 1 Anthropic has not.
func (q *question) sample(r *chat.Request, m *live.Model) error {
	q.Temperature, q.TopP, q.TopK = unlessOne(r.Temperature), unlessOne(r.TopP), r.TopK
	is := traitsOf(m)
	switch t := q.Temperature; {
	case t != nil && *t < 0:
		return fault.Invalid("temperature", "must not be below 0")
	case t != nil && *t > 1:
		return chat.Unsupported("temperature", "cannot be over 1 in the "+wire)
	case is.has(fixed):
		return q.unsampled()
	case is.has(either) && t != nil && q.TopP != nil:
		return chat.Unsupported("top_p", "cannot be said beside a temperature with this model")
	}
	return nil
}

// unsampled refuses every wish of how to sample.
func (q *question) unsampled() error {
	for _, wish := range []struct {
		field string
		is    bool
	}{{"temperature", q.Temperature != nil}, {"top_p", q.TopP != nil}, {"top_k", q.TopK != nil}} {
		if wish.is {
			return chat.Unsupported(wish.field, "cannot be chosen with this model")
		}
	}
	return nil
}

func unlessOne(v *float64) *float64 {
	if v != nil && *v == 1 {
		return nil
	}
	return v
}

// form says the form of the answer.
func (q *question) form(r *chat.Request, _ *live.Model) error {
	f := r.ResponseFormat
	switch {
	case f == nil:
		return nil
	case f.Type != "json_schema" && f.JSONSchema != nil:
		return fault.Invalid("response_format.json_schema", "does not belong to the type "+f.Type)
	case f.Type == "text":
		return nil
	case f.Type == "json_object":
		return chat.Unsupported("response_format", "of type json_object has no equivalent in the "+wire+"; json_schema has")
	case f.Type != "json_schema":
		return fault.Invalid("response_format.type", "must be text or json_schema")
	case f.JSONSchema == nil || f.JSONSchema.Schema.Kind() != '{':
		return fault.Invalid("response_format.json_schema.schema", "must be a schema")
	}
	schema, err := f.JSONSchema.Described()
	q.OutputConfig.Format = &format{Type: "json_schema", Schema: schema}
	return err
}

// pseudonym is a user who can be told from others, and not be known: Anthropic refuses addresses and the like.
func pseudonym(user string) string {
	if user == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(user))
	return hex.EncodeToString(sum[:16])
}

// tiers are OpenAI's, as far as they cost the same: what the account has, or the standard one.
var tiers = map[string]string{"": "", "auto": "auto", "default": "standard_only"}

// sign says for whom and how the request shall run, and refuses what a stream cannot do.
func (q *question) sign(r *chat.Request, _ *live.Model) error {
	if r.User != "" && r.SafetyIdentifier != "" && r.User != r.SafetyIdentifier {
		return chat.Unsupported("safety_identifier", "cannot be said beside another user in the "+wire)
	}
	q.Metadata.UserID = pseudonym(cmp.Or(r.User, r.SafetyIdentifier))
	tier, ok := tiers[r.ServiceTier]
	if !ok {
		return chat.Unsupported("service_tier", "must be auto or default for the "+wire)
	}
	q.ServiceTier = tier
	if o := r.StreamOptions; o != nil && o.IncludeObfuscation != nil && *o.IncludeObfuscation {
		return chat.Unsupported("stream_options.include_obfuscation", "has no equivalent in the "+wire)
	}
	return nil
}
