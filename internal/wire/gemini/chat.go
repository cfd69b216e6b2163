package gemini

import (
	"github.com/go-json-experiment/json"

	"sovereign/internal/wire/chat"
	"sovereign/internal/wire/upstream"
)

// An exchange is one chat, and how far its stream has come.
type exchange struct {
	path  string
	body  []byte
	id    string // of our request, where Google names no answer
	model string
	made  int64
	n     int  // answers that are asked for
	one   bool // call at a time, if any
	usage bool // the caller wants to see it

	stream  *chat.Stream // from the first event on
	voices  map[int]*voice
	ended   int         // candidates
	blocked bool        // the prompt was, and no candidate comes any more
	count   *chat.Usage // the last that was told
	over    bool        // everything is said
	broken  bool        // a failure was told
}

func askChat(d Dialect, r *upstream.Request, body []byte) (upstream.Exchange, error) {
	asked, err := chat.Decode(body)
	if err != nil {
		return nil, err
	}
	if err := chat.Only(body, expressible, wire); err != nil {
		return nil, err
	}
	if o := asked.StreamOptions; o != nil && o.IncludeObfuscation != nil && *o.IncludeObfuscation {
		return nil, chat.Unsupported("stream_options.include_obfuscation", "cannot be expressed in the "+wire)
	}
	asked.Stream = r.Stream
	e := &exchange{
		path: method(r.Model.Upstream, "generateContent"), id: r.ID, model: r.Model.Upstream, made: d.now(),
		n: 1, usage: asked.WantsUsage(), voices: map[int]*voice{},
	}
	if r.Stream {
		e.path = method(r.Model.Upstream, "streamGenerateContent?alt=sse")
	}
	if asked.N != nil {
		e.n = int(*asked.N)
	}
	e.one = asked.ParallelToolCalls != nil && !*asked.ParallelToolCalls
	said, err := say(asked, r.Model.Upstream)
	if err != nil {
		return nil, err
	}
	if e.body, err = json.Marshal(said); err != nil {
		return nil, chat.Refuse(err)
	}
	return e, nil
}

// say is a chat in Gemini's words.
func say(r *chat.Request, model string) (*generateRequest, error) {
	conversation, err := converse(r.Messages, early(model))
	if err != nil {
		return nil, err
	}
	said := &generateRequest{Contents: conversation.turns}
	if len(conversation.system) > 0 {
		said.SystemInstruction = &content{Parts: conversation.system}
	}
	if said.GenerationConfig, err = settings(r, model); err != nil {
		return nil, err
	}
	if said.Tools, err = declare(r.Tools); err != nil {
		return nil, err
	}
	said.ToolConfig, err = choose(r.ToolChoice, r.Tools)
	return said, err
}

// Wire implements upstream.Exchange.
func (e *exchange) Wire() (path string, body []byte) { return e.path, e.body }
