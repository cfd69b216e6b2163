package gateway

import (
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/limit"
)

// A reservation is a part of the budget of buffered bytes.
type reservation struct {
	budget *limit.Budget
	bytes  int64
}

// take adds n bytes to the reservation. It returns false if the budget is exhausted.
func (r *reservation) take(n int64) bool {
	if !r.budget.Take(n) {
		return false
	}
	r.bytes += n
	return true
}

// release gives all bytes back.
func (r *reservation) release() { r.budget.Give(r.bytes) }

var errBufferFull = fault.RateLimited.New("too many bytes in flight").In(time.Second)
