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
	return renderJSON(status, out)
}

// lenient lets by what JSON may hold and our own writing does not.
var lenient = json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

func renderJSON(status int, out any) (answer, error) {
	text, err := json.Marshal(out, lenient) // messages are shown as they were sent, half of a surrogate pair and all
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
			weight, _ = strconv.ParseFloat(q, 64) // what is no number weighs nothing
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
