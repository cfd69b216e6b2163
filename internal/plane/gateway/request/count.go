package request

import (
	"strings"

	"sovereign/internal/live"
	"sovereign/internal/plane/gateway/lenient"
	"sovereign/internal/text/token"
)

// MessageOverhead is how many tokens a chat's template adds to each message.
const MessageOverhead = 4

// CountInput counts the tokens of the prompt with a tokenizer. No tokenizer knows media: they count as MediaTokens.
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
	return n + q.MediaTokens()
}

// MediaTokens returns the tokens that a hold assumes for the media in the messages.
func (q *Request) MediaTokens() int64 {
	if !q.HasMedia() {
		return 0
	}
	return q.Tokens().Media * token.Medium
}

// isData reports whether a text is a medium in base64.
func isData(text string) bool {
	head, _, found := strings.Cut(text[:min(len(text), 200)], ";base64,")
	return found && strings.HasPrefix(head, "data:")
}
