// Package responses is OpenAI's Responses API, spoken over chat completions, for providers that lack it. Nothing is stored:
// what a conversation needs goes to the caller and comes back with it, and what asks for a store is refused.
package responses

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/live"
	"sovereign/internal/text/sse"
	"sovereign/internal/wire/chat"
	"sovereign/internal/wire/upstream"
)

// A Bridge is the dialect that asks in chat completions what was asked as a response. Its exchanges are as exact as what it
// is made of: the ids that New makes, such as New("resp"), and the time that Now tells.
type Bridge struct {
	New func(prefix string) string
	Now func() time.Time
}

// Ask implements upstream.Dialect.
func (b Bridge) Ask(r *upstream.Request) (upstream.Exchange, error) {
	if r.Path != upstream.ResponsesPath {
		return nil, fault.UnsupportedParameter.New("%s has no bridge over chat completions", r.Path)
	}
	var q request
	if err := read("", bytes.Join(r.Body, nil), &q); err != nil {
		return nil, err
	}
	asked, err := q.chat(r)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(asked, written)
	if err != nil {
		return nil, fmt.Errorf("write the chat completion: %w", err)
	}
	s := &speech{bridge: b, response: q.echo(), calls: map[int]*growing{}, known: map[string]bool{}}
	if p := r.Model.Provider; p.Protocol == live.OpenAI {
		s.from = p.Name
	}
	s.response.ID, s.response.CreatedAt = b.New("resp"), b.Now().Unix()
	return &exchange{body: body, speech: s}, nil
}

// Refusal implements upstream.Dialect: a refusal of chat's is the same as one of ours.
func (b Bridge) Refusal(status int, body []byte) (int, []byte) { return status, body }

// written and lenient are how JSON is written and how a provider's is read: its text as far as it is text.
var (
	written = json.JoinOptions(jsontext.AllowInvalidUTF8(true))
	lenient = json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
)

// An exchange is one answer on its way.
type exchange struct {
	body   []byte
	speech *speech
	finish string // the reason that the choice gave
	ended  bool
}

// Wire implements upstream.Exchange.
func (x *exchange) Wire() (path string, body []byte) { return upstream.ChatPath, x.body }

// End implements upstream.Exchange. A choice that has finished needs no word of its end, as in chat.
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

// roleFor is how a role is said to a model. The developer's is known to providers that are new enough to want the new
// name of the limit; to others it is the system's.
func roleFor(r *upstream.Request, role string) string {
	if role == chat.Developer && !r.Model.Provider.Modern {
		return chat.System
	}
	return role
}
