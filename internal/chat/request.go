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

	"sovereign/internal/fault"
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

// The roles of messages.
const (
	System    = "system"
	Developer = "developer"
	User      = "user"
	Assistant = "assistant"
	FromTool  = "tool"
)

// A Message is one turn of a conversation.
type Message struct {
	Role             string         `json:"role"`
	Content          Content        `json:"content,omitzero"`
	Name             string         `json:"name,omitempty"`
	ToolCalls        []ToolCall     `json:"tool_calls,omitempty"`
	ToolCallID       string         `json:"tool_call_id,omitempty"`
	Refusal          *string        `json:"refusal,omitempty"`
	ReasoningContent *string        `json:"reasoning_content,omitempty"`
	ReasoningDetails []Thought      `json:"reasoning_details,omitempty"`
	ExtraContent     *Extra         `json:"extra_content,omitempty"`
	Annotations      jsontext.Value `json:"annotations,omitempty"`
	Audio            jsontext.Value `json:"audio,omitempty"`
	FunctionCall     jsontext.Value `json:"function_call,omitempty"`
}

// A Thought is a piece of a model's reasoning as its provider wants it back: a text, with the signature that vouches for
// it, or data that only the provider can read.
type Thought struct {
	Type      string `json:"type"` // ThoughtText or ThoughtSealed
	Text      string `json:"text,omitempty"`
	Signature string `json:"signature,omitempty"`
	Data      string `json:"data,omitempty"`
	Format    string `json:"format,omitempty"` // whose it is: another provider can do nothing with its signature or data
	Index     *int   `json:"index,omitempty"`  // in streams: pieces of one index are one thought
}

// The formats of thoughts.
const (
	OfAnthropic = "anthropic-claude-v1"
	OfGoogle    = "google-gemini-v1"
)

// Of reports whether a thought is of a format, or does not say whose it is.
func (t Thought) Of(format string) bool { return t.Format == "" || t.Format == format }

// Whole puts the pieces together that a caller kept as they were streamed: those of one index are one thought.
func Whole(pieces []Thought) (all []Thought) {
	for _, p := range pieces {
		if n := len(all); n > 0 && p.Index != nil && all[n-1].Index != nil && *p.Index == *all[n-1].Index && p.Type == all[n-1].Type {
			last := &all[n-1]
			last.Text, last.Signature, last.Data = last.Text+p.Text, last.Signature+p.Signature, last.Data+p.Data
			continue
		}
		all = append(all, p)
	}
	return all
}

// The types of thoughts.
const (
	ThoughtText   = "reasoning.text"
	ThoughtSealed = "reasoning.encrypted"
)

// Extra is what a provider's wire has and OpenAI's has not, in the shape that Google's own OpenAI endpoint uses.
type Extra struct {
	Google *struct {
		ThoughtSignature string `json:"thought_signature,omitempty"`
	} `json:"google,omitempty"`
}

// Signed is a Google thought signature; empty is none.
func Signed(signature string) *Extra {
	if signature == "" {
		return nil
	}
	e := &Extra{}
	e.Google = &struct {
		ThoughtSignature string `json:"thought_signature,omitempty"`
	}{signature}
	return e
}

// Signature is the thought signature, if there is one.
func (e *Extra) Signature() string {
	if e == nil || e.Google == nil {
		return ""
	}
	return e.Google.ThoughtSignature
}

// Content is a text or a list of parts. Plain says that it was written as a text.
type Content struct {
	Plain bool
	Parts []Part
}

// Say is content of one text.
func Say(text string) Content {
	return Content{Plain: true, Parts: []Part{{Type: PartText, Text: text}}}
}

// IsZero reports whether there is none: it was null, or left out.
func (c Content) IsZero() bool { return !c.Plain && c.Parts == nil }

// Text is the content's texts, joined; ok is false when it has parts that are none.
func (c Content) Text() (text string, ok bool) {
	var b strings.Builder
	for _, p := range c.Parts {
		if p.Type != PartText {
			return "", false
		}
		b.WriteString(p.Text)
	}
	return b.String(), true
}

// UnmarshalJSONFrom reads a text, parts, or null.
func (c *Content) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	*c = Content{}
	switch d.PeekKind() {
	case '"':
		var text string
		err := json.UnmarshalDecode(d, &text)
		*c = Say(text)
		return err
	case 'n':
		return d.SkipValue()
	default:
		c.Parts = []Part{}
		return json.UnmarshalDecode(d, &c.Parts)
	}
}

// MarshalJSONTo writes a text, parts, or null.
func (c Content) MarshalJSONTo(e *jsontext.Encoder) error {
	switch {
	case c.IsZero():
		return e.WriteToken(jsontext.Null)
	case c.Plain && len(c.Parts) == 1:
		return e.WriteToken(jsontext.String(c.Parts[0].Text))
	default:
		return json.MarshalEncode(e, c.Parts)
	}
}

// The types of parts.
const (
	PartText    = "text"
	PartImage   = "image_url"
	PartAudio   = "input_audio"
	PartFile    = "file"
	PartRefusal = "refusal"
)

// A Part is a piece of a message's content.
type Part struct {
	Type         string        `json:"type"`
	Text         string        `json:"text,omitempty"`
	ImageURL     *ImageURL     `json:"image_url,omitempty"`
	InputAudio   *InputAudio   `json:"input_audio,omitempty"`
	File         *File         `json:"file,omitempty"`
	Refusal      string        `json:"refusal,omitempty"`
	CacheControl *CacheControl `json:"cache_control,omitempty"` // Anthropic's mark: remember the prompt up to here
}

// An ImageURL is a picture: somewhere, or here as a data URL.
type ImageURL struct {
	URL    string `json:"url"`
	Detail string `json:"detail,omitempty"`
}

// InputAudio is a sound, in base64.
type InputAudio struct {
	Data   string `json:"data"`
	Format string `json:"format"` // wav, mp3
}

// A File is a document: one that was uploaded, or here as a data URL.
type File struct {
	FileID   string `json:"file_id,omitempty"`
	Filename string `json:"filename,omitempty"`
	FileData string `json:"file_data,omitempty"`
}

// CacheControl marks the end of a prefix that a provider shall remember.
type CacheControl struct {
	Type string `json:"type"`
	TTL  string `json:"ttl,omitempty"`
}

// DataURL takes a data URL in base64 apart.
func DataURL(url string) (mediaType, data string, ok bool) {
	rest, ok := strings.CutPrefix(url, "data:")
	if !ok {
		return "", "", false
	}
	head, data, ok := strings.Cut(rest, ",")
	mediaType, ok2 := strings.CutSuffix(head, ";base64")
	return mediaType, data, ok && ok2
}

// A Tool is what a model may call.
type Tool struct {
	Type         string         `json:"type"`
	Function     Function       `json:"function,omitzero"`
	Custom       jsontext.Value `json:"custom,omitempty"`
	CacheControl *CacheControl  `json:"cache_control,omitempty"`
}

// A Function is a tool that takes arguments by a schema.
type Function struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitempty"`
	Parameters  jsontext.Value `json:"parameters,omitempty"`
	Strict      *bool          `json:"strict,omitempty"`
}

// A ToolCall is a model's call of a function. Index is there in streams only.
type ToolCall struct {
	Index        *int           `json:"index,omitempty"`
	ID           string         `json:"id,omitempty"`
	Type         string         `json:"type,omitempty"`
	Function     Called         `json:"function"`
	Custom       jsontext.Value `json:"custom,omitempty"`
	ExtraContent *Extra         `json:"extra_content,omitempty"`
}

// Called is a function's name and its arguments, as JSON in a text.
type Called struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// A ToolChoice says whether a model calls tools: none, auto, required, or the function of that name.
type ToolChoice struct {
	Mode string // none, auto, required; or function, allowed_tools, custom where an object says so
	Name string // of the function
	raw  jsontext.Value
}

// UnmarshalJSONFrom reads a word or an object.
func (c *ToolChoice) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() == '"' {
		return json.UnmarshalDecode(d, &c.Mode)
	}
	raw, err := d.ReadValue()
	if err != nil {
		return err
	}
	c.raw = raw.Clone()
	var object struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
		AllowedTools jsontext.Value `json:"allowed_tools"`
		Custom       jsontext.Value `json:"custom"`
	}
	if err := json.Unmarshal(raw, &object, json.RejectUnknownMembers(true)); err != nil {
		return err
	}
	c.Mode, c.Name = object.Type, object.Function.Name
	return nil
}

// MarshalJSONTo writes what was read.
func (c ToolChoice) MarshalJSONTo(e *jsontext.Encoder) error {
	if c.raw != nil {
		return e.WriteValue(c.raw)
	}
	if c.Name != "" {
		return json.MarshalEncode(e, map[string]any{"type": "function", "function": map[string]string{"name": c.Name}}, json.Deterministic(true))
	}
	return e.WriteToken(jsontext.String(c.Mode))
}

// A Format is the form that an answer shall have: text, json_object, json_schema.
type Format struct {
	Type       string      `json:"type"`
	JSONSchema *JSONSchema `json:"json_schema,omitempty"`
}

// A JSONSchema is a named schema of an answer.
type JSONSchema struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitempty"`
	Schema      jsontext.Value `json:"schema,omitempty"`
	Strict      *bool          `json:"strict,omitempty"`
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
	switch {
	case errors.As(err, &semantic) && errors.Is(err, json.ErrUnknownName):
		return Unsupported(place(semantic.JSONPointer), "is not known to the model's provider")
	case errors.As(err, &semantic):
		return fault.Invalid(place(semantic.JSONPointer), "is not what it should be")
	default:
		return fault.InvalidBody.New("the body cannot be read: %s", err)
	}
}

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
	"functions": {"[]"}, "tools": {"[]"}, "parallel_tool_calls": {"true"}, "response_format": {`{"type":"text"}`}, "metadata": {"{}"},
	"verbosity": {`"medium"`}, "user": {`""`}, "reasoning_effort": {`""`}, "stop": {"[]"},
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
		if expressible[member] || value.Kind() == 'n' || asksNothing(member, value) {
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
