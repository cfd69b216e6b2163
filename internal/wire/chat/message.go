package chat

import (
	"cmp"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
)

// The roles of messages.
const (
	RoleSystem    = "system"
	RoleDeveloper = "developer"
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleTool      = "tool"
)

// Message is one message of a conversation.
type Message struct {
	Role             string         `json:"role"`
	Content          Content        `json:"content,omitzero"`
	Name             string         `json:"name,omitempty"`
	ToolCalls        []ToolCall     `json:"tool_calls,omitempty"`
	ToolCallID       string         `json:"tool_call_id,omitempty"`
	Refusal          *string        `json:"refusal,omitempty"`
	ReasoningContent *string        `json:"reasoning_content,omitempty"`
	Reasoning        *string        `json:"reasoning,omitempty"` // what some providers call reasoning_content
	ReasoningDetails []Thought      `json:"reasoning_details,omitempty"`
	ExtraContent     *ExtraContent  `json:"extra_content,omitempty"`
	Annotations      jsontext.Value `json:"annotations,omitempty"`
	Audio            jsontext.Value `json:"audio,omitempty"`
	FunctionCall     jsontext.Value `json:"function_call,omitempty"`
}

// Thought is one piece of a model's reasoning in the form in which its provider wants it back: text with a signature,
// or data that only the provider can decode. It is an element of reasoning_details, which other gateways use as well.
type Thought struct {
	Type      string    `json:"type"`         // ThoughtText, ThoughtSummary or ThoughtEncrypted
	ID        string    `json:"id,omitempty"` // set by some providers
	Text      string    `json:"text,omitempty"`
	Summary   string    `json:"summary,omitempty"`
	Signature string    `json:"signature,omitempty"`
	Data      string    `json:"data,omitempty"`
	Format    string    `json:"format,omitempty"` // FormatAnthropic or FormatGoogle; other providers cannot use it
	Model     string    `json:"model,omitempty"`  // its model, if the provider binds thoughts to models
	Position  *Position `json:"place,omitempty"`  // where it stood; nil for the start of the message
	Index     *int      `json:"index,omitempty"`  // in streams: deltas of one index belong to one thought
}

// Position is where in a message a thought stood: after Text bytes of its content and after Calls tool calls.
type Position struct {
	Text  int `json:"text,omitzero"`
	Calls int `json:"calls,omitzero"`
}

// The formats of thoughts.
const (
	FormatAnthropic = "anthropic-claude-v1"
	FormatGoogle    = "google-gemini-v1"
)

// HasFormat reports whether a thought has a format, or does not state one.
func (t Thought) HasFormat(format string) bool { return t.Format == "" || t.Format == format }

// JoinThoughts joins the consecutive deltas of one index that a caller kept as they were streamed.
func JoinThoughts(pieces []Thought) (all []Thought) {
	for _, p := range pieces {
		if n := len(all); n > 0 && p.Index != nil && all[n-1].Index != nil && *p.Index == *all[n-1].Index &&
			p.Type == all[n-1].Type {
			last := &all[n-1]
			last.Append(p)
			continue
		}
		all = append(all, p)
	}
	return all
}

// Append adds a delta. The id, format, model and position are taken from the first delta that states them.
func (t *Thought) Append(p Thought) {
	t.Text, t.Summary, t.Signature, t.Data = t.Text+p.Text, t.Summary+p.Summary, t.Signature+p.Signature, t.Data+p.Data
	t.ID, t.Format, t.Model = cmp.Or(t.ID, p.ID), cmp.Or(t.Format, p.Format), cmp.Or(t.Model, p.Model)
	t.Position = cmp.Or(t.Position, p.Position)
}

// The types of thoughts.
const (
	ThoughtText      = "reasoning.text"
	ThoughtSummary   = "reasoning.summary"
	ThoughtEncrypted = "reasoning.encrypted"
)

// ExtraContent holds what OpenAI's wire format has no field for, as Google's OpenAI-compatible endpoint does.
type ExtraContent struct {
	Google *struct {
		ThoughtSignature string `json:"thought_signature,omitempty"`
	} `json:"google,omitempty"`
}

// SignatureContent returns the extra content with a Google thought signature; nil for an empty signature.
func SignatureContent(signature string) *ExtraContent {
	if signature == "" {
		return nil
	}
	e := &ExtraContent{}
	e.Google = &struct {
		ThoughtSignature string `json:"thought_signature,omitempty"`
	}{signature}
	return e
}

// Signature returns the thought signature; empty when there is none.
func (e *ExtraContent) Signature() string {
	if e == nil || e.Google == nil {
		return ""
	}
	return e.Google.ThoughtSignature
}

// Content is a string or an array of parts. Plain is set when it was a string.
type Content struct {
	Plain bool
	Parts []Part
}

// TextContent returns a content that is a string.
func TextContent(text string) Content {
	return Content{Plain: true, Parts: []Part{{Type: PartText, Text: text}}}
}

// IsZero reports whether the content was null or absent.
func (c Content) IsZero() bool { return !c.Plain && c.Parts == nil }

// Text joins the text parts. ok is false when there is a part of another type.
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

// UnmarshalJSONFrom reads a string, an array of parts, or null.
func (c *Content) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	*c = Content{}
	switch d.PeekKind() {
	case '"':
		var text string
		err := json.UnmarshalDecode(d, &text)
		*c = TextContent(text)
		return err
	case 'n':
		return d.SkipValue()
	default:
		c.Parts = []Part{}
		return json.UnmarshalDecode(d, &c.Parts)
	}
}

// MarshalJSONTo writes a string, an array of parts, or null.
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

// Part is one part of a message's content.
type Part struct {
	Type         string        `json:"type"`
	Text         string        `json:"text,omitempty"`
	ImageURL     *ImageURL     `json:"image_url,omitempty"`
	InputAudio   *InputAudio   `json:"input_audio,omitempty"`
	File         *File         `json:"file,omitempty"`
	Refusal      string        `json:"refusal,omitempty"`
	CacheControl *CacheControl `json:"cache_control,omitempty"` // Anthropic's: cache the prompt up to here
}

// CheckType refuses a part that has a member of another type than its own.
func (p *Part) CheckType(at string) error {
	for _, member := range []struct {
		name string
		set  bool
	}{
		{PartText, p.Text != ""},
		{PartImage, p.ImageURL != nil},
		{PartAudio, p.InputAudio != nil},
		{PartFile, p.File != nil},
		{PartRefusal, p.Refusal != ""},
	} {
		if member.set && member.name != p.Type {
			return fault.Invalid(at+"."+member.name, "does not belong to the part's type")
		}
	}
	return nil
}

// ImageURL is an image: an address or a data URL.
type ImageURL struct {
	URL    string `json:"url"`
	Detail string `json:"detail,omitempty"`
}

// InputAudio is an audio clip in base64.
type InputAudio struct {
	Data   string `json:"data"`
	Format string `json:"format"` // wav, mp3
}

// File is a document: the id of an uploaded file, or a data URL.
type File struct {
	FileID   string `json:"file_id,omitempty"`
	Filename string `json:"filename,omitempty"`
	FileData string `json:"file_data,omitempty"`
}

// CacheControl marks the end of a prompt prefix that the provider should cache.
type CacheControl struct {
	Type string `json:"type"`
	TTL  string `json:"ttl,omitempty"`
}

// DataURL splits a base64 data URL into its media type and data.
func DataURL(url string) (mediaType, data string, ok bool) {
	rest, ok := strings.CutPrefix(url, "data:")
	if !ok {
		return "", "", false
	}
	head, data, ok := strings.Cut(rest, ",")
	mediaType, ok2 := strings.CutSuffix(head, ";base64")
	return mediaType, data, ok && ok2
}
