package answer

import (
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/plane/gateway/lenient"
)

// An Error is what a provider says went wrong.
type Error struct {
	Message string
	Param   string
	Status  int // the HTTP status that the error names or implies; 0 for none
}

// maxMessage bounds the message of an error, in bytes.
const maxMessage = 1000

const noMessage = "the provider refused the request"

// ReadRefusal reads the error in the body of a refusal. redact removes secrets from its texts.
func ReadRefusal(body []byte, redact func(string) string) Error {
	var envelope struct {
		Error jsontext.Value `json:"error"`
	}
	if lenient.Decode(body, &envelope) != nil {
		return Error{Message: noMessage}
	}
	return ReadError(envelope.Error, redact)
}

// ReadError reads an error value: an object, or a string. redact removes secrets from its texts.
func ReadError(value []byte, redact func(string) string) Error {
	e := Error{Message: noMessage}
	var object struct {
		Message string         `json:"message"`
		Param   *string        `json:"param"`
		Code    jsontext.Value `json:"code"`
		Type    string         `json:"type"`
	}
	var plain string
	switch {
	case lenient.Decode(value, &plain) == nil:
		e.Message = plain
	case lenient.Decode(value, &object) == nil:
		if object.Message != "" {
			e.Message = object.Message
		}
		if object.Param != nil {
			e.Param = redact(*object.Param)
		}
		code := strings.Trim(string(object.Code), `"`)
		if e.Status, _ = strconv.Atoi(code); e.Status == 0 { // most codes are words
			e.Status = impliedStatus(object.Type, code)
		}
	}
	if e.Message = redact(e.Message); len(e.Message) > maxMessage {
		e.Message = strings.ToValidUTF8(e.Message[:maxMessage], "") + "…"
	}
	if !utf8.ValidString(e.Message) {
		e.Message = strings.ToValidUTF8(e.Message, "\uFFFD")
	}
	return e
}

// impliedStatus returns the status that an error implies by its type and code, or 0.
func impliedStatus(kind, code string) int {
	switch {
	case kind == "rate_limit_error", code == "rate_limit_exceeded":
		return http.StatusTooManyRequests
	case kind == "invalid_request_error":
		return http.StatusBadRequest
	case code == "context_length_exceeded", strings.HasPrefix(code, "invalid_"), strings.Contains(code, "image"):
		return http.StatusBadRequest
	default:
		return 0
	}
}
