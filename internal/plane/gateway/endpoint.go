package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/live"
	"sovereign/internal/text/scan"
	"sovereign/internal/text/sse"
	"sovereign/internal/text/token"
	"sovereign/internal/wire/rerank"
	"sovereign/internal/wire/upstream"
)

// An Endpoint is one kind of inference: how its requests are read, and what its answers mean.
type Endpoint struct {
	Name     string // in usage rows, metrics and spans
	Path     string // at the provider
	kind     live.Kind
	content  string // the member that must be there, and how many elements it may have
	listed   bool   // it must be a list
	most     int
	counted  []string // members that are prompt
	reads    map[string]func(*Ask, []byte) error
	check    func(*Ask) error // of the body as a whole, where it has a shape of ours
	limited  string           // the member that names the most output, where providers agree on it
	stateful bool             // a request may go on from another: no two are the same

	answers string                                          // the member of an answer that holds what was asked for
	empty   bool                                            // it may be empty
	usage   func([]byte) *live.Usage                        // of the member usage
	tells   bool                                            // an answer always has one
	longest int                                             // bytes of a whole answer; 0 for maxAnswer
	text    func([]byte) []byte                             // that a model wrote, in the member answers
	render  func(*run, []byte) ([]byte, *live.Usage, error) // puts an answer into our own shape; nil hands it on as it is

	event  func(*relay, sse.Event) (verdict, *failure) // of a stream
	end    string                                      // of a stream that ended without saying so
	broken func(*relay, *fault.Fault) []byte           // the event that ends a stream with an error
}

// The endpoints.
var (
	Chat = &Endpoint{
		Name: "chat", Path: upstream.ChatPath, kind: live.Chat, content: "messages", listed: true, most: 16_384,
		counted: []string{"messages", "tools", "response_format"},
		reads: map[string]func(*Ask, []byte) error{
			"model": readModel, "models": readFallbacks, "stream": readStream, "stream_options": readStreamOptions,
			"max_tokens": readLimit, "max_completion_tokens": readLimit, "n": readN,
			"service_tier": readTier, "web_search_options": dear("web_search_options"), "search_parameters": dear("search_parameters"),
		},
		answers: "choices", usage: usageOf, text: textOf, event: chatEvent, end: chatEnd, broken: (*relay).chatFailure,
	}
	Embeddings = &Endpoint{
		Name: "embeddings", Path: upstream.EmbeddingsPath, kind: live.Embedding, content: "input", most: 16_384,
		counted: []string{"input"},
		reads:   map[string]func(*Ask, []byte) error{"model": readModel, "models": readFallbacks},
		answers: "data", usage: usageOf, tells: true,
	}
	Rerank = &Endpoint{
		Name: "rerank", Path: upstream.RerankPath, kind: live.Rerank, content: "documents", listed: true, most: 16_384,
		counted: []string{"query", "documents"},
		reads:   map[string]func(*Ask, []byte) error{"model": readModel, "models": readFallbacks, "query": readQuery},
		check:   readQuestion,
		render:  rendered,
	}
	Responses = &Endpoint{
		Name: "responses", Path: upstream.ResponsesPath, kind: live.Chat, content: "input", most: 16_384,
		counted: []string{"input", "instructions", "tools", "text"}, limited: "max_output_tokens", stateful: true,
		reads: map[string]func(*Ask, []byte) error{
			"model": readModel, "models": readFallbacks, "stream": readStream, "max_output_tokens": readLimit, "background": readBackground,
			"previous_response_id": stored("previous_response_id"), "conversation": stored("conversation"), "prompt": stored("prompt"),
			"tools": readTools, "service_tier": readTier, "store": readStore, "input": readInput,
		},
		answers: "output", empty: true, usage: responseUsage, text: responseText, event: responseEvent, broken: (*relay).responseFailure,
	}
)

// limit is the member that names the most output, as a model's provider wants it.
func (e *Endpoint) limit(m *live.Model) string {
	switch {
	case e.limited != "":
		return e.limited
	case m.Provider.Modern:
		return "max_completion_tokens"
	default:
		return "max_tokens"
	}
}

func readQuestion(a *Ask) (err error) {
	a.question, err = rerank.Decode(a.Body)
	return err
}

func readQuery(a *Ask, value []byte) error {
	a.query = token.Body(value).High
	return nil
}

// readBackground refuses an answer that comes after the request is over: nobody would charge for it.
func readBackground(_ *Ask, value []byte) error {
	if string(value) == "false" {
		return nil
	}
	return errors.New("must be false: an answer is charged when it is given")
}

// stored notes a member that refers to what a provider has stored. On the server's own key that could be another
// workspace's.
func stored(member string) func(*Ask, []byte) error {
	return func(a *Ask, _ []byte) error {
		a.stored = member
		return nil
	}
}

// readStore notes a wish to have the answer stored. On the server's own key it would be everybody's.
func readStore(a *Ask, value []byte) error {
	if string(value) == "true" {
		a.stored = "store"
	}
	return nil
}

// readInput notes items that refer to what a provider has stored.
func readInput(a *Ask, value []byte) error {
	decoder := jsontext.NewDecoder(bytes.NewReader(value), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	name := ""
	for {
		t, err := decoder.ReadToken()
		if err != nil {
			return nil //nolint:nilerr // the end, or what the provider will refuse
		}
		if name == "file_id" && t.Kind() == '"' || name == "type" && t.Kind() == '"' && t.String() == "item_reference" {
			a.stored = "input"
		}
		name = ""
		if kind, length := decoder.StackIndex(decoder.StackDepth()); kind == '{' && length%2 == 1 && t.Kind() == '"' {
			name = t.String()
		}
	}
}

// dear notes a member that asks for what has a price of its own.
func dear(member string) func(*Ask, []byte) error {
	return func(a *Ask, _ []byte) error {
		a.dear = member
		return nil
	}
}

// readTier notes a tier that is not the usual one.
func readTier(a *Ask, value []byte) error {
	if tier := string(value); tier != `"auto"` && tier != `"default"` {
		a.dear = "service_tier"
	}
	return nil
}

// readTools notes the first tool that a provider would run itself.
func readTools(a *Ask, value []byte) error {
	var tools []struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(value, &tools); err != nil {
		return errors.New("must be a list of tools")
	}
	for i, t := range tools {
		if t.Type != "function" && t.Type != "custom" {
			a.dear = fmt.Sprintf("tools[%d].type", i)
			return nil
		}
	}
	return nil
}

// searches is the most that a reranker may charge for: a search is a question with up to a hundred documents, of which a
// long one counts as several.
func (a *Ask) searches() int64 {
	if a.Endpoint != Rerank {
		return 0
	}
	const longDocument = 250 // tokens of it, or of it and the question
	return (int64(a.elements)+(a.tokens().High+int64(a.elements)*a.query)/longDocument)/perSearch + 1
}

// perSearch is how many documents a search is of.
const perSearch = 100

// prompt is the members that are prompt.
func (a *Ask) prompt() (parts []scan.Member) {
	for _, m := range a.members {
		for _, name := range a.Endpoint.counted {
			if m.Name == name {
				parts = append(parts, m)
			}
		}
	}
	return parts
}

// twin is the name that the road reads and that differs from name only in its case. Some providers take one for the
// other, and would obey a maximum that the hold has not seen.
func (e *Endpoint) twin(name string) (string, bool) {
	if lower(name) { // as all of ours are
		return "", false
	}
	for known := range e.reads {
		if known != name && strings.EqualFold(known, name) {
			return known, true
		}
	}
	return "", false
}

// lower reports whether a name is written in nothing but small letters, digits and underscores.
func lower(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && c != '_' && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}
