// Package anthropic says OpenAI's chat completions in the words of Anthropic's Messages API, and its answers in ours.
//
// What that wire has no words for is refused by its name. What was decided where the two wires differ:
//
//   - System and developer messages that lead a conversation are its system prompt. Later ones stay where they are, as
//     turns of the system's, which the wire allows between a user's turn and the assistant's, and at the end. Elsewhere,
//     and for models that know no such turns, they are refused: to move one would change what it says.
//   - A conversation that ends with the assistant's words is sent as it is: Anthropic goes on where they stop, or refuses.
//   - A text of nothing, or of white space alone, says nothing, and Anthropic refuses it: it is left out. So is an
//     assistant's message of nothing else; a user's is refused.
//   - A refusal in the history is what the assistant said: a text.
//   - Reasoning goes back with its signature, to the model that thought it, and to where it stood. What another model
//     thought, and what nobody vouches for, was not meant for this one, and is left out.
//   - What a model does not take, as far as its name tells, is refused here, so that a fallback gets its turn.
//   - Ids of calls that Anthropic would refuse, as other providers make them, are escaped, in calls and results alike.
//   - A user is told from others by a hash: Anthropic refuses addresses.
//   - metadata, prompt_cache_key and prompt_cache_retention are for whoever serves the API: they are taken, and go no
//     further. So is the name of a tool's message, where it is the function's.
//   - A schema's name is a label and shapes nothing. The strictness that Anthropic always has is more than was asked.
//   - reasoning_effort is the effort of adaptive thinking, whose text is asked for, also where a model thinks unasked;
//     models from before that get a budget, a share of their max_tokens. Anthropic knows nothing as little as minimal,
//     save the least of budgets. To a model that cannot wholly rest, none is no thinking but between calls.
//   - A reply of OpenAI's has one text, one list of thoughts and one of calls. Each keeps its order, and a thought its
//     place among the others; how texts and calls were mixed between two thoughts is not told.
//   - An answer that pauses is cut short: length. A stop reason that nobody knows is an error, for to call it the end
//     could be a lie.
//
// Of an answer these are not told, for OpenAI's wire has no place for them and nothing we ask for depends on them: which
// stop sequence it was, the category of a refusal, the container, the diagnostics, who called a tool, the tier, the
// speed and the place that served it, and the provider's id of a failed request. Events of a type that nobody knows are
// passed over, as the wire's rules of versions ask; content comes in none of them.
package anthropic

import (
	"bytes"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/chat"
	"sovereign/internal/wire/upstream"
)

// path is the endpoint, below the provider's base URL.
const path = "/messages"

// wire is what refusals call it.
const wire = "Messages API"

// Dialect is Anthropic's wire.
type Dialect struct {
	Now func() time.Time // when an answer was made; nil for the clock's
}

// Ask says a chat request in Anthropic's words.
func (d Dialect) Ask(r *upstream.Request) (upstream.Exchange, error) {
	if r.Path != upstream.ChatPath {
		return nil, fault.UnsupportedParameter.New("%s has no equivalent in the %s", r.Path, wire)
	}
	body := bytes.Join(r.Body, nil)
	request, err := chat.Decode(body)
	if err != nil {
		return nil, err
	}
	if err := chat.Only(body, expressible, wire); err != nil {
		return nil, err
	}
	q, err := ask(request, r.Model)
	if err != nil {
		return nil, err
	}
	q.Stream = r.Stream
	said, err := json.Marshal(q)
	if err != nil {
		return nil, fault.InvalidBody.Because(err, "the request cannot be written for the %s", wire)
	}
	now := time.Now
	if d.Now != nil {
		now = d.Now
	}
	e := &exchange{body: said, created: now().Unix()}
	e.asked = q.Model
	e.out = chat.Stream{Created: e.created, Usage: request.WantsUsage()}
	return e, nil
}

// An exchange is one request and what has come of its answer.
type exchange struct {
	body    []byte
	created int64
	progress
}

// Wire implements upstream.Exchange.
func (e *exchange) Wire() (string, []byte) { return path, e.body }
