// Package responses translates OpenAI's Responses API (POST /responses) to chat completions, for providers that lack
// it. It is an upstream.Dialect like anthropic, gemini and cohere, but its other side is chat: a request becomes a chat
// completion, and the answer or stream of a chat completion becomes a response or its events.
//
// Nothing is stored. The state that a conversation needs is returned to the caller in encrypted_content and comes back
// with the next request. Whatever needs storage (previous_response_id, conversation, store, background, item
// references, file ids) is refused by name, as are tools that are not functions, other item types, and parameters
// without an equivalent in chat completions.
//
// The package does no I/O.
package responses

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/text/sse"
	"sovereign/internal/wire/chat"
	"sovereign/internal/wire/upstream"
)

// Dialect implements upstream.Dialect. Its output is deterministic, given the ids that New returns, such as
// New("resp"), and the time that Now returns.
type Dialect struct {
	New func(prefix string) string
	Now func() time.Time
}

// NewExchange implements upstream.Dialect.
func (b Dialect) NewExchange(r *upstream.Request) (upstream.Exchange, error) {
	if r.Path != upstream.ResponsesPath {
		return nil, fault.UnsupportedParameter.New("%s has no bridge over chat completions", r.Path)
	}
	var q request
	if err := decode("", bytes.Join(r.Body, nil), &q); err != nil {
		return nil, err
	}
	translated, err := q.chatRequest(r)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(translated, encoding)
	if err != nil {
		return nil, fmt.Errorf("write the chat completion: %w", err)
	}
	s := &builder{dialect: b, response: q.echo(), calls: map[int]*openItem{}, callIDs: map[string]bool{}}
	if p := r.Model.Provider; p.SpeaksOpenAI() {
		s.provider = p.Name
	}
	s.response.ID, s.response.CreatedAt = b.New("resp"), b.Now().Unix()
	return &exchange{body: body, builder: s}, nil
}

// encoding and lenient are the JSON options for output and for a provider's answer. Both accept invalid UTF-8.
var (
	encoding = json.JoinOptions(jsontext.AllowInvalidUTF8(true))
	lenient  = json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
)

// exchange is one request and the state of its answer.
type exchange struct {
	body    []byte
	builder *builder
	finish  string // finish reason of the choice
	ended   bool
}

// Request implements upstream.Exchange.
func (x *exchange) Request() (path string, body []byte) { return upstream.ChatPath, x.body }

// End implements upstream.Exchange. As in chat, an answer with a finish reason is complete even without [DONE].
func (x *exchange) End(to []byte) ([]byte, error) {
	switch {
	case x.ended:
		return to, nil
	case x.finish == "":
		return to, io.ErrUnexpectedEOF
	default:
		return x.Event(to, sse.Event{Data: done})
	}
}

// chatRole returns the role of a message for the provider. Providers that are not marked as modern know no developer
// role; they get system.
func chatRole(r *upstream.Request, role string) string {
	if role == chat.RoleDeveloper && !r.Model.Provider.Modern {
		return chat.RoleSystem
	}
	return role
}
