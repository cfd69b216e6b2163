package gateway

import (
	"sovereign/internal/plane/engines"
	"sovereign/internal/plane/gateway/plan"
)

// attemptEngine is an attempt at an own model, which an engine of the server answers. It waits for one, which may have
// to be started. The wait is bounded by the engines' own bound, not by the timeout of a try.
func (r *run) attemptEngine(c *plan.Candidate) (failed *failure) {
	lease, failed := r.acquireEngine(c)
	if failed != nil {
		return failed
	}
	defer func() { lease.Release(failed != nil && (failed.class == broken || failed.class == silent)) }()
	return r.attemptVia(lease, c)
}

// acquireEngine waits for an engine. A caller that leaves waits no longer.
func (r *run) acquireEngine(c *plan.Candidate) (*engines.Lease, *failure) {
	r.response.waiting.Store(true)
	defer r.response.waiting.Store(false)
	if r.response.left.Load() { // before callerLeft could see that it waits
		r.deadline.End(errLeft)
	}
	lease, err := r.gateway.Engines.Acquire(&r.deadline.Life, c.Engines, c.Upstream)
	r.clock.waitedForOthers()
	if err != nil {
		return nil, connectionFailure(c, r.deadline.Cause(), err)
	}
	return lease, nil
}
