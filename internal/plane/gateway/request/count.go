package request

import (
	"strings"

	"sovereign/internal/live"
	"sovereign/internal/plane/gateway/lenient"
)

// MessageOverhead is how many tokens a chat's template adds to each message.
const MessageOverhead = 4

// CountInput counts the tokens of the prompt with a tokenizer. Media that are sent as data count nothing: no tokenizer
// knows them.
func (q *Request) CountInput(count func(string) int64) int64 {
	var n int64
	for _, m := range q.promptMembers() {
		if m.Name == "tools" || m.Name == "response_format" || m.Name == "text" {
			n += count(string(m.Value))
			continue
		}
		lenient.Strings(m.Value, func(text string) {
			if !isData(text) {
				n += count(text)
			}
		})
	}
	if q.Endpoint.Kind == live.Chat {
		n += int64(q.Elements) * MessageOverhead
	}
	return n
}

// isData reports whether a text is a medium in base64.
func isData(text string) bool {
	head, _, found := strings.Cut(text[:min(len(text), 200)], ";base64,")
	return found && strings.HasPrefix(head, "data:")
}
