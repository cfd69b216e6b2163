package capture

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/text/scan"
)

// answered is the message of an answer's first choice, and why it ended.
func answered(answer []byte) (message []byte, finish string, ok bool) {
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

// member is the value of an object's member; nil where there is none.
func member(object []byte, name string) []byte {
	var room [16]scan.Member
	members, err := scan.Object(object, room[:0])
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

// unquoted is the text of a string; what is none has none.
func unquoted(value []byte) string {
	text, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		return ""
	}
	return string(text)
}

// System is the text of the system prompt: of all the messages before anybody else speaks.
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

// valid reports whether a text can be shown as JSON.
func valid(text []byte) bool {
	return jsontext.Value(text).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}
