package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/plane/gateway/plan"
	"sovereign/internal/wire/upstream"
)

// How retries are spaced.
const (
	firstBackoff  = 250 * time.Millisecond
	maxBackoff    = 5 * time.Second
	maxRetryAfter = 5 * time.Second // a longer Retry-After is passed to the caller
)

// attemptAll attempts each model of the plan in turn, with retries, until one has begun to answer or none is left. All
// attempts share one hold. A fallback whose provider cannot express the request is skipped; the model that was asked
// for is not.
func (r *run) attemptAll() error {
	var last *failure
	final := true // for every model
	for i := range r.plan.Order {
		failed := r.attemptModel(&r.plan.Order[i])
		if failed == nil {
			return nil
		}
		if i == 0 {
			r.decideFailed(failed)
		}
		final = final && failed.final
		if failed.class != unsupported || i == 0 {
			last = failed
		}
		if !last.next || i == 0 && failed.class == unsupported || r.deadline.Cause() != nil || r.response.left.Load() {
			break
		}
	}
	if cause := r.deadline.Cause(); cause != nil {
		last.fault = causeFault(cause)
	} else if final {
		last.fault = last.fault.Finally()
	}
	return last.fault
}

// attemptModel attempts one model until it has answered, or a retry would not help.
func (r *run) attemptModel(c *plan.Candidate) *failure {
	var last *failure
	for retries := 0; ; retries++ {
		failed := r.attemptOnce(c)
		if failed == nil {
			return nil
		}
		if failed.class == circuitOpen && last != nil {
			return last.after(retries) // it opened the circuit, and says more
		}
		last = failed
		r.attemptFailed(c, failed)
		if !failed.retry || retries >= r.settings.Retries || failed.retryAfter > maxRetryAfter ||
			r.response.left.Load() ||
			!r.backOff(retries, failed.retryAfter) {
			return failed.after(retries)
		}
	}
}

// backOff waits before a retry: twice as long each time, with jitter, and at least as long as the provider asks. It
// returns false if the request has ended.
func (r *run) backOff(retries int, retryAfter time.Duration) bool {
	longest := min(firstBackoff<<retries, maxBackoff)
	wait := time.NewTimer(retryAfter + longest/2 + rand.N(longest/2))
	defer wait.Stop()
	r.clock.worked()
	defer r.clock.waitedForOthers()
	select {
	case <-wait.C:
		return !r.response.left.Load()
	case <-r.deadline.Done():
		return false
	}
}

// attemptOnce sends the request to a model and relays its answer. It returns nil if the caller has an answer, complete
// or broken off, and a failure if nothing was written and another attempt is possible.
func (r *run) attemptOnce(c *plan.Candidate) *failure {
	r.clock.worked()
	if !r.circuit.allow(c, r.request.Caller.Workspace, r.clock.now) {
		err := errors.New("it failed too often of late")
		return &failure{class: circuitOpen, err: err, fault: fault.Upstream.Because(
			err, "%s is failing with %s, and was not asked", c.Provider.Name, c.ID,
		)}
	}
	if c.Engines != "" {
		return r.attemptEngine(c)
	}
	return r.attemptVia(r.fleet.Sender(c.Model), c)
}

// A requestSender sends a request to a model, as an upstream.Sender does.
type requestSender interface {
	Send(ctx context.Context, r *upstream.Request) (*upstream.Response, error)
}

// attemptVia is attemptOnce of a model that the breaker has allowed, by a sender.
func (r *run) attemptVia(sender requestSender, c *plan.Candidate) *failure {
	call := &r.attempt.first
	if call.Cause() != nil {
		call = new(providerCall)
	}
	r.deadline.BeginAttempt(&call.Life, r.clock.now, r.settings.TryTimeout)
	defer r.deadline.EndAttempt(&call.Life)
	r.bill.beginAttempt(c)
	r.cache.assembly, r.progress.finishReasons = nil, nil

	held := &r.attempt.held
	*held = reservation{share: r.share}
	defer held.release()
	sent := &call.request
	*sent = upstream.Request{
		Model: c.Model, Path: r.request.Endpoint.Path, BodyRef: r.request.BodyRef, Stream: r.request.Stream,
		ID: r.request.ID, Credentials: c.Own, Reserve: held.take,
	}
	sent.Body = r.request.ProviderBody(sent.BodyStorage[:0], c.Model, c.Own != nil, r.maxTokens)
	response, err := sender.Send(&call.Life, sent)
	r.clock.waitedForOthers()
	if err != nil {
		return connectionFailure(c, call.Cause(), err)
	}
	defer func() { _ = response.Body.Close() }()
	r.attempt.source = source{
		deadline: &r.deadline, clock: &r.clock, life: &call.Life, from: response.Body, length: response.Length,
		timeout: r.settings.TryTimeout,
	}
	switch format := formatOf(r.request.Endpoint); {
	case response.Status != http.StatusOK:
		return r.readRefusal(response)
	case r.request.Stream:
		return r.relayStream(&format.stream, response)
	default:
		return r.relayWhole(&format.whole)
	}
}

// maxRefusal bounds what is read of a provider's refusal.
const maxRefusal = 64 << 10

// readRefusal classifies a response with another status than 200.
func (r *run) readRefusal(response *upstream.Response) *failure {
	held := reservation{share: r.share}
	defer held.release()
	body, _ := r.attempt.source.all(maxRefusal, &held) // without its body it is a refusal all the same
	return refusal(r.bill.model, response, body)
}
