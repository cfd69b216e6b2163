package request

import (
	"maps"
	"strings"

	"sovereign/internal/live"
	"sovereign/internal/wire/upstream"
)

// An Endpoint is one kind of inference, and how its requests are read.
type Endpoint struct {
	Name     string // in usage rows, metrics and spans
	Path     string // below a provider's base URL
	Kind     live.Kind
	Stateful bool   // a request may continue another one, so that no two are the same
	Form     string // of its answers, where another endpoint has the same name

	content     string // the member that is required
	mustBeList  bool   // that member must be a list
	maxElements int    // of that list
	prompt      []string
	readers     map[string]reader
	check       func(*Request) error // of the whole body; nil for none
	maxTokens   string               // the member that bounds the output, if all providers name it the same
}

// A reader reads the value of one member.
type reader = func(*Request, []byte) error

const maxElements = 16_384

// The endpoints.
var (
	Chat = &Endpoint{
		Name: "chat", Path: upstream.ChatPath, Kind: live.Chat, content: "messages", mustBeList: true,
		maxElements: maxElements, prompt: []string{"messages", "tools", "response_format"},
		readers: map[string]reader{
			"model": readModel, "models": readFallbacks, "stream": readStream, "stream_options": readStreamOptions,
			"max_tokens": readMaxTokens, "max_completion_tokens": readMaxTokens, "n": readN, "service_tier": readTier,
			"web_search_options": priced("web_search_options"), "search_parameters": priced("search_parameters"),
		},
	}
	Embeddings = &Endpoint{
		Name: "embeddings", Path: upstream.EmbeddingsPath, Kind: live.Embedding, content: "input",
		maxElements: maxElements, prompt: []string{"input"},
		readers: map[string]reader{
			"model": readModel, "models": readFallbacks, "encoding_format": readEncoding,
			"embedding_type": readOwnEncoding, "output_dtype": readOwnEncoding,
		},
		check: defaultEncoding,
	}
	Rerank = &Endpoint{
		Name: "rerank", Path: upstream.RerankPath, Kind: live.Rerank, content: "documents", mustBeList: true,
		maxElements: maxElements, prompt: []string{"query", "documents"},
		readers: map[string]reader{"model": readModel, "models": readFallbacks, "query": readQuery},
		check:   readQuestion,
	}
	Responses = &Endpoint{
		Name: "responses", Path: upstream.ResponsesPath, Kind: live.Chat, content: "input", maxElements: maxElements,
		prompt: []string{"input", "instructions", "tools", "text"}, maxTokens: "max_output_tokens", Stateful: true,
		readers: map[string]reader{
			"model": readModel, "models": readFallbacks, "stream": readStream, "max_output_tokens": readMaxTokens,
			"background": readBackground, "previous_response_id": stored("previous_response_id"),
			"conversation": stored("conversation"), "prompt": stored("prompt"), "tools": readTools,
			"service_tier": readTier, "store": readStore, "input": readInput,
		},
	}
	// RerankV2 is Rerank with the answer of Cohere's API.
	RerankV2 = rerankV2()
	// Internal is Chat for the product's own requests: to one model, for a whole answer.
	Internal = internal()
)

func internal() *Endpoint {
	e := *Chat
	e.readers, e.check = maps.Clone(e.readers), checkInternal
	for _, name := range []string{"models", "stream", "stream_options"} {
		e.readers[name] = refuseMember
	}
	return &e
}

func rerankV2() *Endpoint {
	e := *Rerank
	e.Form = "v2"
	return &e
}

// MaxTokensMember returns the member that bounds the output, as a model's provider names it.
func (e *Endpoint) MaxTokensMember(m *live.Model) string {
	switch {
	case e.maxTokens != "":
		return e.maxTokens
	case m.Provider.Modern:
		return "max_completion_tokens"
	default:
		return "max_tokens"
	}
}

// twin returns the member that the gateway reads and whose name differs from name only in case. Some providers accept
// one for the other, and would obey a maximum that the hold does not cover.
func (e *Endpoint) twin(name string) (string, bool) {
	if isLowerCase(name) { // as all known names are
		return "", false
	}
	for known := range e.readers {
		if known != name && strings.EqualFold(known, name) {
			return known, true
		}
	}
	return "", false
}

// isLowerCase reports whether a name has only lower-case letters, digits and underscores.
func isLowerCase(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && c != '_' && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}
