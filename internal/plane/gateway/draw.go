package gateway

import (
	"errors"
	"time"

	"sovereign/internal/base/outcome"
	"sovereign/internal/base/panics"
	"sovereign/internal/live"
	"sovereign/internal/plane/capture"
	"sovereign/internal/plane/gateway/deadline"
	"sovereign/internal/plane/gateway/plan"
)

// A drawn is a request that the gate of its alias has drawn. The zero value is a request that was not drawn.
type drawn struct {
	place    capture.Place
	question capture.Question
	sample   outcome.Sample // empty until it is known
	latency  time.Duration  // until it was known
}

// draw lets the alias's gate draw the request, before anything of its outcome is known. Requests are drawn only if they
// would be logged when they finish, because the gate judges what is logged.
func (r *run) draw() {
	g, q := r.plan.Gate, r.request
	if g == nil || !r.progress.logged || !g.Draws(q.ID) || !r.loggable() || r.otherCached() {
		return
	}
	messages, _ := r.texts()
	r.drawn.question = capture.NewQuestion(g.Key, messages)
	r.drawn.place = r.gateway.Recorder.Draw(capture.Split{
		Workspace: q.Caller.Workspace, Alias: r.plan.Alias, Epoch: g.Epoch,
	})
}

// otherCached reports whether the other arm would answer from the cache. An answer from the cache is not drawn. The
// larger arm fills the cache sooner: if the other one's requests were drawn all the same, the arms would be compared on
// different questions.
func (r *run) otherCached() bool {
	if !r.cache.store {
		return false
	}
	key, ok := r.cacheKey(r.plan.Priced[0].ID)
	if ok {
		_, ok = r.gateway.Cache.Get(key, time.Now())
	}
	return ok
}

// loggable reports whether both arms' models are logged, and the request leaves room for an answer.
func (r *run) loggable() bool {
	if len(r.plan.Priced) == 0 { // then neither can be called
		return false
	}
	for _, some := range [...][]plan.Candidate{r.plan.Order, r.plan.Priced} {
		if len(some) > 0 && live.IsDedicated(some[0].ID) {
			return false
		}
	}
	messages, tools := r.texts()
	return len(messages)+len(tools) < capture.MaxSize
}

// decide notes what the request says about its arm. The first result stands: when the arm's model has failed, it does
// not matter what becomes of the fallbacks. A model that cannot be called has failed.
func (r *run) decide(s outcome.Sample) {
	if d := &r.drawn; d.sample == "" {
		if r.plan.Absent != "" {
			s = outcome.Failed
		}
		d.sample, d.latency = s, r.clock.elapsed()
	}
}

// decideFailed is decide for a failure of the model that is attempted.
func (r *run) decideFailed(f *failure) {
	switch {
	case r.response.left.Load():
		r.decide(outcome.Departed)
	case f.class == stopped:
		r.decide(sampleOfCause(r.deadline.Cause()))
	default:
		r.decide(f.sample)
	}
}

// decideSent is decide for an answer that has come. whole says whether the caller was sent all of it.
func (r *run) decideSent(whole bool) {
	if whole {
		r.decide(outcome.Answered)
	} else {
		r.decide(outcome.Departed)
	}
}

// sampleOfCause returns what the end of a request on purpose says about the model. Without a cause, the gateway had no
// memory for the answer, or could not record the charge.
func sampleOfCause(cause error) outcome.Sample {
	if errors.Is(cause, deadline.ErrTooLong) || errors.As(cause, new(*panics.Error)) {
		return outcome.Failed
	}
	return outcome.Excluded
}

// record returns what became of a request that was drawn, or nil for any other. err is the refusal that Serve returns.
func (r *run) record(err error) *capture.Draw {
	d, q := &r.drawn, r.request
	if d.place.Seq == 0 {
		return nil
	}
	switch {
	case d.sample != "":
	case err != nil: // before any attempt
		d.sample = outcome.Excluded
	default: // a panic, which the answer may have caused
		r.decide(outcome.Failed)
	}
	record := &capture.Draw{
		Workspace: q.Caller.Workspace, Alias: r.plan.Alias, Epoch: r.plan.Gate.Epoch,
		Stratum: int64(r.plan.Gate.Stratum), Place: d.place, Request: q.ID, Arm: r.plan.Arm, Outcome: d.sample,
		Latency: d.latency.Microseconds(), Cost: r.bill.tab.Spent(), Question: d.question,
	}
	if r.response.begun {
		record.Model = r.bill.model.ID
	}
	return record
}

// recordDraw records a draw that was not recorded with its exchange. It is called last, also by a panic.
func (r *run) recordDraw(err error) {
	if record := r.record(err); record != nil {
		r.gateway.Recorder.Drawn(record)
	}
}
