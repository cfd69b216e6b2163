package cohere

import (
	"net/http"

	"github.com/go-json-experiment/json"

	"sovereign/internal/wire/chat"
)

// statusMapping maps Cohere's own statuses to standard ones: 498 means a blocked word in the request, 499 that Cohere
// considers the request cancelled.
var statusMapping = map[int]int{
	498: http.StatusBadRequest,
	499: http.StatusServiceUnavailable,
}

// ErrorAnswer implements upstream.Dialect.
func (Dialect) ErrorAnswer(status int, body []byte) (int, []byte) {
	if known, ok := statusMapping[status]; ok {
		status = known
	}
	var decoded struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(body, &decoded, lenient) != nil || decoded.Message == "" {
		return status, body
	}
	return status, chat.StatusErrorBody(status, decoded.Message)
}
