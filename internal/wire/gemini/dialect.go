// Package gemini speaks version v1beta of Google's Gemini API, below https://generativelanguage.googleapis.com/v1beta.
// It translates chat completions to generateContent and streamGenerateContent, embeddings to batchEmbedContents, and
// their answers, streams and errors. It does no I/O.
//
// Refused by name: other endpoints, parameters and content parts without an equivalent, system messages after the
// conversation has started, log probabilities in streams, input in tokens and more than 100 texts in one embedding
// call. Thoughts and thought signatures are returned in reasoning_details and extra_content, with their position, so
// that they can be sent back as they were.
package gemini

import (
	"bytes"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/chat"
	"sovereign/internal/wire/upstream"
)

// Dialect implements upstream.Dialect for the Gemini API.
type Dialect struct {
	Now func() time.Time // time of an answer, which Google does not send; nil means time.Now
}

// apiName is the name of the API in errors.
const apiName = "Gemini API"

// endpoints are the endpoints that have an equivalent.
var endpoints = map[string]func(d Dialect, r *upstream.Request, body []byte) (upstream.Exchange, error){
	upstream.ChatPath:       newChatExchange,
	upstream.EmbeddingsPath: newEmbedExchange,
}

// NewExchange implements upstream.Dialect.
func (d Dialect) NewExchange(r *upstream.Request) (upstream.Exchange, error) {
	newExchange, ok := endpoints[r.Path]
	if !ok {
		return nil, fault.UnsupportedParameter.New("%s has no %s at its provider", r.Model.ID, r.Path)
	}
	return newExchange(d, r, bytes.Join(r.Body, nil))
}

func (d Dialect) now() int64 {
	if d.Now == nil {
		return time.Now().Unix()
	}
	return d.Now().Unix()
}

// methodPath returns the path of a model's method.
func methodPath(model, name string) string {
	return "/models/" + url.PathEscape(modelName(model)) + ":" + name
}

// modelName removes the prefix models/, which Google's model lists use.
func modelName(model string) string { return strings.TrimPrefix(model, "models/") }

// beforeGemini3 reports whether a model is older than Gemini 3. Such models think by a budget and not by a level, and
// accept neither a resolution for one image nor images in a function's result.
func beforeGemini3(model string) bool {
	return strings.HasPrefix(modelName(model), "gemini-1") || strings.HasPrefix(modelName(model), "gemini-2")
}

// alwaysThinks reports whether thinking cannot be disabled, for models before Gemini 3.
func alwaysThinks(model string) bool { return strings.HasPrefix(modelName(model), "gemini-2.5-pro") }

// lenient accepts duplicate names and invalid UTF-8 in a provider's answer.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// exchange is one chat request and the state of its stream.
type exchange struct {
	path         string
	body         []byte
	id           string // our request id, used when Google sends no response id
	model        string
	created      int64
	choices      int  // requested number of choices
	singleCall   bool // parallel_tool_calls is false
	includeUsage bool // the caller asked for the usage

	stream     *chat.Stream // set by the first event
	candidates map[int]*candidateReader
	finished   int         // candidates that have finished
	blocked    bool        // the prompt was blocked: no further candidate follows
	lastUsage  *chat.Usage // the last usage that was reported
	ended      bool        // [DONE] was sent
	failed     bool        // an error was sent
}

func newChatExchange(d Dialect, r *upstream.Request, body []byte) (upstream.Exchange, error) {
	request, err := chat.Decode(body)
	if err != nil {
		return nil, err
	}
	if err := chat.CheckParameters(body, expressible, apiName); err != nil {
		return nil, err
	}
	if o := request.StreamOptions; o != nil && o.IncludeObfuscation != nil && *o.IncludeObfuscation {
		return nil, chat.Unsupported("stream_options.include_obfuscation", "cannot be expressed in the "+apiName)
	}
	request.Stream = r.Stream
	e := &exchange{
		path: methodPath(r.Model.Upstream, "generateContent"), id: r.ID, model: r.Model.Upstream, created: d.now(),
		choices: 1, includeUsage: request.WantsUsage(), candidates: map[int]*candidateReader{},
	}
	if r.Stream {
		e.path = methodPath(r.Model.Upstream, "streamGenerateContent?alt=sse")
	}
	if request.N != nil {
		e.choices = int(*request.N)
	}
	e.singleCall = request.ParallelToolCalls != nil && !*request.ParallelToolCalls
	translated, err := newGenerateRequest(request, r.Model.Upstream)
	if err != nil {
		return nil, err
	}
	if e.body, err = json.Marshal(translated); err != nil {
		return nil, chat.DecodeFault(err)
	}
	return e, nil
}

// Request implements upstream.Exchange.
func (e *exchange) Request() (path string, body []byte) { return e.path, e.body }
