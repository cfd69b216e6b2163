package gateway

import (
	"context"
	"errors"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/plane/gateway/deadline"
	"sovereign/internal/plane/meter"
)

// checkModels refuses a model that the limits of the key or the workspace do not allow. A name that the caller sends
// must be allowed itself. For an alias it is enough that every model is allowed that may answer.
func (r *run) checkModels() error {
	q := r.request
	if !q.Pass.AllowModel(q.Model) && (r.plan.Alias == "" || !r.allowsAll()) {
		return notAllowed("model", q.Model)
	}
	for _, name := range q.Fallbacks {
		if !q.Pass.AllowModel(name) {
			return notAllowed("models", name)
		}
	}
	return nil
}

// allowsAll reports whether every model that may answer is allowed.
func (r *run) allowsAll() bool {
	for i := range r.plan.Priced {
		if !r.request.Pass.AllowModel(r.plan.Priced[i].ID) {
			return false
		}
	}
	return true
}

func notAllowed(field, name string) error {
	f := fault.ModelNotAllowed.New("the limits of this API key, or of its workspace, do not allow the model %q", name)
	f.Field = field
	return f
}

// reserve sets aside what the request may use of the limits: the money that is held for it, and an estimate of its
// tokens.
func (r *run) reserve(worst money.Nano) error {
	q := r.request
	err := q.Pass.Reserve(r.clock.now, r.estimateTokens(), worst)
	if err == nil {
		return nil
	}
	var over *meter.OverBudget // declared here, since errors.As makes it escape
	if errors.As(err, &over) {
		return r.plan.OverBudget(q, worst, over)
	}
	return err
}

// estimateTokens returns the tokens to reserve: the prompt at four bytes per token, and the most output that can come
// back. A request that names no maximum reserves at most the whole limit.
func (r *run) estimateTokens() int64 {
	q := r.request
	limit := q.Pass.TokenLimit()
	if limit == 0 {
		return 0
	}
	const bytesPerToken = 4
	prompt := int64(len(q.Body)) / bytesPerToken
	if q.HasMedia() {
		prompt = q.Tokens().High
	}
	tokens := prompt + r.plan.MaxOutput(q, r.maxTokens)
	if q.MaxTokens == 0 && r.maxTokens == 0 {
		tokens = min(tokens, max(limit, prompt))
	}
	return tokens
}

// settleLimits counts what the request used and cost against the limits. A usage that the request cannot have had
// counts as it was estimated.
func (r *run) settleLimits() {
	tokens := r.bill.used.Input + r.bill.used.Output
	if tokens > 0 && r.request.Pass.TokenLimit() > 0 && !r.bill.plausible(r.bill.used) {
		tokens = r.estimateTokens()
	}
	r.request.Pass.Settle(&r.request.Caller, r.clock.now, tokens, r.bill.tab.Spent())
}

// denied returns the cause with which a running request must end, or nil.
func (r *run) denied(now time.Time) error {
	q := r.request
	switch {
	case q.Grant == nil:
		return nil
	case q.Grant.Ended():
		return errRevoked
	case r.gateway.Meter.Expired(&q.Caller, now):
		return errExpired
	default:
		return nil
	}
}

// EndDenied ends the running requests whose key would be refused now. Streams end with an error event.
func (g *Gateway) EndDenied() {
	now := time.Now()
	g.requests.EndIf(func(d *deadline.Deadline) error {
		r, _ := d.Owner.(*run)
		return r.denied(now)
	})
}

// expiryInterval is how often running requests are checked for keys that have expired.
const expiryInterval = 500 * time.Millisecond

// WatchExpiry ends the running requests of keys that expire, until ctx ends.
func (g *Gateway) WatchExpiry(ctx context.Context) {
	tick := time.NewTicker(expiryInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if g.Meter.Expiring() {
				g.EndDenied()
			}
		}
	}
}
