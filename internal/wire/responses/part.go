package responses

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/chat"
)

// parts are the pieces of content that chat can tell.
var parts = map[string]func(at string, value jsontext.Value) (chat.Part, error){
	"input_text": textPart, "output_text": spokenPart, "refusal": refusalPart,
	"input_image": imagePart, "input_file": filePart, "input_audio": audioPart,
}

// contentOf is content in chat's words: a text where it is one, which every provider takes.
func contentOf(at string, s said) (chat.Content, error) {
	switch {
	case s.plain != nil:
		return chat.Say(*s.plain), nil
	case s.list == nil:
		return chat.Content{}, fault.Invalid(at, "is required")
	}
	content := chat.Content{}
	for i, value := range s.list {
		at := fmt.Sprintf("%s[%d]", at, i)
		kind, err := typeOf(at, value)
		if err != nil {
			return content, err
		}
		read, known := parts[kind]
		if !known {
			return content, chat.Unsupported(at+".type", fmt.Sprintf("is %q, and can only be %s for this model", kind, strings.Join(slices.Sorted(maps.Keys(parts)), ", ")))
		}
		part, err := read(at, value)
		if err != nil {
			return content, err
		}
		if part.Type != chat.PartText || part.Text != "" { // an empty one says nothing, and chat has none
			content.Parts = append(content.Parts, part)
		}
	}
	if len(content.Parts) == 0 {
		return chat.Say(""), nil
	}
	content.Plain = len(content.Parts) == 1 && content.Parts[0].Type == chat.PartText
	return content, nil
}

func textPart(at string, value jsontext.Value) (chat.Part, error) {
	var p struct {
		Type string `json:"type"`
		Text string `json:"text"`
		rest
	}
	err := read(at, value, &p)
	return chat.Part{Type: chat.PartText, Text: p.Text}, err
}

// spokenPart is what a model said. Its annotations are for people: chat has them in answers alone.
func spokenPart(at string, value jsontext.Value) (chat.Part, error) {
	var p struct {
		Type        string         `json:"type"`
		Text        string         `json:"text"`
		Annotations jsontext.Value `json:"annotations"`
		rest
	}
	err := read(at, value, &p)
	return chat.Part{Type: chat.PartText, Text: p.Text}, err
}

func refusalPart(at string, value jsontext.Value) (chat.Part, error) {
	var p struct {
		Type    string `json:"type"`
		Refusal string `json:"refusal"`
		rest
	}
	err := read(at, value, &p)
	return chat.Part{Type: chat.PartRefusal, Refusal: p.Refusal}, err
}

func imagePart(at string, value jsontext.Value) (chat.Part, error) {
	var p struct {
		Type     string `json:"type"`
		ImageURL string `json:"image_url"`
		Detail   string `json:"detail"`
		rest
	}
	err := read(at, value, &p)
	if err == nil && p.ImageURL == "" {
		err = fault.Invalid(at+".image_url", "is required")
	}
	return chat.Part{Type: chat.PartImage, ImageURL: &chat.ImageURL{URL: p.ImageURL, Detail: p.Detail}}, err
}

func filePart(at string, value jsontext.Value) (chat.Part, error) {
	var p struct {
		Type     string `json:"type"`
		FileData string `json:"file_data"`
		Filename string `json:"filename"`
		rest
	}
	err := read(at, value, &p)
	if err == nil && p.FileData == "" {
		err = fault.Invalid(at+".file_data", "is required")
	}
	return chat.Part{Type: chat.PartFile, File: &chat.File{Filename: p.Filename, FileData: p.FileData}}, err
}

func audioPart(at string, value jsontext.Value) (chat.Part, error) {
	var p struct {
		Type  string         `json:"type"`
		Audio jsontext.Value `json:"input_audio"`
		rest
	}
	if err := read(at, value, &p); err != nil {
		return chat.Part{}, err
	}
	if !there(p.Audio) {
		return chat.Part{}, fault.Invalid(at+".input_audio", "is required")
	}
	var sound struct {
		Data   string `json:"data"`
		Format string `json:"format"`
		rest
	}
	err := read(at+".input_audio", p.Audio, &sound)
	return chat.Part{Type: chat.PartAudio, InputAudio: &chat.InputAudio{Data: sound.Data, Format: sound.Format}}, err
}
