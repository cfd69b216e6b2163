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

// partConverters convert the content parts that chat can express, by type.
var partConverters = map[string]func(at string, value jsontext.Value) (chat.Part, error){
	"input_text": convertText, "output_text": convertOutputText, "refusal": convertRefusal,
	"input_image": convertImage, "input_file": convertFile, "input_audio": convertAudio,
}

// convertContent converts content. A single text becomes a string, which every provider accepts.
func convertContent(at string, s textOrList) (chat.Content, error) {
	switch {
	case s.text != nil:
		return chat.TextContent(*s.text), nil
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
		read, known := partConverters[kind]
		if !known {
			return content, chat.Unsupported(at+".type", fmt.Sprintf("is %q, and can only be %s for this model", kind,
				strings.Join(slices.Sorted(maps.Keys(partConverters)), ", ")))
		}
		part, err := read(at, value)
		if err != nil {
			return content, err
		}
		if part.Type != chat.PartText || part.Text != "" { // some providers refuse empty texts
			content.Parts = append(content.Parts, part)
		}
	}
	if len(content.Parts) == 0 {
		return chat.TextContent(""), nil
	}
	content.Plain = len(content.Parts) == 1 && content.Parts[0].Type == chat.PartText
	return content, nil
}

func convertText(at string, value jsontext.Value) (chat.Part, error) {
	var p struct {
		Type string `json:"type"`
		Text string `json:"text"`
		unknownMembers
	}
	err := decode(at, value, &p)
	return chat.Part{Type: chat.PartText, Text: p.Text}, err
}

// convertOutputText converts a text of the assistant. Its annotations are dropped: chat has them in answers only.
func convertOutputText(at string, value jsontext.Value) (chat.Part, error) {
	var p struct {
		Type        string         `json:"type"`
		Text        string         `json:"text"`
		Annotations jsontext.Value `json:"annotations"`
		unknownMembers
	}
	err := decode(at, value, &p)
	return chat.Part{Type: chat.PartText, Text: p.Text}, err
}

func convertRefusal(at string, value jsontext.Value) (chat.Part, error) {
	var p struct {
		Type    string `json:"type"`
		Refusal string `json:"refusal"`
		unknownMembers
	}
	err := decode(at, value, &p)
	return chat.Part{Type: chat.PartRefusal, Refusal: p.Refusal}, err
}

func convertImage(at string, value jsontext.Value) (chat.Part, error) {
	var p struct {
		Type     string `json:"type"`
		ImageURL string `json:"image_url"`
		Detail   string `json:"detail"`
		unknownMembers
	}
	err := decode(at, value, &p)
	if err == nil && p.ImageURL == "" {
		err = fault.Invalid(at+".image_url", "is required")
	}
	return chat.Part{Type: chat.PartImage, ImageURL: &chat.ImageURL{URL: p.ImageURL, Detail: p.Detail}}, err
}

func convertFile(at string, value jsontext.Value) (chat.Part, error) {
	var p struct {
		Type     string `json:"type"`
		FileData string `json:"file_data"`
		Filename string `json:"filename"`
		unknownMembers
	}
	err := decode(at, value, &p)
	if err == nil && p.FileData == "" {
		err = fault.Invalid(at+".file_data", "is required")
	}
	return chat.Part{Type: chat.PartFile, File: &chat.File{Filename: p.Filename, FileData: p.FileData}}, err
}

func convertAudio(at string, value jsontext.Value) (chat.Part, error) {
	var p struct {
		Type  string         `json:"type"`
		Audio jsontext.Value `json:"input_audio"`
		unknownMembers
	}
	if err := decode(at, value, &p); err != nil {
		return chat.Part{}, err
	}
	if !chat.IsSet(p.Audio) {
		return chat.Part{}, fault.Invalid(at+".input_audio", "is required")
	}
	var sound struct {
		Data   string `json:"data"`
		Format string `json:"format"`
		unknownMembers
	}
	err := decode(at+".input_audio", p.Audio, &sound)
	return chat.Part{Type: chat.PartAudio, InputAudio: &chat.InputAudio{Data: sound.Data, Format: sound.Format}}, err
}
