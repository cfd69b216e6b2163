package gemini

import (
	"bytes"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/wire/chat"
)

// A refusal is an error as Google's services tell one.
type refusal struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Status  string `json:"status"`
	Details []struct {
		Reason     string `json:"reason"`     // of an ErrorInfo
		RetryDelay string `json:"retryDelay"` // of a RetryInfo
	} `json:"details"`
}

// statuses are what Google's words for errors mean over HTTP.
var statuses = map[string]int{
	"INVALID_ARGUMENT":    http.StatusBadRequest,
	"FAILED_PRECONDITION": http.StatusBadRequest,
	"OUT_OF_RANGE":        http.StatusBadRequest,
	"UNAUTHENTICATED":     http.StatusUnauthorized,
	"PERMISSION_DENIED":   http.StatusForbidden,
	"NOT_FOUND":           http.StatusNotFound,
	"ALREADY_EXISTS":      http.StatusConflict,
	"RESOURCE_EXHAUSTED":  http.StatusTooManyRequests,
	"ABORTED":             http.StatusServiceUnavailable, // another try may do
	"CANCELLED":           http.StatusServiceUnavailable, // not by us: we would not be reading
	"UNKNOWN":             http.StatusInternalServerError,
	"DATA_LOSS":           http.StatusInternalServerError,
	"INTERNAL":            http.StatusInternalServerError,
	"UNIMPLEMENTED":       http.StatusNotImplemented,
	"UNAVAILABLE":         http.StatusServiceUnavailable,
	"DEADLINE_EXCEEDED":   http.StatusGatewayTimeout,
}

// keyInvalid is Google's reason for a key that it does not know, which it calls an invalid argument: of ours, not of the
// caller's.
const keyInvalid = "API_KEY_INVALID"

// Refusal implements upstream.Dialect.
func (Dialect) Refusal(status int, body []byte) (int, []byte) { return told(body).tell(status) }

// Wait implements upstream.Patient.
func (Dialect) Wait(body []byte) (wait time.Duration) {
	for _, d := range told(body).Details {
		if asked, err := time.ParseDuration(d.RetryDelay); err == nil {
			wait = max(wait, asked)
		}
	}
	return wait
}

// told is what a refusal says; nothing where it is none.
func told(body []byte) *refusal {
	var told struct {
		Error refusal `json:"error"`
	}
	body = bytes.TrimSpace(body)
	if bytes.HasPrefix(body, []byte("[")) { // some streams are lists, and so are their refusals
		body = bytes.TrimSuffix(bytes.TrimPrefix(body, []byte("[")), []byte("]"))
	}
	if json.Unmarshal(body, &told, lenient) != nil {
		return &refusal{} // it may be half of one
	}
	return &told.Error
}

// status is that of an error inside an answer, which HTTP calls a success.
func (r *refusal) status() int {
	if r.Code >= http.StatusBadRequest && r.Code < 600 {
		return r.Code
	}
	return http.StatusBadGateway
}

// tell is an error as OpenAI's. Status is for one whose word is not known.
func (r *refusal) tell(status int) (int, []byte) {
	if known, ok := statuses[r.Status]; ok {
		status = known
	}
	for _, d := range r.Details {
		if d.Reason == keyInvalid {
			status = http.StatusUnauthorized
		}
	}
	return status, chat.Refused(status, r.Message)
}
