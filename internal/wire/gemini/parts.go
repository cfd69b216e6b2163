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

// parts are a message's content, of which some types may be there.
func (c *conversation) parts(from chat.Content, at string, types ...string) ([]part, error) {
	var all []part
	for i := range from.Parts {
		p, place := &from.Parts[i], at+".content"
		if !from.Plain {
			place = fmt.Sprintf("%s.content[%d]", at, i)
		}
		switch {
		case p.CacheControl != nil:
			return nil, chat.Unsupported(place+".cache_control", "cannot be expressed in the "+wire)
		case !slices.Contains(types, p.Type):
			return nil, chat.Unsupported(place, fmt.Sprintf("is %q, and can only be %s in the %s", p.Type, either(types), wire))
		}
		if err := p.Single(place); err != nil {
			return nil, err
		}
		one, err := readers[p.Type](c, p, place)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// either lists words: a, b or c.
func either(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// readers turn parts of messages into Gemini's.
var readers = map[string]func(c *conversation, p *chat.Part, at string) (part, error){
	chat.PartText:    func(_ *conversation, p *chat.Part, _ string) (part, error) { return part{Text: &p.Text}, nil },
	chat.PartRefusal: func(_ *conversation, p *chat.Part, _ string) (part, error) { return part{Text: &p.Refusal}, nil },
	chat.PartImage:   (*conversation).image,
	chat.PartAudio:   (*conversation).audio,
	chat.PartFile:    (*conversation).file,
}

// resolutions are what Gemini calls the details of pictures.
var resolutions = map[string]*resolution{
	"":     nil,
	"auto": nil,
	"low":  {"MEDIA_RESOLUTION_LOW"},
	"high": {"MEDIA_RESOLUTION_HIGH"},
}

func (c *conversation) image(p *chat.Part, at string) (part, error) {
	if p.ImageURL == nil {
		return part{}, fault.Invalid(at+".image_url", "is required")
	}
	detail, ok := resolutions[p.ImageURL.Detail]
	switch {
	case !ok:
		return part{}, fault.Invalid(at+".image_url.detail", "must be auto, low or high")
	case detail != nil && c.early:
		return part{}, chat.Unsupported(at+".image_url.detail", "cannot be chosen for one picture with this model")
	}
	one, err := media(p.ImageURL.URL, at+".image_url.url")
	one.MediaResolution = detail
	return one, err
}

// kinds are the media types of what Google fetches, by the endings of paths. One with another ending goes without: what
// its server says it is counts.
var kinds = map[string]string{
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp", ".gif": "image/gif",
	".heic": "image/heic", ".heif": "image/heif", ".bmp": "image/bmp", ".pdf": "application/pdf",
}

// media is data, or what Google fetches from an address by https. An object in Google's storage has to be registered
// first, and then has such an address.
func media(address, at string) (part, error) {
	if strings.HasPrefix(address, "data:") {
		return inline(address, at)
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return part{}, chat.Unsupported(at, "must be a data URL or an https address in the "+wire)
	}
	return part{FileData: &fileData{FileURI: address, MIMEType: kinds[strings.ToLower(path.Ext(u.Path))]}}, nil
}

func inline(address, at string) (part, error) {
	kind, data, ok := chat.DataURL(address)
	if !ok || kind == "" || data == "" {
		return part{}, fault.Invalid(at, "must be a data URL with a media type, in base64")
	}
	return part{InlineData: &blob{MIMEType: kind, Data: data}}, nil
}

// sounds are the media types of formats.
var sounds = map[string]string{
	"wav": "audio/wav", "mp3": "audio/mp3", "aac": "audio/aac", "aiff": "audio/aiff", "flac": "audio/flac", "ogg": "audio/ogg",
}

func (*conversation) audio(p *chat.Part, at string) (part, error) {
	if p.InputAudio == nil || p.InputAudio.Data == "" {
		return part{}, fault.Invalid(at+".input_audio.data", "is required")
	}
	kind, ok := sounds[p.InputAudio.Format]
	if !ok {
		return part{}, chat.Unsupported(at+".input_audio.format", "is not one that the "+wire+" hears")
	}
	return part{InlineData: &blob{MIMEType: kind, Data: p.InputAudio.Data}}, nil
}

// file is a document. Its name is a label for people, which Gemini refuses to be given.
func (*conversation) file(p *chat.Part, at string) (part, error) {
	switch {
	case p.File == nil:
		return part{}, fault.Invalid(at+".file", "is required")
	case p.File.FileID != "":
		return part{}, chat.Unsupported(at+".file.file_id", "is of another provider's files")
	}
	return inline(p.File.FileData, at+".file.file_data")
}
