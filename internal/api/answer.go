package api

import (
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"sovereign/internal/fault"
)

// An envelope is a refusal on the wire.
type envelope struct {
	Error refused `json:"error"`
}

type refused struct {
	Message string  `json:"message" doc:"For people; not to be parsed"`
	Type    string  `json:"type"`
	Code    *string `json:"code"`
	Param   *string `json:"param" doc:"The field at fault, where there is one"`
}

// A flat is how training and infrastructure bodies are refused.
type flat struct {
	Error string `json:"error"`
}

// Refuse writes err as the refusal that a caller may see. It is the only place that does.
func Refuse(w http.ResponseWriter, err error, requestID string) {
	refuse(w, fault.From(err), requestID, false)
}

func refuse(w http.ResponseWriter, f *fault.Fault, requestID string, plain bool) {
	header := w.Header()
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
	if f.Status >= http.StatusInternalServerError {
		message += " (request " + requestID + ")"
	}
	var body any = envelope{refused{Message: message, Type: f.Type, Code: optional(f.Code), Param: optional(f.Field)}}
	if plain && f.Status == http.StatusBadRequest {
		body = flat{Error: message}
	}
	writeJSON(w, f.Status, body)
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil { // a type of ours that cannot be written is found by its first test
		status, text = http.StatusInternalServerError, []byte(`{"error":{"message":"internal error","type":"api_error","code":"internal_error","param":null}}`)
	}
	answer{status: status, kind: jsonType, body: append(text, '\n')}.send(w)
}

const (
	jsonType = "application/json"
	textType = "text/plain; charset=utf-8"
)

// An answer is a whole response, ready to be sent or kept.
type answer struct {
	status int
	kind   string
	body   []byte
}

func (a answer) send(w http.ResponseWriter) {
	header := w.Header()
	header.Set("Content-Type", a.kind)
	header.Set("Content-Length", strconv.Itoa(len(a.body)))
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // a caller who left has no use for an error
}

// render makes the answer of a handler's value, as text for who prefers it and the value has one.
func render(r *http.Request, status int, out any) (answer, error) {
	if plain, ok := out.(Plain); ok && prefersText(r.Header.Get("Accept")) {
		return answer{status: status, kind: textType, body: []byte(plain.Plain())}, nil
	}
	text, err := json.Marshal(out)
	if err != nil {
		return answer{}, err
	}
	return answer{status: status, kind: jsonType, body: append(text, '\n')}, nil
}

// prefersText reports whether an Accept header names text/plain before JSON or anything.
func prefersText(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		media, _, _ := strings.Cut(part, ";")
		switch strings.ToLower(strings.TrimSpace(media)) {
		case "text/plain", "text/*":
			return true
		case "application/json", "application/*", "*/*":
			return false
		}
	}
	return false
}
