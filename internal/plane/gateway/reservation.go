package gateway

import (
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/limit"
)

// A reservation is a part of a workspace's share of the memory for bodies and answers.
type reservation struct {
	share *limit.Share
	bytes int64
}

// take adds n bytes to the reservation. It returns false if the share is exhausted.
func (r *reservation) take(n int64) bool {
	if !r.share.Take(n) {
		return false
	}
	r.bytes += n
	return true
}

// release gives all bytes back.
func (r *reservation) release() { r.share.Give(r.bytes) }

var errBufferFull = fault.RateLimited.New("too many bytes in flight").In(time.Second)
