package api

import (
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	jsonType = "application/json"
	textType = "text/plain; charset=utf-8"
)

// JSONL is the content type of exports: one JSON object on a line.
const JSONL = "application/jsonl; charset=utf-8"

// An answer is a complete response, ready to be sent or stored.
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
	_, _ = w.Write(a.body) // a caller that disconnected has no use for an error
}

// A Made value is the answer of an operation that creates something or changes it: it says which. The status is 201 for
// what was created.
type Made interface{ Created() bool }

// statusOf returns the status of a handler's value.
func (r *Route) statusOf(out any) int {
	if made, ok := out.(Made); ok && made.Created() {
		return http.StatusCreated
	}
	return r.status
}

// render returns the answer for a handler's value: as text when the caller prefers it and the value supports it.
func render(r *http.Request, status int, out any) (answer, error) {
	if plain, ok := out.(Plain); ok && prefersText(r.Header.Get("Accept")) {
		return answer{status: status, kind: textType, body: []byte(plain.Plain())}, nil
	}
	return renderJSON(status, out)
}

// lenient accepts valid JSON that we would not write ourselves: duplicate names and invalid UTF-8. It sorts the members
// of maps, so that equal values have equal texts.
var lenient = json.JoinOptions(
	jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true), json.Deterministic(true))

func renderJSON(status int, out any) (answer, error) {
	text, err := json.Marshal(out, lenient) // messages are shown as they were sent, unpaired surrogates included
	if err != nil {
		return answer{}, err
	}
	return answer{status: status, kind: jsonType, body: append(text, '\n')}, nil
}

// prefersText reports whether an Accept header ranks text/plain above JSON; the first of equals wins.
func prefersText(accept string) bool {
	text, best := false, 0.0
	for part := range strings.SplitSeq(accept, ",") {
		media, parameters, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		weight := 1.0
		if q, given := parameters["q"]; given {
			weight, _ = strconv.ParseFloat(q, 64) // an invalid number is 0
		}
		if weight <= best {
			continue
		}
		switch media {
		case "text/plain", "text/*":
			text, best = true, weight
		case jsonType, "application/*", "*/*":
			text, best = false, weight
		}
	}
	return text
}
