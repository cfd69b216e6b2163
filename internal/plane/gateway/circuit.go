package gateway

import (
	"time"

	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/gateway/plan"
)

// A circuit is an attempt's use of the circuit breaker. An attempt that was allowed is reported exactly once.
type circuit struct {
	gateway *Gateway
	model   *plan.Candidate
	key     string
	allowed time.Time // when the breaker allowed the attempt
	pending bool      // the attempt is not reported yet
}

// allow asks the breaker whether a model may be called.
func (c *circuit) allow(m *plan.Candidate, ws tenant.ID, now time.Time) bool {
	key := m.Circuit(ws)
	if !c.gateway.Breaker.Allow(key, now) {
		return false
	}
	c.model, c.key, c.allowed, c.pending = m, key, now, true
	return true
}

// report tells the breaker how the attempt went: nil for success. A provider that answers is alive, even if it refuses.
// An engine that is not ready says nothing of the model.
func (c *circuit) report(f *failure, now time.Time) {
	if !c.pending {
		return
	}
	c.pending = false
	switch {
	case f == nil:
		c.gateway.Breaker.Done(c.key, c.allowed, now, true)
	case f.class == broken, f.class == silent:
		if c.gateway.Breaker.Done(c.key, c.allowed, now, false) {
			c.gateway.Log.Warn("a model failed too often: its circuit is open, and it is not called for a while",
				"model", c.model.ID, "provider", c.model.Provider.Name, "own_key", c.model.Own != nil)
		}
	case f.class == unready, !f.reportable():
		c.gateway.Breaker.Cancel(c.key, c.allowed)
	default:
		c.gateway.Breaker.Done(c.key, c.allowed, now, true)
	}
}
