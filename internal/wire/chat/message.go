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
	Reasoning        *string        `json:"reasoning,omitempty"` // as some providers call it
	ReasoningDetails []Thought      `json:"reasoning_details,omitempty"`
	ExtraContent     *Extra         `json:"extra_content,omitempty"`
	Annotations      jsontext.Value `json:"annotations,omitempty"`
	Audio            jsontext.Value `json:"audio,omitempty"`
	FunctionCall     jsontext.Value `json:"function_call,omitempty"`
}

// A Thought is a piece of a model's reasoning as its provider wants it back: a text, with the signature that vouches for
// it, or data that only the provider can read.
type Thought struct {
	Type      string `json:"type"`         // ThoughtText or ThoughtSealed
	ID        string `json:"id,omitempty"` // some providers name their thoughts
	Text      string `json:"text,omitempty"`
	Summary   string `json:"summary,omitempty"`
	Signature string `json:"signature,omitempty"`
	Data      string `json:"data,omitempty"`
	Format    string `json:"format,omitempty"` // whose it is: another provider can do nothing with its signature or data
	Model     string `json:"model,omitempty"`  // that thought it, where its provider ties thoughts to models
	Place     *Place `json:"place,omitempty"`  // where it stood, if not before all that was said
	Index     *int   `json:"index,omitempty"`  // in streams: pieces of one index are one thought
}

// A Place is where in a reply a thought stood: after so many bytes of its text, and after so many of its calls.
type Place struct {
	Text  int `json:"text,omitzero"`
	Calls int `json:"calls,omitzero"`
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
			last.Grow(p)
			continue
		}
		all = append(all, p)
	}
	return all
}

// Grow adds a piece. Whose the thought is may be said by any of its pieces.
func (t *Thought) Grow(p Thought) {
	t.Text, t.Summary, t.Signature, t.Data = t.Text+p.Text, t.Summary+p.Summary, t.Signature+p.Signature, t.Data+p.Data
	t.ID, t.Format, t.Model = cmp.Or(t.ID, p.ID), cmp.Or(t.Format, p.Format), cmp.Or(t.Model, p.Model)
	t.Place = cmp.Or(t.Place, p.Place)
}

// The types of thoughts.
const (
	ThoughtText    = "reasoning.text"
	ThoughtSummary = "reasoning.summary"
	ThoughtSealed  = "reasoning.encrypted"
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

// Single refuses a part that holds what its type does not say.
func (p *Part) Single(at string) error {
	for _, member := range []struct {
		name string
		held bool
	}{
		{PartText, p.Text != ""},
		{PartImage, p.ImageURL != nil},
		{PartAudio, p.InputAudio != nil},
		{PartFile, p.File != nil},
		{PartRefusal, p.Refusal != ""},
	} {
		if member.held && member.name != p.Type {
			return fault.Invalid(at+"."+member.name, "does not belong to the part's type")
		}
	}
	return nil
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
