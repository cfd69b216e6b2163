package sim

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The types of OpenAI's error envelope.
const (
	invalidRequest = "invalid_request_error"
	serverError    = "server_error"
)

// A refusal is an answer with an error envelope, as OpenAI words it.
type refusal struct {
	status     int
	kind       string
	code       string
	param      string
	message    string
	retryAfter time.Duration
}

func (r *refusal) Error() string { return r.message }

// invalid refuses the value of a parameter, which the message names too.
func invalid(param, format string, args ...any) error {
	return refuse("invalid_value", param, "Invalid value for '"+param+"': "+fmt.Sprintf(format, args...)+".")
}

// missing refuses a request without a parameter.
func missing(param string) error {
	return refuse("missing_required_parameter", param, "Missing required parameter: '"+param+"'.")
}

// unsupported refuses a parameter that asks for what a simulated model cannot do.
func unsupported(param string) error {
	return refuse("unsupported_parameter", param, "Unsupported parameter: '"+param+"' is not supported with a simulated model.")
}

func refuse(code, param, message string) error {
	return &refusal{status: http.StatusBadRequest, kind: invalidRequest, code: code, param: param, message: message}
}

// statuses are the failures that a request can ask for which are a status.
var statuses = map[string]*refusal{
	"status_400": {status: http.StatusBadRequest, kind: invalidRequest},
	"status_401": {status: http.StatusUnauthorized, kind: invalidRequest, code: "invalid_api_key"},
	"status_403": {status: http.StatusForbidden, kind: invalidRequest},
	"status_404": {status: http.StatusNotFound, kind: invalidRequest, code: "model_not_found"},
	"status_413": {status: http.StatusRequestEntityTooLarge, kind: invalidRequest},
	"status_422": {status: http.StatusUnprocessableEntity, kind: invalidRequest},
	"status_429": {status: http.StatusTooManyRequests, kind: "requests", code: "rate_limit_exceeded", retryAfter: time.Second},
	"status_500": {status: http.StatusInternalServerError, kind: serverError},
	"status_503": {status: http.StatusServiceUnavailable, kind: serverError, retryAfter: time.Second},
}

// midway is the failure that arrives inside an answer of status 200.
var midway = &refusal{kind: serverError}

// envelope is r on the wire.
func (r *refusal) envelope() []byte {
	type inner struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	e := inner{Message: r.message, Type: r.kind, Param: optional(r.param), Code: optional(r.code)}
	if e.Message == "" {
		e.Message = "Simulated failure."
	}
	return encode(map[string]inner{"error": e})
}

// optional is nil, which is null on the wire, for no text.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// refused is the answer to a request that meets err.
func refused(err error) answer {
	var r *refusal
	if !errors.As(err, &r) {
		r = &refusal{status: http.StatusInternalServerError, kind: serverError, message: err.Error()}
	}
	return answer{status: r.status, kind: jsonType, retryAfter: r.retryAfter, frames: once(frame{data: r.envelope()})}
}

// decode reads a request's body into q and names the parameter that does not fit.
func decode(body []byte, q any) error {
	err := json.Unmarshal(body, q)
	if err == nil {
		return nil
	}
	var wrong *json.SemanticError
	if !errors.As(err, &wrong) || wrong.JSONPointer == "" {
		return refuse("", "", "We could not parse the JSON body of your request: it must be one object.")
	}
	name := parameter(wrong.JSONPointer)
	if wrong.JSONKind == 0 {
		return invalid(name, "%v", wrong.Err)
	}
	return refuse("invalid_type", name, "Invalid type for '"+name+"': "+kinds[wrong.JSONKind]+" does not fit here.")
}

// kinds are JSON's, in words.
var kinds = map[jsontext.Kind]string{
	'n': "null", 't': "a boolean", 'f': "a boolean", '"': "a string", '0': "a number", '{': "an object", '[': "an array",
}

// parameter is a pointer into a body as OpenAI names it: /messages/0/role is messages[0].role.
func parameter(p jsontext.Pointer) string {
	var b strings.Builder
	for token := range p.Tokens() {
		switch _, err := strconv.Atoi(token); {
		case err == nil:
			b.WriteString("[" + token + "]")
		case b.Len() > 0:
			b.WriteString("." + token)
		default:
			b.WriteString(token)
		}
	}
	return b.String()
}

// encode is a value of this package on the wire. All of them can be encoded; a name that is not UTF-8 is mended.
func encode(v any) []byte {
	data, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic("simulate an answer: " + err.Error())
	}
	return data
}
