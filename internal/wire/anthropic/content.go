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

// block is a content block, in requests and in answers.
type block struct {
	Type         string             `json:"type"`
	Text         string             `json:"text,omitempty"`
	Thinking     *string            `json:"thinking,omitzero"` // may be empty beside a signature
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
	blockText             = "text"
	blockImage            = "image"
	blockDocument         = "document"
	blockThinking         = "thinking"
	blockRedactedThinking = "redacted_thinking"
	blockToolUse          = "tool_use"
	blockToolResult       = "tool_result"
)

// source is the data or the address of an image or a document.
type source struct {
	Type      string `json:"type"` // base64, url, text
	MediaType string `json:"media_type,omitempty"`
	Data      string `json:"data,omitempty"`
	URL       string `json:"url,omitempty"`
}

// partConverters are the conversions of the content parts that a role may have.
var partConverters = map[string]map[string]func(*chat.Part, string) (block, error){
	chat.RoleSystem:    {chat.PartText: convertText},
	chat.RoleDeveloper: {chat.PartText: convertText},
	chat.RoleUser:      {chat.PartText: convertText, chat.PartImage: convertImage, chat.PartFile: convertFile},
	chat.RoleAssistant: {chat.PartText: convertText, chat.PartRefusal: convertText},
	chat.RoleTool:      {chat.PartText: convertText, chat.PartImage: convertImage, chat.PartFile: convertFile},
}

// convertContent returns the blocks of a message's content. Blank texts are left out, except in assistant messages,
// where the positions of thoughts count them.
func convertContent(m *chat.Message, at string) ([]block, error) {
	var all []block
	for i := range m.Content.Parts {
		p, at := &m.Content.Parts[i], fmt.Sprintf("%s.content[%d]", at, i)
		if err := p.CheckType(at); err != nil {
			return nil, err
		}
		convert, ok := partConverters[m.Role][p.Type]
		if !ok {
			return nil, chat.Unsupported(
				at+".type", p.Type+" has no equivalent in the "+apiName+" for the role "+m.Role,
			)
		}
		b, err := convert(p, at)
		if err != nil {
			return nil, err
		}
		if b.CacheControl, err = checkCacheControl(p.CacheControl, at); err != nil {
			return nil, err
		}
		switch {
		case b.Type == blockText && isBlank(b.Text) && b.CacheControl != nil:
			return nil, chat.Unsupported(at+".cache_control", "cannot mark a text that says nothing")
		case b.Type != blockText || !isBlank(b.Text) || m.Role == chat.RoleAssistant:
			all = append(all, b)
		}
	}
	return all, nil
}

func convertText(p *chat.Part, _ string) (block, error) {
	return block{Type: blockText, Text: p.Text + p.Refusal}, nil // one of them is empty
}

// imageTypes are the media types of images that Anthropic accepts, with aliases.
var imageTypes = map[string]string{
	"image/jpeg": "image/jpeg", "image/jpg": "image/jpeg", "image/png": "image/png", "image/gif": "image/gif",
	"image/webp": "image/webp",
}

func convertImage(p *chat.Part, at string) (block, error) {
	at += ".image_url"
	if p.ImageURL == nil {
		return block{}, fault.Invalid(at, "is missing")
	}
	if d := p.ImageURL.Detail; d != "" && d != "auto" && d != "high" {
		return block{}, chat.Unsupported(at+".detail", "can only be high in the "+apiName)
	}
	url := p.ImageURL.URL
	if kind, data, ok := chat.DataURL(url); ok {
		kind, _ = parseMediaType(kind)
		known, ok := imageTypes[kind]
		if !ok || data == "" {
			return block{}, chat.Unsupported(
				at+".url", "must hold a picture in JPEG, PNG, GIF or WebP for the "+apiName,
			)
		}
		return block{Type: blockImage, Source: &source{Type: "base64", MediaType: known, Data: data}}, nil
	}
	if scheme, _, _ := strings.Cut(strings.ToLower(url), "://"); scheme != "https" && scheme != "http" {
		return block{}, fault.Invalid(at+".url", "must be a data URL in base64, or an address")
	}
	return block{Type: blockImage, Source: &source{Type: "url", URL: url}}, nil
}

// parseMediaType returns a media type without its parameters, and its charset.
func parseMediaType(of string) (kind, charset string) {
	kind, parameters, _ := strings.Cut(strings.ToLower(of), ";")
	for p := range strings.SplitSeq(parameters, ";") {
		if name, value, _ := strings.Cut(p, "="); strings.TrimSpace(name) == "charset" {
			charset = strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return strings.TrimSpace(kind), charset
}

// The media types of documents.
const (
	pdf       = "application/pdf"
	plainText = "text/plain"
)

func convertFile(p *chat.Part, at string) (block, error) {
	at += ".file"
	switch {
	case p.File == nil:
		return block{}, fault.Invalid(at, "is missing")
	case p.File.FileID != "":
		return block{}, chat.Unsupported(at+".file_id", "has no equivalent in the "+apiName)
	}
	at += ".file_data"
	kind, data, ok := chat.DataURL(p.File.FileData)
	kind, charset := parseMediaType(kind)
	file := &source{Type: "base64", MediaType: kind, Data: data}
	switch {
	case !ok || data == "" || kind != pdf && kind != plainText:
		return block{}, chat.Unsupported(at, "must be a PDF or a plain text as a data URL for the "+apiName)
	case kind == plainText:
		text, err := base64.StdEncoding.DecodeString(data)
		if err != nil || !utf8.Valid(text) || charset != "" && charset != "utf-8" && charset != "us-ascii" {
			return block{}, chat.Unsupported(at, "must be a text in UTF-8 for the "+apiName)
		}
		file.Type, file.Data = "text", string(text)
	}
	return block{Type: blockDocument, Title: p.File.Filename, Source: file}, nil
}

// checkCacheControl checks a cache mark. A TTL of one hour is refused: it has another price.
func checkCacheControl(c *chat.CacheControl, at string) (*chat.CacheControl, error) {
	at += ".cache_control"
	switch {
	case c == nil:
		return nil, nil //nolint:nilnil // no mark is valid
	case c.Type != "ephemeral":
		return nil, fault.Invalid(at+".type", "must be ephemeral")
	case c.TTL == "1h":
		return nil, chat.Unsupported(at+".ttl", "of 1h has another price than the model's, and is not offered")
	case c.TTL != "" && c.TTL != "5m":
		return nil, fault.Invalid(at+".ttl", "must be 5m")
	}
	return c, nil
}
