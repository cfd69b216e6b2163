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
			if !held.take(int64(len(all))) {
				return all, errNoRoom
			}
			all = append(all, 0)[:len(all)]
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
		return &failure{class: over, err: err, fault: fault.Unavailable.Because(err, "the charge could not be recorded; nothing was charged").In(time.Second)}
	}
	r.gateway.Watch.first(r)
	r.head("application/json", len(body))
	r.write(body)
	later()
	return nil
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
	if json.Unmarshal(value, &u, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) != nil || u.Prompt == nil {
		return nil
	}
	return &live.Usage{
		Input: int64(*u.Prompt), Output: u.Completion.or0(),
		Cached: min(u.PromptDetails.Cached.or0(), int64(*u.Prompt)), Reasoning: min(u.CompletionDetails.Reasoning.or0(), u.Completion.or0()),
	}
}

// A count is a number of tokens: whole, not below zero, and not beyond reason.
type count int64

const maxCount = 1 << 40

func (c *count) or0() int64 {
	if c == nil {
		return 0
	}
	return int64(*c)
}

// UnmarshalJSON accepts 12 and 12.0, which some providers write.
func (c *count) UnmarshalJSON(data []byte) error {
	f, err := strconv.ParseFloat(string(data), 64)
	if err != nil || f < 0 || f != math.Trunc(f) {
		return errors.New("is no count")
	}
	*c = count(min(f, maxCount))
	return nil
}

// textOf is the text of an answer's choices: what a model wrote, tool calls included.
func textOf(choices []byte) []byte {
	var all []struct {
		Message written `json:"message"`
	}
	if json.Unmarshal(choices, &all, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) != nil {
		return nil
	}
	var text []byte
	for i := range all {
		text = all[i].Message.append(text)
	}
	return text
}

// written is what a model wrote, in a message or in a piece of one.
type written struct {
	Content   *string `json:"content"`
	Reasoning *string `json:"reasoning_content"`
	Refusal   *string `json:"refusal"`
	ToolCalls []struct {
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

func (w *written) append(to []byte) []byte {
	for _, part := range []*string{w.Reasoning, w.Content, w.Refusal} {
		if part != nil {
			to = append(to, *part...)
		}
	}
	for i := range w.ToolCalls {
		to = append(append(to, w.ToolCalls[i].Function.Name...), w.ToolCalls[i].Function.Arguments...)
	}
	return to
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
	if json.Unmarshal(text, &envelope, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) != nil {
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
	case json.Unmarshal(value, &plain, jsontext.AllowInvalidUTF8(true)) == nil:
		t.message = plain
	case json.Unmarshal(value, &object, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) == nil:
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
