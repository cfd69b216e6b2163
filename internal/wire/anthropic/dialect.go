// Package anthropic translates OpenAI's chat completions to Anthropic's Messages API (POST /messages, anthropic-version
// 2023-06-01): requests, answers, streams and errors. It does no I/O. Other endpoints, and parameters without an
// equivalent, are refused by name.
//
// How the differences between the two APIs are handled, in requests:
//
//   - Leading system and developer messages become the system prompt. Later ones become system turns, which the API
//     allows between a user's turn and the assistant's, and at the end. Elsewhere, and for models without system
//     turns, they are refused: moving one would change its meaning.
//   - A conversation that ends with an assistant message is sent as it is. Anthropic continues that message or refuses
//     it.
//   - Blank texts are left out, because Anthropic refuses them. An assistant message that is blank is left out; a
//     blank user message is refused.
//   - A refusal in the history is sent as text of the assistant.
//   - Thoughts are sent back with their signature to the model that produced them, at their position. Thoughts of
//     other models and unsigned thoughts are left out.
//   - A parameter that a model is known not to support is refused before anything is sent, so that a fallback model
//     can be tried. Models are recognized by their name.
//   - Call ids that Anthropic would refuse are escaped, in calls and in results alike.
//   - user and safety_identifier are sent as a hash, because Anthropic refuses e-mail addresses and the like.
//   - metadata, prompt_cache_key and prompt_cache_retention are accepted and not sent. So is the name of a tool
//     message, if it is the name of the function.
//   - The name of a schema is not sent. Anthropic always enforces a schema, whether strict or not.
//   - reasoning_effort becomes the effort of adaptive thinking with summarized thoughts; models that think by default
//     are asked for summaries as well. Older models get a thinking budget, which is a share of max_tokens. The effort
//     minimal is supported by models with a budget only. The effort none disables thinking; a model that cannot
//     disable it fully thinks between tool calls only, or refuses none.
//
// And in answers:
//
//   - OpenAI's message has one text, one list of thoughts and one list of calls. Each keeps its order, and each
//     thought its position. How texts and calls alternated between two thoughts is lost.
//   - pause_turn becomes the finish reason length. An unknown stop reason is an error, because its meaning is unknown.
//   - Not translated, because OpenAI's API has no field and no request of ours depends on it: the matched stop
//     sequence, the category of a refusal, the container, diagnostics, the caller of a tool, the service tier, speed
//     and region, and the provider's request id.
//   - Events of unknown type are ignored, as Anthropic's versioning rules require. They carry no content.
package anthropic

import (
	"bytes"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/chat"
	"sovereign/internal/wire/upstream"
)

// path is the endpoint below the provider's base URL.
const path = "/messages"

// apiName is the name of the API in errors.
const apiName = "Messages API"

// Dialect implements upstream.Dialect for the Messages API.
type Dialect struct {
	Now func() time.Time // time of an answer, which Anthropic does not send; nil means time.Now
}

// NewExchange implements upstream.Dialect.
func (d Dialect) NewExchange(r *upstream.Request) (upstream.Exchange, error) {
	if r.Path != upstream.ChatPath {
		return nil, fault.UnsupportedParameter.New("%s has no equivalent in the %s", r.Path, apiName)
	}
	body := bytes.Join(r.Body, nil)
	request, err := chat.Decode(body)
	if err != nil {
		return nil, err
	}
	if err := chat.CheckParameters(body, expressible, apiName); err != nil {
		return nil, err
	}
	q, err := newMessagesRequest(request, r.Model)
	if err != nil {
		return nil, err
	}
	q.Stream = r.Stream
	encoded, err := json.Marshal(q)
	if err != nil {
		return nil, fault.InvalidBody.Because(err, "the request cannot be written for the %s", apiName)
	}
	now := time.Now
	if d.Now != nil {
		now = d.Now
	}
	e := &exchange{body: encoded, created: now().Unix()}
	e.requestedModel = q.Model
	e.out = chat.Stream{Created: e.created, Usage: request.WantsUsage()}
	return e, nil
}

// exchange is one request and the state of its stream.
type exchange struct {
	body    []byte
	created int64
	streamState
}

// Request implements upstream.Exchange.
func (e *exchange) Request() (string, []byte) { return path, e.body }
