package sim

import (
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/live"
)

// reply is one choice of an answer.
type reply struct {
	reasoning string
	text      string
	calls     []toolCall
	finish    string
}

type toolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function functionCall `json:"function"`
}

type functionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// completion is the unstreamed answer.
type completion struct {
	ID          string   `json:"id"`
	Object      string   `json:"object"`
	Created     int64    `json:"created"`
	Model       string   `json:"model"`
	Choices     []choice `json:"choices"`
	Usage       *usage   `json:"usage,omitzero"`
	Fingerprint string   `json:"system_fingerprint"`
}

type choice struct {
	Index    int       `json:"index"`
	Message  assistant `json:"message"`
	Logprobs *struct{} `json:"logprobs"`
	Finish   string    `json:"finish_reason"`
}

type assistant struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	Refusal   *string    `json:"refusal"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

type usage struct {
	Prompt            int64             `json:"prompt_tokens"`
	Completion        int64             `json:"completion_tokens"`
	Total             int64             `json:"total_tokens"`
	PromptDetails     promptDetails     `json:"prompt_tokens_details"`
	CompletionDetails completionDetails `json:"completion_tokens_details"`
}

type promptDetails struct {
	Cached int64 `json:"cached_tokens"`
}

type completionDetails struct {
	Reasoning int64 `json:"reasoning_tokens"`
}

// fingerprint states, like every text, that an answer is simulated.
const fingerprint = "fp_simulated"

func (q *chatRequest) answer(m *live.Model, s settings, key uint64) (answer, error) {
	limit := int64(math.MaxInt32)
	if m.MaxOutput > 0 {
		limit = m.MaxOutput
	}
	for _, most := range []*int64{q.MaxTokens, q.MaxCompletionTokens} {
		if most != nil {
			limit = min(limit, *most)
		}
	}
	n := 1
	if q.N != nil {
		n = int(*q.N)
	}
	replies := make([]reply, n)
	c := replyBuilder{chatRequest: q, model: m, settings: s, tools: q.toolsToCall(), schemaBudget: schemaBudget}
	c.verdict = sync.OnceValue(func() judgement { return s.judge(m, q.userText()) })
	for i := range replies {
		var err error
		if replies[i], err = c.reply(rand.New(rand.NewPCG(key, uint64(i))), limit); err != nil {
			return answer{}, err
		}
	}
	head := completion{
		ID: "chatcmpl-sim-" + strconv.FormatUint(key, 16), Created: createdAt.Std().Unix(),
		Model: m.Upstream, Usage: s.usage.apply(q.tokens(), replies), Fingerprint: fingerprint,
	}
	if q.Stream != nil && *q.Stream {
		includeUsage := q.StreamOptions != nil && q.StreamOptions.IncludeUsage != nil && *q.StreamOptions.IncludeUsage
		return answer{status: http.StatusOK, kind: streamType, frames: newStream(head, replies, s, includeUsage)}, nil
	}
	head.Object = "chat.completion"
	for i, r := range replies {
		message := assistant{Role: "assistant", Reasoning: r.reasoning, ToolCalls: r.calls}
		if len(r.calls) == 0 {
			message.Content = &r.text
		}
		head.Choices = append(head.Choices, choice{Index: i, Message: message, Finish: r.finish})
	}
	return unstreamed(s.fail, framesOf(frame{data: encode(head)})), nil
}

// unstreamed returns an answer that is not streamed, or the failure in its place.
func unstreamed(fail string, body frames) answer {
	a := answer{status: http.StatusOK, kind: jsonType, frames: body}
	switch fail {
	case garbage:
		a.kind, a.frames = "text/html", framesOf(frame{data: []byte(garbageBody)})
	case errorEvent:
		a.frames = framesOf(frame{data: errorInAnswer.envelope()})
	case die:
		first, _ := body()
		a.frames = framesOf(frame{data: first.data[:len(first.data)/2]}, connectionLost)
	}
	return a
}

// apply returns the usage to report; nil for none.
func (r usageOverride) apply(prompt int64, replies []reply) *usage {
	u := usage{Prompt: prompt}
	for _, reply := range replies {
		u.CompletionDetails.Reasoning += tokens(len(reply.reasoning))
		u.Completion += tokens(len(reply.reasoning)) + tokens(len(reply.text))
		for _, c := range reply.calls {
			u.Completion += tokens(len(c.Function.Name) + len(c.Function.Arguments))
		}
	}
	switch r.mode {
	case none:
		return nil
	case zero:
		return &usage{}
	}
	for _, override := range []struct {
		into *int64
		n    int64
	}{{&u.Prompt, r.prompt}, {&u.Completion, r.completion}, {&u.PromptDetails.Cached, r.cached}} {
		if override.n >= 0 {
			*override.into = override.n
		}
	}
	u.CompletionDetails.Reasoning = min(u.CompletionDetails.Reasoning, u.Completion)
	u.Total = u.Prompt + u.Completion
	return &u
}

// replyBuilder generates the choices of one answer.
type replyBuilder struct {
	*chatRequest
	settings
	model        *live.Model
	tools        []int // indexes of the tools to call
	verdict      func() judgement
	schemaBudget int // remaining budget for schemas
}

// reply generates one choice with at most limit tokens, of which at most half are reasoning.
func (q *replyBuilder) reply(rng *rand.Rand, limit int64) (r reply, err error) {
	if q.ReasoningEffort != nil {
		if thought := min(efforts[*q.ReasoningEffort], (limit+1)/2); thought > 0 {
			r.reasoning = q.prose(rng, `Simulated reasoning about `+q.excerpt()+`:`, int(thought)*bytesPerToken)
			limit -= thought
		}
	}
	if len(q.tools) > 0 {
		return q.call(r, rng, limit)
	}
	r.finish = "stop"
	if r.text, err = q.content(rng); err != nil {
		return r, err
	}
	r.text = q.Stop.cutAt(r.text)
	if room := int(limit) * bytesPerToken; len(r.text) > room {
		r.text, r.finish = cut(r.text, room), "length"
	}
	return r, nil
}

// cutAt returns the text before the stop sequence that is complete first.
func (s stopSequences) cutAt(text string) string {
	end, complete := len(text), len(text)+1
	for _, stop := range s {
		if at := strings.Index(text, stop); stop != "" && at >= 0 && at+len(stop) < complete {
			end, complete = at, at+len(stop)
		}
	}
	return text[:end]
}

// call adds tool calls to r, with at most limit tokens together. A call whose name does not fit is left out, with all
// after it.
func (q *replyBuilder) call(r reply, rng *rand.Rand, limit int64) (reply, error) {
	r.finish = "tool_calls"
	for _, i := range q.tools {
		f := functionCall{Name: q.Tools[i].Function.Name, Arguments: "{}"}
		if schema := q.Tools[i].Function.Parameters; !null(schema) {
			arguments, err := generate(schema, rng, &q.schemaBudget, nil)
			if err != nil {
				return r, invalid("tools["+strconv.Itoa(i)+"].function.parameters", "%v", err)
			}
			f.Arguments = string(arguments)
		}
		room := int(limit)*bytesPerToken - len(f.Name)
		if len(f.Arguments) > room {
			r.finish = "length"
		}
		if room < 0 {
			break
		}
		f.Arguments = cut(f.Arguments, room)
		limit -= tokens(len(f.Name) + len(f.Arguments))
		r.calls = append(r.calls, toolCall{
			ID: "call_sim" + strconv.FormatUint(rng.Uint64(), 16), Type: "function",
			Function: f,
		})
	}
	return r, nil
}

// content generates the text of a choice: a value of the requested schema, a judgement, or prose.
func (q *replyBuilder) content(rng *rand.Rand) (string, error) {
	kind := "text"
	if q.ResponseFormat != nil {
		kind = q.ResponseFormat.Type
	}
	switch {
	case kind == "json_schema":
		schema := q.ResponseFormat.JSONSchema.Schema
		if null(schema) {
			schema = jsontext.Value(`{"type":"object"}`)
		}
		value, err := generate(schema, rng, &q.schemaBudget, q.verdict().members(), q.preference())
		if err != nil {
			return "", invalid("response_format.json_schema.schema", "%v", err)
		}
		return string(value), nil
	case q.isJudge():
		return string(encode(q.verdict())), nil
	case kind == "json_object":
		return string(encode(struct {
			Simulated bool   `json:"simulated"`
			Answer    string `json:"answer"`
		}{true, q.plain(rng)})), nil
	default:
		return q.plain(rng), nil
	}
}

// plain generates prose that ends with its quality marker.
func (q *replyBuilder) plain(rng *rand.Rand) string {
	mark := " " + marker(quality(q.Quality, rng.Float64(), rng.Float64()))
	head := "Simulated answer of " + q.model.ID + " to " + q.excerpt()
	if q.lastMessage().Role == "tool" {
		head += ", given " + quote(q.lastMessage().Content.text)
	}
	head += ":"
	if q.tokenCount == 0 {
		return q.prose(rng, head, 0) + mark
	}
	size := int(q.tokenCount) * bytesPerToken
	if size < len(mark)+len("Simulated answer") {
		mark = ""
	}
	return q.prose(rng, head, size-len(mark)) + mark
}

// quality maps two numbers in [0, 1) to the quality of one answer: its mean is share, and with probability share it is
// 0.5 or better.
func quality(share, good, degree float64) float64 {
	q := math.Pow(degree, (1-share)/share) / 2 // has the mean share/2
	if good < share {
		return math.Round(100*(q+0.5)) / 100
	}
	return math.Min(math.Round(100*q)/100, 0.49)
}

// vocabulary are the words of prose, beside the words of the request.
var vocabulary = strings.Fields("about after again always because before between can could does each every first from given here " +
	"if is it later means more never often only other perhaps rather second should so some still such that then therefore this though " +
	"under until usually very what when where which while with")

// prose returns head followed by sentences: cut to size bytes, or up to three bytes less so that no character is split;
// complete sentences when size is 0.
func (q *chatRequest) prose(rng *rand.Rand, head string, size int) string {
	userWords := strings.Fields(normalizeWords(cut(q.userText(), 400)))
	var b strings.Builder
	b.WriteString(head)
	for sentences := 1 + rng.IntN(3); sentences > 0 || b.Len() < size; sentences-- {
		for i := range 5 + rng.IntN(8) {
			word := vocabulary[rng.IntN(len(vocabulary))]
			if i == 0 {
				word = strings.ToUpper(word[:1]) + word[1:]
			} else if len(userWords) > 0 && rng.IntN(3) == 0 {
				word = userWords[rng.IntN(len(userWords))]
			}
			b.WriteString(" " + word)
		}
		b.WriteByte('.')
	}
	if size > 0 {
		return cut(b.String(), size)
	}
	return b.String()
}

// excerpt quotes the user's text.
func (q *chatRequest) excerpt() string { return quote(q.userText()) }

// quote returns the start of s in one line, without the brackets of a marker.
func quote(s string) string {
	const most = 80
	s = strings.Join(strings.Fields(strings.NewReplacer("[", "(", "]", ")").Replace(cut(s, 4*most))), " ")
	if short := cut(s, most); short != s {
		s = short + "…"
	}
	return `"` + s + `"`
}

// cut returns the first size bytes of s, or up to three less so that no character is split.
func cut(s string, size int) string {
	if size >= len(s) {
		return s
	}
	for size > 0 && s[size]&0xC0 == 0x80 {
		size--
	}
	return s[:size]
}
