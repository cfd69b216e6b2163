package job

import (
	"context"
	"time"

	"sovereign/internal/base/tenant"
)

// Wait returns a job when it has ended. It returns ErrStopping when this runner stops first, and an ErrLost when it is
// paused: the job goes on later, and can be waited for again. When ctx ends the job goes on as well.
func (r *Runner) Wait(ctx context.Context, ws tenant.ID, id string) (Job, error) {
	poll := time.NewTicker(r.pollEvery) // for what another server ends
	defer poll.Stop()
	for {
		ended, unable := r.waiting()
		j, err := Get(ctx, r.db.In(ws), id)
		switch {
		case err != nil || j.Status.Ended():
			return j, err
		case unable != nil:
			return j, unable
		}
		select {
		case <-ended:
		case <-poll.C:
		case <-ctx.Done():
			return j, ctx.Err()
		}
	}
}

// waiting returns a channel that is closed when the next run ends, and the reason why no run will begin, if there is
// one.
func (r *Runner) waiting() (ended <-chan struct{}, unable error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		return r.ended, ErrStopping
	}
	return r.ended, r.paused
}

// announce wakes every Wait. The caller holds r.mu.
func (r *Runner) announce() {
	close(r.ended)
	r.ended = make(chan struct{})
}
