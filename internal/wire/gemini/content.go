package gemini

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/chat"
)

// convertParts converts a message's content and refuses parts of other types than the given ones.
func (c *conversation) convertParts(from chat.Content, at string, types ...string) ([]part, error) {
	var all []part
	for i := range from.Parts {
		p, place := &from.Parts[i], at+".content"
		if !from.Plain {
			place = fmt.Sprintf("%s.content[%d]", at, i)
		}
		switch {
		case p.CacheControl != nil:
			return nil, chat.Unsupported(place+".cache_control", "cannot be expressed in the "+apiName)
		case !slices.Contains(types, p.Type):
			return nil, chat.Unsupported(place, fmt.Sprintf("is %q, and can only be %s in the %s", p.Type,
				joinOr(types), apiName))
		}
		if err := p.CheckType(place); err != nil {
			return nil, err
		}
		one, err := partConverters[p.Type](c, p, place)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// joinOr joins words: a, b or c.
func joinOr(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// partConverters convert content parts, by type.
var partConverters = map[string]func(c *conversation, p *chat.Part, at string) (part, error){
	chat.PartText: func(_ *conversation, p *chat.Part, _ string) (part, error) { return part{Text: &p.Text}, nil },
	chat.PartRefusal: func(_ *conversation, p *chat.Part, _ string) (part, error) {
		return part{Text: &p.Refusal}, nil
	},
	chat.PartImage: (*conversation).convertImage,
	chat.PartAudio: (*conversation).convertAudio,
	chat.PartFile:  (*conversation).convertFile,
}

// resolutions maps the values of image_url.detail.
var resolutions = map[string]*mediaResolution{
	"":     nil,
	"auto": nil,
	"low":  {"MEDIA_RESOLUTION_LOW"},
	"high": {"MEDIA_RESOLUTION_HIGH"},
}

func (c *conversation) convertImage(p *chat.Part, at string) (part, error) {
	if p.ImageURL == nil {
		return part{}, fault.Invalid(at+".image_url", "is required")
	}
	detail, ok := resolutions[p.ImageURL.Detail]
	switch {
	case !ok:
		return part{}, fault.Invalid(at+".image_url.detail", "must be auto, low or high")
	case detail != nil && c.beforeGemini3:
		return part{}, chat.Unsupported(at+".image_url.detail", "cannot be chosen for one picture with this model")
	}
	one, err := convertURL(p.ImageURL.URL, at+".image_url.url")
	one.MediaResolution = detail
	return one, err
}

// mediaTypes maps file extensions of an address to media types. Other files are sent without a type: Google then uses
// the one that the file's server sends.
var mediaTypes = map[string]string{
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp", ".gif": "image/gif",
	".heic": "image/heic", ".heif": "image/heif", ".bmp": "image/bmp", ".pdf": "application/pdf",
}

// convertURL converts a data URL, or an https address that Google fetches. Objects in Google Cloud Storage must be
// registered first and then have such an address.
func convertURL(address, at string) (part, error) {
	if strings.HasPrefix(address, "data:") {
		return inlineData(address, at)
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return part{}, chat.Unsupported(at, "must be a data URL or an https address in the "+apiName)
	}
	return part{FileData: &fileData{FileURI: address, MIMEType: mediaTypes[strings.ToLower(path.Ext(u.Path))]}}, nil
}

func inlineData(address, at string) (part, error) {
	kind, data, ok := chat.DataURL(address)
	if !ok || kind == "" || data == "" {
		return part{}, fault.Invalid(at, "must be a data URL with a media type, in base64")
	}
	return part{InlineData: &blob{MIMEType: kind, Data: data}}, nil
}

// audioTypes maps audio formats to media types.
var audioTypes = map[string]string{
	"wav": "audio/wav", "mp3": "audio/mp3", "aac": "audio/aac", "aiff": "audio/aiff", "flac": "audio/flac",
	"ogg": "audio/ogg",
}

func (*conversation) convertAudio(p *chat.Part, at string) (part, error) {
	if p.InputAudio == nil || p.InputAudio.Data == "" {
		return part{}, fault.Invalid(at+".input_audio.data", "is required")
	}
	kind, ok := audioTypes[p.InputAudio.Format]
	if !ok {
		return part{}, chat.Unsupported(at+".input_audio.format", "is not one that the "+apiName+" hears")
	}
	return part{InlineData: &blob{MIMEType: kind, Data: p.InputAudio.Data}}, nil
}

// convertFile converts a document. Its filename is not sent, because Gemini refuses it.
func (*conversation) convertFile(p *chat.Part, at string) (part, error) {
	switch {
	case p.File == nil:
		return part{}, fault.Invalid(at+".file", "is required")
	case p.File.FileID != "":
		return part{}, chat.Unsupported(at+".file.file_id", "is of another provider's files")
	}
	return inlineData(p.File.FileData, at+".file.file_data")
}
