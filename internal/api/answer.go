package api

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
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

func renderJSON(status int, out any) (answer, error) {
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
