// Package chat has the types of OpenAI's chat completions: the request, the answer and the chunks of a stream. Requests
// to providers that speak this wire format are passed on as bytes and never decoded here. Requests for other APIs are
// decoded strictly, so that no parameter of a caller is dropped silently.
package chat

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
)

// Request is the body of POST /chat/completions. It has a field for every parameter of OpenAI's, so that a dialect can
// refuse the ones that it cannot express by name.
type Request struct {
	Model               string         `json:"model"`
	Messages            []Message      `json:"messages"`
	Models              jsontext.Value `json:"models,omitempty"` // not OpenAI's: the fallback models of this gateway
	Stream              bool           `json:"stream,omitzero"`
	StreamOptions       *StreamOptions `json:"stream_options,omitempty"`
	MaxTokens           *int64         `json:"max_tokens,omitempty"`
	MaxCompletionTokens *int64         `json:"max_completion_tokens,omitempty"`
	Temperature         *float64       `json:"temperature,omitempty"`
	TopP                *float64       `json:"top_p,omitempty"`
	TopK                *int64         `json:"top_k,omitempty"` // not OpenAI's, but widely supported
	Stop                Texts          `json:"stop,omitempty"`
	N                   *int64         `json:"n,omitempty"`
	Seed                *int64         `json:"seed,omitempty"`
	PresencePenalty     *float64       `json:"presence_penalty,omitempty"`
	FrequencyPenalty    *float64       `json:"frequency_penalty,omitempty"`
	Logprobs            *bool          `json:"logprobs,omitempty"`
	TopLogprobs         *int64         `json:"top_logprobs,omitempty"`
	LogitBias           jsontext.Value `json:"logit_bias,omitempty"`
	Tools               []Tool         `json:"tools,omitempty"`
	ToolChoice          *ToolChoice    `json:"tool_choice,omitempty"`
	ParallelToolCalls   *bool          `json:"parallel_tool_calls,omitempty"`
	Functions           jsontext.Value `json:"functions,omitempty"`
	FunctionCall        jsontext.Value `json:"function_call,omitempty"`
	ResponseFormat      *Format        `json:"response_format,omitempty"`
	ReasoningEffort     string         `json:"reasoning_effort,omitempty"`
	Verbosity           string         `json:"verbosity,omitempty"`
	Modalities          []string       `json:"modalities,omitempty"`
	Audio               jsontext.Value `json:"audio,omitempty"`
	Prediction          jsontext.Value `json:"prediction,omitempty"`
	WebSearchOptions    jsontext.Value `json:"web_search_options,omitempty"`
	User                string         `json:"user,omitempty"`
	SafetyIdentifier    string         `json:"safety_identifier,omitempty"`
	PromptCacheKey      string         `json:"prompt_cache_key,omitempty"`
	PromptCacheTTL      jsontext.Value `json:"prompt_cache_retention,omitempty"`
	Metadata            jsontext.Value `json:"metadata,omitempty"`
	ServiceTier         string         `json:"service_tier,omitempty"`
	Store               *bool          `json:"store,omitempty"`
}

// Limit returns the maximum of output tokens; nil when the caller set none.
func (r *Request) Limit() *int64 {
	if r.MaxCompletionTokens != nil {
		return r.MaxCompletionTokens
	}
	return r.MaxTokens
}

// WantsUsage reports whether the caller asked for the usage at the end of a stream.
func (r *Request) WantsUsage() bool { return r.StreamOptions != nil && r.StreamOptions.IncludeUsage }

// StreamOptions says what a stream carries beside its content.
type StreamOptions struct {
	IncludeUsage       bool  `json:"include_usage,omitzero"`
	IncludeObfuscation *bool `json:"include_obfuscation,omitempty"`
}

// Texts is a string or an array of strings.
type Texts []string

// UnmarshalJSONFrom reads a string or an array.
func (t *Texts) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() == '"' {
		var one string
		err := json.UnmarshalDecode(d, &one)
		*t = Texts{one}
		return err
	}
	return json.UnmarshalDecode(d, (*[]string)(t))
}

// Decode reads a request for an API that is not OpenAI's. An unknown member is refused by name.
func Decode(body []byte) (*Request, error) {
	r := &Request{}
	if err := json.Unmarshal(body, r, json.RejectUnknownMembers(true)); err != nil {
		return nil, DecodeFault(err)
	}
	return r, nil
}

// DecodeFault turns an error of decoding into a fault that names the member.
func DecodeFault(err error) error {
	var semantic *json.SemanticError
	var rule ValueError
	switch {
	case errors.As(err, &semantic) && errors.Is(err, json.ErrUnknownName):
		return Unsupported(fieldPath(semantic.JSONPointer), "is not known to the model's provider")
	case errors.As(err, &semantic) && errors.As(err, &rule):
		return fault.Invalid(fieldPath(semantic.JSONPointer), string(rule))
	case errors.As(err, &semantic):
		return fault.Invalid(fieldPath(semantic.JSONPointer), "is not what it should be")
	default:
		return fault.InvalidBody.New("the body cannot be read: %s", err)
	}
}

// ValueError is the error of an UnmarshalJSONFrom for an invalid value: "must be …". DecodeFault uses it as message.
type ValueError string

func (r ValueError) Error() string { return string(r) }

// fieldPath formats a JSON pointer as messages[0].content.
func fieldPath(p jsontext.Pointer) string {
	var b strings.Builder
	for token := range p.Tokens() {
		if _, err := strconv.Atoi(token); err == nil {
			fmt.Fprintf(&b, "[%s]", token)
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(token)
	}
	if b.Len() == 0 {
		return "the body"
	}
	return b.String()
}

// Unsupported refuses a parameter that an API cannot express: Unsupported("logit_bias", "has no equivalent at
// Anthropic").
func Unsupported(field, reason string) *fault.Fault {
	f := fault.UnsupportedParameter.New("%s %s", field, reason)
	f.Field = field
	return f
}

// neutralValues are values that equal the default. They need no equivalent in another API.
var neutralValues = map[string][]string{
	"n": {"1"}, "logprobs": {"false"}, "store": {"false"}, "presence_penalty": {"0", "0.0"},
	"frequency_penalty": {"0", "0.0"},
	"service_tier":      {`"auto"`, `"default"`}, "modalities": {`["text"]`}, "top_logprobs": {"0"},
	"logit_bias": {"{}"}, "functions": {"[]"}, "tools": {"[]"}, "parallel_tool_calls": {"true"},
	"response_format": {`{"type":"text"}`}, "verbosity": {`"medium"`}, "reasoning_effort": {`""`}, "stop": {"[]"},
}

// hints are parameters that cannot change an answer. They are meant for the operator of the API and are dropped when an
// API has no field for them.
var hints = map[string]bool{
	"user": true, "safety_identifier": true, "prompt_cache_key": true, "prompt_cache_retention": true, "metadata": true,
}

// CheckParameters refuses the first parameter of a body that is not in expressible. Hints, null and neutral values are
// accepted.
func CheckParameters(body []byte, expressible map[string]bool, wire string) error {
	d := jsontext.NewDecoder(strings.NewReader(string(body)))
	if _, err := d.ReadToken(); err != nil {
		return fault.InvalidBody.New("the body cannot be read: %s", err)
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return fault.InvalidBody.New("the body cannot be read: %s", err)
		}
		member := name.String()
		value, err := d.ReadValue()
		if err != nil {
			return fault.InvalidBody.New("the body cannot be read: %s", err)
		}
		if expressible[member] || hints[member] || value.Kind() == 'n' || isNeutral(member, value) {
			continue
		}
		return Unsupported(member, "cannot be expressed in the "+wire)
	}
	return nil
}

func isNeutral(member string, value jsontext.Value) bool {
	compact := value.Clone()
	if compact.Compact() != nil {
		return false
	}
	for _, v := range neutralValues[member] {
		if v == string(compact) {
			return true
		}
	}
	return false
}
