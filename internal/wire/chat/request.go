// Package chat is OpenAI's chat completions as types: what a request says, what an answer is, and how it is streamed.
// Requests to providers that speak this wire never come here; those for other wires are read with it, strictly, so that
// nothing a caller asked for can be dropped on the way.
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

// A Request is the body of POST /chat/completions. Every parameter of OpenAI's has its member, so that one that a wire
// cannot express is refused by its name.
type Request struct {
	Model               string         `json:"model"`
	Messages            []Message      `json:"messages"`
	Models              jsontext.Value `json:"models,omitempty"` // ours: the fallbacks
	Stream              bool           `json:"stream,omitzero"`
	StreamOptions       *StreamOptions `json:"stream_options,omitempty"`
	MaxTokens           *int64         `json:"max_tokens,omitempty"`
	MaxCompletionTokens *int64         `json:"max_completion_tokens,omitempty"`
	Temperature         *float64       `json:"temperature,omitempty"`
	TopP                *float64       `json:"top_p,omitempty"`
	TopK                *int64         `json:"top_k,omitempty"` // not OpenAI's own, and widely understood
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

// Limit is the most tokens that the caller wants back; nil when it does not say.
func (r *Request) Limit() *int64 {
	if r.MaxCompletionTokens != nil {
		return r.MaxCompletionTokens
	}
	return r.MaxTokens
}

// WantsUsage reports whether a stream shall tell its usage.
func (r *Request) WantsUsage() bool { return r.StreamOptions != nil && r.StreamOptions.IncludeUsage }

// StreamOptions say what a stream tells beside its content.
type StreamOptions struct {
	IncludeUsage       bool  `json:"include_usage,omitzero"`
	IncludeObfuscation *bool `json:"include_obfuscation,omitempty"`
}

// Texts is one text, or a list of them.
type Texts []string

// UnmarshalJSONFrom reads either.
func (t *Texts) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() == '"' {
		var one string
		err := json.UnmarshalDecode(d, &one)
		*t = Texts{one}
		return err
	}
	return json.UnmarshalDecode(d, (*[]string)(t))
}

// Decode reads a request for a wire that is not OpenAI's. A member that nobody knows is refused by its name, as one that
// cannot be expressed.
func Decode(body []byte) (*Request, error) {
	r := &Request{}
	if err := json.Unmarshal(body, r, json.RejectUnknownMembers(true)); err != nil {
		return nil, Refuse(err)
	}
	return r, nil
}

// Refuse makes a refusal, which names the member, of an error of decoding.
func Refuse(err error) error {
	var semantic *json.SemanticError
	var rule Rule
	switch {
	case errors.As(err, &semantic) && errors.Is(err, json.ErrUnknownName):
		return Unsupported(place(semantic.JSONPointer), "is not known to the model's provider")
	case errors.As(err, &semantic) && errors.As(err, &rule):
		return fault.Invalid(place(semantic.JSONPointer), string(rule))
	case errors.As(err, &semantic):
		return fault.Invalid(place(semantic.JSONPointer), "is not what it should be")
	default:
		return fault.InvalidBody.New("the body cannot be read: %s", err)
	}
}

// A Rule is what a value breaks that cannot be read: "must be …". Refuse says it.
type Rule string

func (r Rule) Error() string { return string(r) }

// place writes a JSON pointer as people do: messages[0].content.
func place(p jsontext.Pointer) string {
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

// Unsupported refuses a parameter that a wire cannot express: Unsupported("logit_bias", "has no equivalent at Anthropic").
func Unsupported(field, reason string) *fault.Fault {
	f := fault.UnsupportedParameter.New("%s %s", field, reason)
	f.Field = field
	return f
}

// neutral values ask for nothing that would not happen anyway: they need no equivalent.
var neutral = map[string][]string{
	"n": {"1"}, "logprobs": {"false"}, "store": {"false"}, "presence_penalty": {"0", "0.0"}, "frequency_penalty": {"0", "0.0"},
	"service_tier": {`"auto"`, `"default"`}, "modalities": {`["text"]`}, "top_logprobs": {"0"}, "logit_bias": {"{}"},
	"functions": {"[]"}, "tools": {"[]"}, "parallel_tool_calls": {"true"}, "response_format": {`{"type":"text"}`},
	"verbosity": {`"medium"`}, "reasoning_effort": {`""`}, "stop": {"[]"},
}

// hints cannot change an answer: they are meant for whoever serves the API, and go no further where a wire has no place
// for them.
var hints = map[string]bool{
	"user": true, "safety_identifier": true, "prompt_cache_key": true, "prompt_cache_retention": true, "metadata": true,
}

// Only refuses the first parameter of a body that is not among those that a wire can express. What is null, or says what
// would happen anyway, asks for nothing.
func Only(body []byte, expressible map[string]bool, wire string) error {
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
		if expressible[member] || hints[member] || value.Kind() == 'n' || asksNothing(member, value) {
			continue
		}
		return Unsupported(member, "cannot be expressed in the "+wire)
	}
	return nil
}

func asksNothing(member string, value jsontext.Value) bool {
	compact := value.Clone()
	if compact.Compact() != nil {
		return false
	}
	for _, v := range neutral[member] {
		if v == string(compact) {
			return true
		}
	}
	return false
}
