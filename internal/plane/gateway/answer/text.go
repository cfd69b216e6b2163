// Package answer reads what providers send, in OpenAI's form: usage, the text that a model wrote, the events of
// streams, and errors. It decides nothing about the request.
package answer

import (
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/plane/gateway/lenient"
	"sovereign/internal/text/scan"
)

// ChoicesText returns the text of a chat's choices: what a model wrote, tool calls included.
func ChoicesText(choices []byte) []byte {
	var all []struct {
		Message jsontext.Value `json:"message"`
	}
	if lenient.Decode(choices, &all) != nil {
		return nil
	}
	var text []byte
	for i := range all {
		more, _ := MessageText(all[i].Message)
		text = append(text, more...)
	}
	return text
}

// FinishReasons returns why the choices of a chat's answer have finished, in their order. For a response it returns its
// status.
func FinishReasons(body []byte) (reasons []string) {
	var decoded struct {
		Choices []struct {
			Reason string `json:"finish_reason"`
		} `json:"choices"`
		Status string `json:"status"`
	}
	if lenient.Decode(body, &decoded) != nil {
		return nil
	}
	for _, c := range decoded.Choices {
		reasons = append(reasons, c.Reason)
	}
	if len(reasons) == 0 && decoded.Status != "" {
		return []string{decoded.Status}
	}
	return reasons
}

// textMembers are the members of a message that hold text of a model, as a string or in parts.
var textMembers = map[string]bool{"content": true, "reasoning_content": true, "reasoning": true, "refusal": true}

// MessageText returns the text of a message, or of a delta, and whether it has any content. A member that is not known
// here is content too, without text. The text may be a part of message.
func MessageText(message []byte) (text []byte, content bool) {
	var buffer [8]scan.Member
	members, err := scan.Object(message, buffer[:0])
	if err != nil {
		return nil, false
	}
	for i := range members {
		m := &members[i]
		switch value := string(m.Value); {
		case m.Name == "role" || value == "null" || value == `""` || value == "[]" || value == "{}":
			continue
		case textMembers[m.Name]:
			plain, ok := lenient.PlainString(m.Value)
			switch {
			case !ok || !utf8.Valid(plain):
				lenient.Strings(m.Value, func(part string) { text = append(text, part...) })
			case text == nil:
				text = plain[:len(plain):len(plain)]
			default:
				text = append(text, plain...)
			}
		case m.Name == "tool_calls" || m.Name == "function_call":
			text = append(text, callText(m.Value)...)
		}
		content = true
	}
	return text, content
}

// callText returns the names and arguments of tool calls. A model writes neither their ids nor their types.
func callText(value []byte) (text []byte) {
	type function struct{ Name, Arguments string }
	var calls []struct{ Function function }
	var one function
	if lenient.Decode(value, &calls) != nil && lenient.Decode(value, &one) != nil {
		return nil
	}
	text = append(append(text, one.Name...), one.Arguments...)
	for _, c := range calls {
		text = append(append(text, c.Function.Name...), c.Function.Arguments...)
	}
	return text
}

// ResponseText returns the text of a response's output: what a model wrote, calls included.
func ResponseText(output []byte) (text []byte) {
	var items []jsontext.Value
	if lenient.Decode(output, &items) != nil {
		return nil
	}
	for _, value := range items {
		type part struct{ Text, Refusal string }
		var item struct {
			Content, Summary []part
			Name, Arguments  string
			Input            string
		}
		if lenient.Decode(value, &item) != nil {
			continue // an item of an unknown type
		}
		for _, p := range append(item.Summary, item.Content...) {
			text = append(append(text, p.Text...), p.Refusal...)
		}
		text = append(append(append(text, item.Name...), item.Arguments...), item.Input...)
	}
	return text
}
