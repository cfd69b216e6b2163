// Package gemini speaks the Gemini API of Google: chat completions as generateContent and its stream, embeddings as
// batchEmbedContents. It is pure.
package gemini

import (
	"bytes"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/upstream"
)

// A Dialect is the wire below https://generativelanguage.googleapis.com/v1beta.
type Dialect struct {
	Now func() time.Time // says when an answer was made, which Google does not; nil is time.Now
}

// wire is what refusals call it.
const wire = "Gemini API"

// ways are the endpoints that have an equivalent.
var ways = map[string]func(d Dialect, r *upstream.Request, body []byte) (upstream.Exchange, error){
	upstream.ChatPath:       askChat,
	upstream.EmbeddingsPath: askEmbed,
}

// Ask implements upstream.Dialect.
func (d Dialect) Ask(r *upstream.Request) (upstream.Exchange, error) {
	way, ok := ways[r.Path]
	if !ok {
		return nil, fault.UnsupportedParameter.New("%s has no %s at its provider", r.Model.ID, r.Path)
	}
	return way(d, r, bytes.Join(r.Body, nil))
}

func (d Dialect) now() int64 {
	if d.Now == nil {
		return time.Now().Unix()
	}
	return d.Now().Unix()
}

// method is the path of a model's method.
func method(model, name string) string { return "/models/" + url.PathEscape(short(model)) + ":" + name }

// short is a model's name without the collection's, which Google's lists put before it.
func short(model string) string { return strings.TrimPrefix(model, "models/") }

// early reports whether a model is of a generation before the third, which thinks by budgets and not by levels, and sees
// no resolution of one picture nor pictures in a function's result.
func early(model string) bool {
	return strings.HasPrefix(short(model), "gemini-1") || strings.HasPrefix(short(model), "gemini-2")
}

// restless reports whether a model is one of the early that cannot be kept from thinking.
func restless(model string) bool { return strings.HasPrefix(short(model), "gemini-2.5-pro") }

// lenient: an answer is read as far as it is JSON, and written as far as it is text.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

func present(value jsontext.Value) bool { return len(value) > 0 && value.Kind() != 'n' }
