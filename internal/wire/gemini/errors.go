package gemini

import (
	"bytes"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/wire/chat"
)

// apiError is an error of Google's APIs.
type apiError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Status  string `json:"status"`
	Details []struct {
		Reason     string `json:"reason"`     // of an ErrorInfo
		RetryDelay string `json:"retryDelay"` // of a RetryInfo
	} `json:"details"`
}

// errorStatuses maps Google's status names to HTTP statuses.
var errorStatuses = map[string]int{
	"INVALID_ARGUMENT":    http.StatusBadRequest,
	"FAILED_PRECONDITION": http.StatusBadRequest,
	"OUT_OF_RANGE":        http.StatusBadRequest,
	"UNAUTHENTICATED":     http.StatusUnauthorized,
	"PERMISSION_DENIED":   http.StatusForbidden,
	"NOT_FOUND":           http.StatusNotFound,
	"ALREADY_EXISTS":      http.StatusConflict,
	"RESOURCE_EXHAUSTED":  http.StatusTooManyRequests,
	"ABORTED":             http.StatusServiceUnavailable, // a retry may succeed
	"CANCELLED":           http.StatusServiceUnavailable, // not cancelled by us
	"UNKNOWN":             http.StatusInternalServerError,
	"DATA_LOSS":           http.StatusInternalServerError,
	"INTERNAL":            http.StatusInternalServerError,
	"UNIMPLEMENTED":       http.StatusNotImplemented,
	"UNAVAILABLE":         http.StatusServiceUnavailable,
	"DEADLINE_EXCEEDED":   http.StatusGatewayTimeout,
}

// keyInvalid is the error reason for an unknown API key. Google reports it as an invalid argument, but the key is ours
// and not the caller's.
const keyInvalid = "API_KEY_INVALID"

// ErrorAnswer implements upstream.Dialect.
func (Dialect) ErrorAnswer(status int, body []byte) (int, []byte) {
	e := parseError(body)
	status, translated := e.errorAnswer(status)
	if e.Message == "" {
		return status, body
	}
	return status, translated
}

// RetryAfter implements upstream.RetryAdvisor.
func (Dialect) RetryAfter(body []byte) (wait time.Duration) {
	for _, d := range parseError(body).Details {
		if delay, err := time.ParseDuration(d.RetryDelay); err == nil {
			wait = max(wait, delay)
		}
	}
	return wait
}

// parseError decodes an error body; it returns an empty error if that fails.
func parseError(body []byte) *apiError {
	var envelope struct {
		Error apiError `json:"error"`
	}
	body = bytes.TrimSpace(body)
	if bytes.HasPrefix(body, []byte("[")) { // errors of streaming methods may be arrays
		body = bytes.TrimSuffix(bytes.TrimPrefix(body, []byte("[")), []byte("]"))
	}
	if json.Unmarshal(body, &envelope, lenient) != nil {
		return &apiError{} // the body may be cut off
	}
	return &envelope.Error
}

// status returns the HTTP status of an error inside an answer of status 200.
func (r *apiError) status() int {
	if r.Code >= http.StatusBadRequest && r.Code < 600 {
		return r.Code
	}
	return http.StatusBadGateway
}

// errorAnswer returns the error in OpenAI's shape. status is used if the status name is unknown.
func (r *apiError) errorAnswer(status int) (int, []byte) {
	if known, ok := errorStatuses[r.Status]; ok {
		status = known
	}
	for _, d := range r.Details {
		if d.Reason == keyInvalid {
			status = http.StatusUnauthorized
		}
	}
	return status, chat.StatusErrorBody(status, r.Message)
}
