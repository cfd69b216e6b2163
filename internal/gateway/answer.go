package gateway

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/fault"
	"sovereign/internal/limit"
	"sovereign/internal/live"
	"sovereign/internal/scan"
	"sovereign/internal/upstream"
)

// maxAnswer bounds a whole answer.
const maxAnswer = 64 << 20

// readAll reads to the end, holding what it reads against a budget.
func readAll(from io.Reader, most int, held *account) ([]byte, error) {
	all := make([]byte, 0, 4096)
	for {
		n, err := from.Read(all[len(all):cap(all)])
		all = all[:len(all)+n]
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return all, err
		case len(all) > most:
			return all, fmt.Errorf("%w: it is longer than %d bytes", upstream.ErrGarbage, most)
		case len(all) == cap(all):
			if !held.take(int64(cap(all))) {
				return all, errNoRoom
			}
			all = append(make([]byte, 0, 2*cap(all)), all...)
		}
	}
}

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
	body, err := readAll(in, maxAnswer, held)
	if errors.Is(err, errNoRoom) {
		return &failure{class: over, err: err, fault: errNoRoom}
	}
	if err != nil {
		return r.lost(in.ctx, err)
	}
	members, err := scan.Object(body, nil)
	if err != nil {
		return r.garbage(fmt.Errorf("the answer %w", err))
	}
	content := false
	var choices []byte
	for _, m := range members {
		switch m.Name {
		case "error":
			if string(m.Value) != "null" {
				return r.inside(m.Value)
			}
		case "usage":
			r.reported = usageOf(m.Value)
		case "choices", "data":
			n, array := scan.Count(m.Value, 1)
			content, choices = array && n > 0, m.Value
		}
	}
	if !content {
		return r.garbage(errors.New("the answer holds no choices and no data"))
	}
	if r.reported == nil && r.ask.Endpoint.kind == live.Chat {
		r.delivered = textOf(choices)
	}
	later, err := r.settle(Finished)
	if err != nil {
		return &failure{class: over, err: err, fault: unrecorded(err)}
	}
	r.gateway.Watch.first(r)
	r.head("application/json", len(body))
	r.write(body)
	later()
	return nil
}

func unrecorded(err error) *fault.Fault {
	return fault.Unavailable.Because(err, "charges cannot be recorded now").In(time.Second)
}

// head writes the answer's status and headers.
func (r *run) head(kind string, length int) {
	header := r.out.Header()
	header.Set("Content-Type", kind)
	header.Set("X-Service-Served-Model", r.model.ID)
	if r.plan.alias != "" {
		header.Set("X-Service-Alias", r.plan.alias)
	}
	if length >= 0 {
		header.Set("Content-Length", strconv.Itoa(length))
	}
	r.out.WriteHeader(http.StatusOK)
	r.begun = true
}

// write sends bytes to the caller. A caller who is gone ends the provider's side.
func (r *run) write(p []byte) bool {
	r.clock.away()
	err := r.put(p)
	r.clock.back()
	if err != nil {
		r.cancel(errLeft)
	}
	return err == nil
}

func (r *run) put(p []byte) error {
	if _, err := r.out.Write(p); err != nil {
		return err
	}
	return r.out.Flush()
}

// usageOf reads a usage object. What is missing, or is no count, is nil: it was not reported.
func usageOf(value []byte) *live.Usage {
	var u struct {
		Prompt        *count `json:"prompt_tokens"`
		Completion    *count `json:"completion_tokens"`
		Total         *count `json:"total_tokens"`
		PromptDetails struct {
			Cached *count `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
		CompletionDetails struct {
			Reasoning *count `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	}
	if lenient(value, &u) != nil || u.Prompt == nil {
		return nil
	}
	return &live.Usage{
		Input: int64(*u.Prompt), Output: u.Completion.or0(),
		Cached: min(u.PromptDetails.Cached.or0(), int64(*u.Prompt)), Reasoning: min(u.CompletionDetails.Reasoning.or0(), u.Completion.or0()),
	}
}

// A count is a number of tokens: whole, not below zero, and not beyond reason.
type count int64

// maxCount is beyond any context: a provider that says more is not believed.
const maxCount = 1_000_000_000

func (c *count) or0() int64 {
	if c == nil {
		return 0
	}
	return int64(*c)
}

// UnmarshalJSON accepts 12 and 12.0, which some providers write.
func (c *count) UnmarshalJSON(data []byte) error {
	f, err := strconv.ParseFloat(string(data), 64)
	if err != nil || f < 0 || f > maxCount || f != math.Trunc(f) {
		return errors.New("is no count")
	}
	*c = count(f)
	return nil
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
// do not know, which is content all the same.
func written(message []byte) (text []byte, content bool) {
	members, err := scan.Object(message, nil)
	if err != nil {
		return nil, false
	}
	for _, m := range members {
		switch value := string(m.Value); {
		case m.Name == "role" || value == "null" || value == `""` || value == "[]" || value == "{}":
			continue
		case prose[m.Name]:
			texts(m.Value, func(part string) { text = append(text, part...) })
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
			t.param = *object.Param
		}
		t.status, _ = strconv.Atoi(strings.Trim(string(object.Code), `"`)) // most codes are words
		if object.Type == "rate_limit_error" || string(object.Code) == `"rate_limit_exceeded"` {
			t.status = http.StatusTooManyRequests
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

// inside classifies an error that came where an answer should have been, with status 200.
func (r *run) inside(value []byte) *failure {
	told := r.toldBy(value)
	status := told.status
	if status < http.StatusBadRequest || status > 599 {
		status = http.StatusBadGateway
	}
	f := &failure{err: fmt.Errorf("the provider's answer is an error: %s", told.message)}
	f.class, f.fault = classify(status, told, f.err)
	return f
}
