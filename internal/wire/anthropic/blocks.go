package anthropic

import (
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/chat"
)

// A block is a piece of a turn, in questions and in answers.
type block struct {
	Type         string             `json:"type"`
	Text         string             `json:"text,omitempty"`
	Thinking     *string            `json:"thinking,omitzero"` // empty where only its signature was told
	Signature    string             `json:"signature,omitempty"`
	Data         string             `json:"data,omitempty"`
	ID           string             `json:"id,omitempty"`
	Name         string             `json:"name,omitempty"`
	Input        jsontext.Value     `json:"input,omitzero"`
	ToolUseID    string             `json:"tool_use_id,omitempty"`
	Content      []block            `json:"content,omitempty"`
	Source       *source            `json:"source,omitzero"`
	Title        string             `json:"title,omitempty"`
	Citations    jsontext.Value     `json:"citations,omitzero"`
	CacheControl *chat.CacheControl `json:"cache_control,omitzero"`
}

// The types of blocks.
const (
	blockText     = "text"
	blockImage    = "image"
	blockDocument = "document"
	blockThinking = "thinking"
	blockSealed   = "redacted_thinking"
	blockCall     = "tool_use"
	blockResult   = "tool_result"
)

// A source is where a picture or a document is: here, or at an address.
type source struct {
	Type      string `json:"type"` // base64, url, text
	MediaType string `json:"media_type,omitempty"`
	Data      string `json:"data,omitempty"`
	URL       string `json:"url,omitempty"`
}

// may are the parts that a message of a role may have.
var may = map[string]map[string]func(*chat.Part, string) (block, error){
	chat.System:    {chat.PartText: text},
	chat.Developer: {chat.PartText: text},
	chat.User:      {chat.PartText: text, chat.PartImage: image, chat.PartFile: document},
	chat.Assistant: {chat.PartText: text, chat.PartRefusal: text},
	chat.FromTool:  {chat.PartText: text, chat.PartImage: image, chat.PartFile: document},
}

// content is what the parts of a message say. A blank text says nothing; in an assistant's it may lie between thoughts.
func content(m *chat.Message, at string) ([]block, error) {
	var all []block
	for i := range m.Content.Parts {
		p, at := &m.Content.Parts[i], fmt.Sprintf("%s.content[%d]", at, i)
		if err := p.Single(at); err != nil {
			return nil, err
		}
		turned, ok := may[m.Role][p.Type]
		if !ok {
			return nil, chat.Unsupported(at+".type", p.Type+" has no equivalent in the "+wire+" for the role "+m.Role)
		}
		b, err := turned(p, at)
		if err != nil {
			return nil, err
		}
		if b.CacheControl, err = mark(p.CacheControl, at); err != nil {
			return nil, err
		}
		switch {
		case b.Type == blockText && blank(b.Text) && b.CacheControl != nil:
			return nil, chat.Unsupported(at+".cache_control", "cannot mark a text that says nothing")
		case b.Type != blockText || !blank(b.Text) || m.Role == chat.Assistant:
			all = append(all, b)
		}
	}
	return all, nil
}

func text(p *chat.Part, _ string) (block, error) {
	return block{Type: blockText, Text: p.Text + p.Refusal}, nil // it has one of them
}

// pictures are the kinds that Anthropic looks at, by what they are called.
var pictures = map[string]string{
	"image/jpeg": "image/jpeg", "image/jpg": "image/jpeg", "image/png": "image/png", "image/gif": "image/gif", "image/webp": "image/webp",
}

func image(p *chat.Part, at string) (block, error) {
	at += ".image_url"
	if p.ImageURL == nil {
		return block{}, fault.Invalid(at, "is missing")
	}
	if d := p.ImageURL.Detail; d != "" && d != "auto" && d != "high" {
		return block{}, chat.Unsupported(at+".detail", "can only be high in the "+wire)
	}
	url := p.ImageURL.URL
	if kind, data, ok := chat.DataURL(url); ok {
		kind, _ = media(kind)
		known, ok := pictures[kind]
		if !ok || data == "" {
			return block{}, chat.Unsupported(at+".url", "must hold a picture in JPEG, PNG, GIF or WebP for the "+wire)
		}
		return block{Type: blockImage, Source: &source{Type: "base64", MediaType: known, Data: data}}, nil
	}
	if scheme, _, _ := strings.Cut(strings.ToLower(url), "://"); scheme != "https" && scheme != "http" {
		return block{}, fault.Invalid(at+".url", "must be a data URL in base64, or an address")
	}
	return block{Type: blockImage, Source: &source{Type: "url", URL: url}}, nil
}

// media is a media type without its parameters, and the charset that is among them.
func media(of string) (kind, charset string) {
	kind, parameters, _ := strings.Cut(strings.ToLower(of), ";")
	for p := range strings.SplitSeq(parameters, ";") {
		if name, value, _ := strings.Cut(p, "="); strings.TrimSpace(name) == "charset" {
			charset = strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return strings.TrimSpace(kind), charset
}

// The kinds of documents.
const (
	pdf   = "application/pdf"
	plain = "text/plain"
)

func document(p *chat.Part, at string) (block, error) {
	at += ".file"
	switch {
	case p.File == nil:
		return block{}, fault.Invalid(at, "is missing")
	case p.File.FileID != "":
		return block{}, chat.Unsupported(at+".file_id", "has no equivalent in the "+wire)
	}
	at += ".file_data"
	kind, data, ok := chat.DataURL(p.File.FileData)
	kind, charset := media(kind)
	held := &source{Type: "base64", MediaType: kind, Data: data}
	switch {
	case !ok || data == "" || kind != pdf && kind != plain:
		return block{}, chat.Unsupported(at, "must be a PDF or a plain text as a data URL for the "+wire)
	case kind == plain:
		text, err := base64.StdEncoding.DecodeString(data)
		if err != nil || !utf8.Valid(text) || charset != "" && charset != "utf-8" && charset != "us-ascii" {
			return block{}, chat.Unsupported(at, "must be a text in UTF-8 for the "+wire)
		}
		held.Type, held.Data = "text", string(text)
	}
	return block{Type: blockDocument, Title: p.File.Filename, Source: held}, nil
}

// mark is where the provider shall remember the prompt up to. What it remembers for an hour has another price.
func mark(c *chat.CacheControl, at string) (*chat.CacheControl, error) {
	at += ".cache_control"
	switch {
	case c == nil:
		return nil, nil //nolint:nilnil // no mark is fine
	case c.Type != "ephemeral":
		return nil, fault.Invalid(at+".type", "must be ephemeral")
	case c.TTL == "1h":
		return nil, chat.Unsupported(at+".ttl", "of 1h has another price than the model's, and is not offered")
	case c.TTL != "" && c.TTL != "5m":
		return nil, fault.Invalid(at+".ttl", "must be 5m")
	}
	return c, nil
}
