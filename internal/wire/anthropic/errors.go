package anthropic

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/wire/chat"
)

// statusOverloaded is Anthropic's own status.
const statusOverloaded = 529

// errorStatuses maps error types to statuses, for errors inside an answer of status 200.
var errorStatuses = map[string]int{
	"invalid_request_error": http.StatusBadRequest,
	"authentication_error":  http.StatusUnauthorized,
	"billing_error":         http.StatusPaymentRequired,
	"permission_error":      http.StatusForbidden,
	"not_found_error":       http.StatusNotFound,
	"request_too_large":     http.StatusRequestEntityTooLarge,
	"rate_limit_error":      http.StatusTooManyRequests,
	"api_error":             http.StatusInternalServerError,
	"timeout_error":         http.StatusGatewayTimeout,
	"overloaded_error":      statusOverloaded,
}

// apiError is an error of the Messages API.
type apiError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// answerBody is the body of an error that came inside an answer of status 200.
func (f apiError) answerBody() []byte {
	return f.body(f.httpStatus(cmp.Or(errorStatuses[f.Type], http.StatusBadGateway)))
}

// httpStatus corrects the status: Anthropic reports an exhausted credit balance as an invalid request.
func (f apiError) httpStatus(status int) int {
	if status == http.StatusBadRequest && strings.Contains(f.Message, "credit balance is too low") {
		return http.StatusPaymentRequired
	}
	return status
}

func (f apiError) body(status int) []byte {
	return chat.ErrorBody(status, cmp.Or(f.Type, "api_error"), cmp.Or(f.Message, "the provider failed without a word"))
}

// ErrorAnswer implements upstream.Dialect.
func (Dialect) ErrorAnswer(status int, body []byte) (int, []byte) {
	var envelope struct {
		Error apiError `json:"error"`
	}
	if unmarshal(body, &envelope) != nil || envelope.Error.Message == "" {
		return status, body
	}
	status = envelope.Error.httpStatus(status)
	return status, envelope.Error.body(status)
}

// unmarshal decodes what the provider sent. It accepts duplicate names and invalid UTF-8.
func unmarshal(text []byte, into any) error {
	return json.Unmarshal(text, into, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}
