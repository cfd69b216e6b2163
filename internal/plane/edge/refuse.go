package edge

import (
	"math"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
)

// An Envelope is a refusal on the wire.
type Envelope struct {
	Error Refusal `json:"error"`
}

// A Refusal says what was refused and why.
type Refusal struct {
	Message string  `json:"message" doc:"For people; not to be parsed"`
	Type    string  `json:"type"`
	Code    *string `json:"code"`
	Param   *string `json:"param" doc:"The field at fault, where there is one"`
}

// A Flat is how training and infrastructure bodies are refused.
type Flat struct {
	Error string `json:"error"`
}

// Refuse writes err as the refusal that a caller may see.
func Refuse(w http.ResponseWriter, r *http.Request, err error) { refuse(w, r, err, false) }

// RefuseFlat is Refuse with the plain shape of the training and infrastructure surfaces, {"error": "text"}, when it
// is a body that is refused.
func RefuseFlat(w http.ResponseWriter, r *http.Request, err error) { refuse(w, r, err, true) }

// refuse is the only place where an error becomes an answer.
func refuse(w http.ResponseWriter, r *http.Request, err error, plain bool) {
	f, call, header := fault.From(err), callOf(r.Context()), w.Header()
	call.fault, call.cause = f, err
	if f.Status == http.StatusTooManyRequests || f.Status == http.StatusServiceUnavailable {
		header.Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(f.RetryAfter.Seconds())))))
	}
	if f.Final() {
		header.Set("X-Should-Retry", "false")
	}
	if f.Status == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", "Bearer")
	}
	message := f.Message
	if call.candid && f.Status >= http.StatusInternalServerError {
		message = f.Error()
	}
	shown := envelope(call.id, f, message)
	var body any = shown
	if plain && f.Status == http.StatusBadRequest {
		body = Flat{Error: shown.Error.Message}
	}
	text := encode(body)
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(text)+1))
	w.WriteHeader(f.Status)
	_, _ = w.Write(append(text, '\n')) // a caller who left has no use for an error
}

func envelope(id string, f *fault.Fault, message string) Envelope {
	if f.Status >= http.StatusInternalServerError {
		message += " (request " + id + ")"
	}
	return Envelope{Refusal{Message: message, Type: f.Type, Code: optional(f.Code), Param: optional(f.Field)}}
}

// encode cannot fail: a message may name what a caller sent, and everything else is ours.
func encode(body any) []byte {
	text, _ := json.Marshal(body, jsontext.AllowInvalidUTF8(true))
	return text
}

// Event is a refusal as it stands in a stream that has begun.
func Event(id string, f *fault.Fault) []byte { return encode(envelope(id, f, f.Message)) }

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
