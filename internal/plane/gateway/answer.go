package gateway

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/limit"
	"sovereign/internal/live"
	"sovereign/internal/text/scan"
	"sovereign/internal/wire/rerank"
	"sovereign/internal/wire/upstream"
)

// maxAnswer bounds a whole answer.
const maxAnswer = 64 << 20

// An account is a share of a budget.
type account struct {
	budget *limit.Budget
	held   int64
}

func (a *account) take(n int64) bool {
	if !a.budget.Take(n) {
		return false
	}
	a.held += n
	return true
}

func (a *account) back() { a.budget.Give(a.held) }

var errNoRoom = fault.RateLimited.New("too many bytes in flight").In(time.Second)

// whole relays an answer that comes in one piece. It is recorded before its first byte is sent, which is also its last.
func (r *run) whole(in *source) *failure {
	held := &account{budget: r.gateway.Bounds.Buffered}
	defer held.back()
	most := cmp.Or(r.ask.Endpoint.longest, maxAnswer)
	body, err := in.all(most, held)
	switch {
	case errors.Is(err, errNoRoom), errors.Is(err, upstream.ErrMemoryLimit):
		return &failure{class: over, err: err, fault: errNoRoom}
	case errors.Is(err, errTooMuch):
		return r.garbage(fmt.Errorf("the answer is longer than %d bytes", most))
	case err != nil:
		return r.lost(in.life, err)
	}
	body, failed := r.understand(body)
	if failed != nil {
		return failed
	}
	if r.ask.own != nil {
		return r.bring(body)
	}
	if r.reported == nil && r.ask.Endpoint.tells {
		body = r.tell(body)
	}
	later, err := r.settle(Finished)
	if err != nil {
		return &failure{class: over, err: err, fault: unrecorded(err)}
	}
	r.clock.ours()
	r.gateway.Metrics.first(r)
	r.remember(body)
	r.head("application/json", len(body))
	sent := r.write(body)
	later()
	if sent && r.logs {
		r.log(body, r.used, r.cost(r.used))
	}
	return nil
}

// understand reads what an answer says of itself: an error where an answer should be, the usage, and whether what was
// asked for is there at all. It returns the answer as the caller gets it.
func (r *run) understand(body []byte) ([]byte, *failure) {
	var room [16]scan.Member
	members, err := scan.Object(body, room[:0])
	if err != nil {
		return nil, r.garbage(fmt.Errorf("the answer %w", err))
	}
	e := r.ask.Endpoint
	var content []byte
	for _, m := range members {
		switch m.Name {
		case "error":
			if string(m.Value) != "null" {
				return nil, r.inside(m.Value)
			}
		case "usage":
			if e.usage != nil {
				r.reported = e.usage(m.Value)
			}
		case e.answers:
			if m.Elements > 0 || m.Elements == 0 && e.empty {
				content = m.Value
			}
		}
	}
	if e.render != nil {
		if body, r.reported, err = e.render(r, body); err != nil {
			return nil, r.garbage(err)
		}
		return body, nil
	}
	if content == nil {
		return nil, r.garbage(fmt.Errorf("the answer holds no %s", e.answers))
	}
	if r.reported == nil && e.text != nil {
		r.delivered = e.text(content)
	}
	return body, nil
}

// tell puts a usage that we count into an answer that has none, where clients rely on it.
func (r *run) tell(body []byte) []byte {
	end := bytes.LastIndexByte(body, '}')
	n := r.count().Input
	return fmt.Appendf(body[:end:end], `,"usage":{"prompt_tokens":%d,"total_tokens":%d}}`, n, n)
}

// rendered is a reranker's answer, best first, in our own shape whatever the provider's is.
func rendered(r *run, body []byte) ([]byte, *live.Usage, error) {
	body, told, err := rerank.Render(r.ask.question, body, r.ask.ID)
	if err != nil || told == nil {
		return body, nil, err
	}
	used := &live.Usage{Input: told.PromptTokens.Or0(), Searches: told.SearchUnits.Or0()}
	if told.SearchUnits == nil {
		used.Searches = r.searches()
	}
	return body, used, nil
}

func unrecorded(err error) *fault.Fault {
	return fault.Unavailable.Because(err, "charges cannot be recorded now").In(time.Second)
}

// head writes the answer's status and headers.
func (r *run) head(kind string, length int) {
	header := r.out.Header() // names are written as net/http writes them, so that it need not
	values := make([]string, 0, 5)
	set := func(name, value string) {
		values = append(values, value)
		header[name] = values[len(values)-1 : len(values) : len(values)]
	}
	set("Content-Type", kind)
	set("X-Service-Served-Model", cmp.Or(r.served, r.model.ID))
	if r.plan.alias != "" {
		set("X-Service-Alias", r.plan.alias)
	}
	if r.cached != "" {
		set("X-Service-Cache", r.cached)
	}
	if length >= 0 {
		set("Content-Length", strconv.Itoa(length))
	}
	r.out.WriteHeader(http.StatusOK)
	r.begun = true
}

// write sends bytes to the caller. A caller who is gone ends the provider's side.
func (r *run) write(p []byte) bool { return r.wrote(r.out.Send(p)) }

// wrote takes note of how a write went.
func (r *run) wrote(err error) bool {
	r.clock.theirs()
	if err != nil {
		r.term.End(errLeft)
	}
	return err == nil
}

// textOf is the text of an answer's choices: what a model wrote, tool calls included.
func textOf(choices []byte) []byte {
	var all []struct {
		Message jsontext.Value `json:"message"`
	}
	if lenient(choices, &all) != nil {
		return nil
	}
	var text []byte
	for i := range all {
		more, _ := written(all[i].Message)
		text = append(text, more...)
	}
	return text
}

// prose are the members of a message that hold what a model wrote in words, as a text or in parts.
var prose = map[string]bool{"content": true, "reasoning_content": true, "reasoning": true, "refusal": true}

// written is the text of a message, or of a piece of one, and whether it says anything at all: a provider may send what we
// do not know, which is content all the same. The text may be a part of the message itself.
func written(message []byte) (text []byte, content bool) {
	var room [8]scan.Member
	members, err := scan.Object(message, room[:0])
	if err != nil {
		return nil, false
	}
	for i := range members {
		m := &members[i]
		switch value := string(m.Value); {
		case m.Name == "role" || value == "null" || value == `""` || value == "[]" || value == "{}":
			continue
		case prose[m.Name]:
			plain, ok := plainText(m.Value)
			switch {
			case !ok || !utf8.Valid(plain):
				texts(m.Value, func(part string) { text = append(text, part...) })
			case text == nil:
				text = plain[:len(plain):len(plain)]
			default:
				text = append(text, plain...)
			}
		case m.Name == "tool_calls" || m.Name == "function_call":
			text = append(text, called(m.Value)...)
		}
		content = true
	}
	return text, content
}

// called is the names and arguments of calls, whose ids and types no model writes.
func called(value []byte) (text []byte) {
	type function struct{ Name, Arguments string }
	var calls []struct{ Function function }
	var one function
	if lenient(value, &calls) != nil && lenient(value, &one) != nil {
		return nil
	}
	text = append(append(text, one.Name...), one.Arguments...)
	for _, c := range calls {
		text = append(append(text, c.Function.Name...), c.Function.Arguments...)
	}
	return text
}

// lenient decodes what a provider sent, as far as it is JSON.
func lenient(value []byte, into any) error {
	return json.Unmarshal(value, into, json.MatchCaseInsensitiveNames(true), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// told is what a provider says is wrong.
type told struct {
	message string
	param   string
	status  int // where the error names one
}

const maxMessage = 1000

func (r *run) told(text []byte) told {
	var envelope struct {
		Error jsontext.Value `json:"error"`
	}
	if lenient(text, &envelope) != nil {
		return told{message: "the provider refused the request"}
	}
	return r.toldBy(envelope.Error)
}

func (r *run) toldBy(value []byte) told {
	t := told{message: "the provider refused the request"}
	var object struct {
		Message string         `json:"message"`
		Param   *string        `json:"param"`
		Code    jsontext.Value `json:"code"`
		Type    string         `json:"type"`
	}
	var plain string
	switch {
	case lenient(value, &plain) == nil:
		t.message = plain
	case lenient(value, &object) == nil:
		if object.Message != "" {
			t.message = object.Message
		}
		if object.Param != nil {
			t.param = r.redact(*object.Param)
		}
		code := strings.Trim(string(object.Code), `"`)
		if t.status, _ = strconv.Atoi(code); t.status == 0 { // most codes are words
			t.status = meant(object.Type, code)
		}
	}
	if t.message = r.redact(t.message); len(t.message) > maxMessage {
		t.message = strings.ToValidUTF8(t.message[:maxMessage], "") + "…"
	}
	if !utf8.ValidString(t.message) {
		t.message = strings.ToValidUTF8(t.message, "\uFFFD")
	}
	return t
}

// words are what errors without a status say of themselves: whose fault they are.
var words = []struct {
	says   func(kind, code string) bool
	status int
}{
	{func(kind, code string) bool { return kind == "rate_limit_error" || code == "rate_limit_exceeded" }, http.StatusTooManyRequests},
	{func(kind, _ string) bool { return kind == "invalid_request_error" }, http.StatusBadRequest},
	{func(_, code string) bool {
		return code == "context_length_exceeded" || strings.HasPrefix(code, "invalid_") || strings.Contains(code, "image")
	}, http.StatusBadRequest},
}

// meant is the status that an error means by its words, or 0.
func meant(kind, code string) int {
	for _, w := range words {
		if w.says(kind, code) {
			return w.status
		}
	}
	return 0
}

// inside classifies an error that came where an answer should have been, with status 200.
func (r *run) inside(value []byte) *failure {
	told := r.toldBy(value)
	status := told.status
	if status < http.StatusBadRequest || status > 599 {
		status = http.StatusBadGateway
	}
	f := &failure{err: fmt.Errorf("the provider's answer is an error: %s", told.message)}
	f.class, f.fault = r.classify(status, told, f.err)
	return f
}
