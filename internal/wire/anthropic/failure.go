package anthropic

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/wire/chat"
)

// statusOverloaded is Anthropic's own.
const statusOverloaded = 529

// statuses are what Anthropic answers errors with, by their types: one inside an answer has no status of its own.
var statuses = map[string]int{
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

// A failure is what Anthropic says is wrong.
type failure struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// inside is a failure where an answer should have been.
func (f failure) inside() []byte {
	return f.body(f.meant(cmp.Or(statuses[f.Type], http.StatusBadGateway)))
}

// meant is the status that a failure means. That the account has no credit left, Anthropic says as if the caller had
// asked for something wrong.
func (f failure) meant(status int) int {
	if status == http.StatusBadRequest && strings.Contains(f.Message, "credit balance is too low") {
		return http.StatusPaymentRequired
	}
	return status
}

func (f failure) body(status int) []byte {
	return chat.Failure(status, cmp.Or(f.Type, "api_error"), cmp.Or(f.Message, "the provider failed without a word"))
}

// Refusal puts an error into OpenAI's envelope. Its status stays what it means: the same on both sides.
func (Dialect) Refusal(status int, body []byte) (int, []byte) {
	var envelope struct {
		Error failure `json:"error"`
	}
	if read(body, &envelope) != nil {
		envelope.Error = failure{Message: "the provider refused the request"}
	}
	status = envelope.Error.meant(status)
	return status, envelope.Error.body(status)
}

// read decodes what the provider sent, as far as it is JSON.
func read(text []byte, into any) error {
	return json.Unmarshal(text, into, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}
