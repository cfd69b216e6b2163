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

	"sovereign/internal/live"
)

// The types of OpenAI's error envelope.
const (
	invalidRequest = "invalid_request_error"
	serverError    = "server_error"
)

// apiError is an error answer in OpenAI's wording.
type apiError struct {
	status     int
	kind       string
	code       string
	param      string
	message    string
	retryAfter time.Duration
}

func (r *apiError) Error() string { return r.message }

// invalid refuses the value of a parameter.
func invalid(param, format string, args ...any) error {
	return refuse("invalid_value", param, "Invalid value for '"+param+"': "+fmt.Sprintf(format, args...)+".")
}

// missing refuses a request without a required parameter.
func missing(param string) error {
	return refuse("missing_required_parameter", param, "Missing required parameter: '"+param+"'.")
}

// unsupported refuses a parameter that is not simulated.
func unsupported(param string) error {
	return refuse("unsupported_parameter", param,
		"Unsupported parameter: '"+param+"' is not supported with a simulated model.")
}

func refuse(code, param, message string) error {
	return &apiError{status: http.StatusBadRequest, kind: invalidRequest, code: code, param: param, message: message}
}

// contextExceeded refuses a request that is longer than the model's context window; detail says by what.
func contextExceeded(param string, m *live.Model, detail string) error {
	return refuse("context_length_exceeded", param,
		fmt.Sprintf("This model's maximum context length is %d tokens. However, %s.", m.ContextWindow, detail))
}

// statusErrors are the failures with a status that a request can ask for.
var statusErrors = map[string]*apiError{
	"status_400": {status: http.StatusBadRequest, kind: invalidRequest},
	"status_401": {status: http.StatusUnauthorized, kind: invalidRequest, code: "invalid_api_key"},
	"status_403": {status: http.StatusForbidden, kind: invalidRequest},
	"status_404": {status: http.StatusNotFound, kind: invalidRequest, code: "model_not_found"},
	"status_413": {status: http.StatusRequestEntityTooLarge, kind: invalidRequest},
	"status_422": {status: http.StatusUnprocessableEntity, kind: invalidRequest},
	"status_429": {
		status: http.StatusTooManyRequests, kind: "requests", code: "rate_limit_exceeded",
		retryAfter: time.Second,
	},
	"status_500": {status: http.StatusInternalServerError, kind: serverError},
	"status_503": {status: http.StatusServiceUnavailable, kind: serverError, retryAfter: time.Second},
}

// errorInAnswer is the error inside an answer of status 200.
var errorInAnswer = &apiError{kind: serverError}

// envelope encodes the error.
func (r *apiError) envelope() []byte {
	type inner struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	e := inner{Message: r.message, Type: r.kind, Param: nilIfEmpty(r.param), Code: nilIfEmpty(r.code)}
	if e.Message == "" {
		e.Message = "Simulated failure."
	}
	return encode(map[string]inner{"error": e})
}

// nilIfEmpty returns nil for an empty string, which is null in JSON.
func nilIfEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// errorAnswer returns the answer for an error.
func errorAnswer(err error) answer {
	var r *apiError
	if !errors.As(err, &r) {
		r = &apiError{status: http.StatusInternalServerError, kind: serverError, message: err.Error()}
	}
	return answer{
		status: r.status, kind: jsonType, retryAfter: r.retryAfter, frames: framesOf(frame{data: r.envelope()}),
	}
}

// decode reads a request's body into q and names the parameter that is invalid.
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

// kinds are the names of JSON's types.
var kinds = map[jsontext.Kind]string{
	'n': "null", 't': "a boolean", 'f': "a boolean", '"': "a string", '0': "a number", '{': "an object",
	'[': "an array",
}

// parameter formats a JSON pointer as OpenAI does: /messages/0/role is messages[0].role.
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

// encode marshals a value of this package, which cannot fail. Invalid UTF-8 is replaced.
func encode(v any) []byte {
	data, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic("simulate an answer: " + err.Error())
	}
	return data
}
