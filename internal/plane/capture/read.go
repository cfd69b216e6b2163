package capture

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/text/scan"
)

// firstChoice returns the message and the finish reason of an answer's first choice.
func firstChoice(answer []byte) (message []byte, finish string, ok bool) {
	var choice [8]scan.Member
	for one := range scan.Elements(member(answer, "choices")) {
		members, err := scan.Object(one, choice[:0])
		if err != nil {
			break
		}
		for i := range members {
			switch members[i].Name {
			case "message":
				message = members[i].Value
			case "finish_reason":
				finish = unquoted(members[i].Value)
			}
		}
		break
	}
	return message, finish, message != nil
}

// member returns the value of an object's member, or nil when there is none.
func member(object []byte, name string) []byte {
	var buffer [16]scan.Member
	members, err := scan.Object(object, buffer[:0])
	if err != nil {
		return nil
	}
	for i := range members {
		if members[i].Name == name {
			return members[i].Value
		}
	}
	return nil
}

// unquoted returns the text of a JSON string, or "" for any other value.
func unquoted(value []byte) string {
	text, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		return ""
	}
	return string(text)
}

// System returns the system prompt: the text of all system and developer messages before the first other message.
func System(messages []byte) string {
	var all []string
	for message := range scan.Elements(messages) {
		if role := unquoted(member(message, "role")); role != "system" && role != "developer" {
			break
		}
		content := member(message, "content")
		if len(content) > 0 && content[0] == '[' {
			for part := range scan.Elements(content) {
				all = append(all, unquoted(member(part, "text")))
			}
		} else {
			all = append(all, unquoted(content))
		}
	}
	return strings.Join(slices.DeleteFunc(all, func(text string) bool { return text == "" }), "\n")
}

// valid reports whether a text is JSON, duplicate names and invalid UTF-8 permitted.
func valid(text []byte) bool {
	return jsontext.Value(text).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}
