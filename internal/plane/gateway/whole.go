package gateway

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"

	"sovereign/internal/base/outcome"
	"sovereign/internal/live"
	"sovereign/internal/plane/infer"
	"sovereign/internal/text/scan"
	"sovereign/internal/wire/upstream"
)

// maxWhole bounds a whole answer.
const maxWhole = 64 << 20

// A wholeFormat is how an endpoint's whole answers are read.
type wholeFormat struct {
	content    string                   // the member that holds what was asked for
	mayBeEmpty bool                     // that member may be an empty list
	usage      func([]byte) *live.Usage // reads the member usage; nil if there is none
	// an answer always has usage: it is added where it is missing
	mustHave bool
	limit    int // bytes of an answer; 0 for maxWhole
	// returns the text that a model wrote, in the member content
	text func([]byte) []byte
	// converts an answer to our own form; nil relays it as it is
	render func(*run, []byte) ([]byte, *live.Usage, error)
}

// relayWhole relays an answer that is not streamed. The charge is recorded before the first byte is sent.
func (r *run) relayWhole(format *wholeFormat) *failure {
	held := reservation{share: r.share}
	defer held.release()
	limit := cmp.Or(format.limit, maxWhole)
	body, err := r.attempt.source.all(limit, &held)
	switch {
	case errors.Is(err, errBufferFull), errors.Is(err, upstream.ErrMemoryLimit):
		return &failure{class: stopped, err: err, fault: errBufferFull}
	case errors.Is(err, errTooLong):
		return unreadable(r.bill.model, fmt.Errorf("the answer is longer than %d bytes", limit))
	case err != nil:
		return connectionFailure(r.bill.model, r.attempt.source.life.Cause(), err)
	}
	body, failed := r.readWhole(format, body)
	if failed != nil {
		return failed
	}
	if r.completion != nil {
		return r.takeCompletion(body)
	}
	if r.response.left.Load() {
		r.decideSent(false)
		r.bill.abandon()
		return nil
	}
	if r.bill.reported == nil && format.mustHave {
		body = r.addUsage(body)
	}
	if body, failed = r.encodeVectors(body, &held); failed != nil {
		return failed
	}
	later, err := r.bill.recordCharge(outcome.Finished)
	if err != nil {
		return unrecorded(err)
	}
	r.answerBegan()
	r.noteFinish(body)
	r.store(body)
	r.begin("application/json", len(body))
	sent := r.response.send(body)
	r.decideSent(sent)
	later()
	if sent && r.progress.logged {
		r.log(body, r.bill.used, r.bill.cost(r.bill.used))
	}
	return nil
}

// takeCompletion takes a whole answer for the product. It is charged when it is kept.
func (r *run) takeCompletion(body []byte) *failure {
	if !r.completion.take(body) {
		return &failure{class: stopped, err: errBufferFull, fault: errBufferFull}
	}
	r.answerBegan()
	r.circuit.report(nil, r.clock.now)
	return nil
}

// keepAnswer gives a whole answer to the product, and charges it after Keep has stored it. Until then the journal knows
// nothing of it. What the journal cannot take then is owed.
func (r *run) keepAnswer() {
	c := r.completion
	used, counted := r.bill.usage()
	answer := &infer.Answer{
		RequestID: r.request.ID, Model: r.bill.model.ID, Body: c.body, Usage: used, Cost: r.bill.cost(used),
		Latency: r.progress.firstContent,
	}
	r.clock.worked()
	if c.err = c.left(); c.err == nil && c.request.Keep != nil {
		c.err = c.request.Keep(answer)
		r.clock.waitedForOthers()
	}
	if c.err == nil {
		r.bill.charge(outcome.Finished, used, counted)
		c.answer = answer
	}
}

// readWhole checks that an answer holds what was asked for and is no error, and reads its usage. It returns the answer
// as the caller gets it.
func (r *run) readWhole(format *wholeFormat, body []byte) ([]byte, *failure) {
	var buffer [16]scan.Member
	members, err := scan.Object(body, buffer[:0])
	if err != nil {
		return nil, unreadable(r.bill.model, fmt.Errorf("the answer %w", err))
	}
	var content []byte
	for _, m := range members {
		switch m.Name {
		case "error":
			if string(m.Value) != "null" {
				return nil, errorInAnswer(r.bill.model, m.Value)
			}
		case "usage":
			if format.usage != nil {
				r.bill.reported = format.usage(m.Value)
			}
		case format.content:
			if m.Elements > 0 || m.Elements == 0 && format.mayBeEmpty {
				content = m.Value
			}
		}
	}
	if format.render != nil {
		if body, r.bill.reported, err = format.render(r, body); err != nil {
			return nil, unreadable(r.bill.model, err)
		}
		return body, nil
	}
	if content == nil {
		return nil, unreadable(r.bill.model, fmt.Errorf("the answer holds no %s", format.content))
	}
	if r.bill.reported == nil && format.text != nil {
		r.bill.delivered = format.text(content)
	}
	return body, nil
}

// addUsage adds a counted usage to an answer without one, because clients rely on it.
func (r *run) addUsage(body []byte) []byte {
	end := bytes.LastIndexByte(body, '}')
	n := r.bill.count().Input
	return fmt.Appendf(body[:end:end], `,"usage":{"prompt_tokens":%d,"total_tokens":%d}}`, n, n)
}
