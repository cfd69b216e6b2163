package job

import (
	"context"
	"time"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/cluster"
)

// Wait returns a job when it has ended. While a caller waits for a job, it is started before those that nobody waits
// for. Wait returns ErrStopping when this runner stops first, an ErrLost when it is paused, and ErrRetrying when a run
// has failed and the next is not soon: the job goes on later, and can be waited for again. When ctx ends the job goes
// on as well.
func (r *Runner) Wait(ctx context.Context, ws tenant.ID, id string) (Job, error) {
	defer r.await(key{ws, id})()
	poll := time.NewTicker(r.pollEvery) // for what another server ends, if its signal is lost
	defer poll.Stop()
	var resting time.Time // since when the job is seen to rest on another node
	for {
		ended, unable := r.waiting(key{ws, id})
		j, err := Get(ctx, r.db.In(ws), id)
		switch {
		case err != nil || j.Status.Ended():
			return j, err
		case unable != nil:
			return j, unable
		}
		if err := r.restingElsewhere(ctx, ws, id, j.Status, &resting); err != nil {
			return j, err
		}
		select {
		case <-ended:
		case <-poll.C:
		case <-ctx.Done():
			return j, ctx.Err()
		}
	}
}

// restingElsewhere returns ErrRetrying when a job has been seen to rest on another node for longer than a caller waits:
// how long it will is known there alone.
func (r *Runner) restingElsewhere(ctx context.Context, ws tenant.ID, id string, is Status, since *time.Time) error {
	life := r.member.Life()
	if is != Queued || life == (cluster.Life{}) {
		*since = time.Time{}
		return nil
	}
	rests, err := restsElsewhere(ctx, r.db.In(ws), id, life)
	switch {
	case err != nil:
		return err
	case !rests:
		*since = time.Time{}
	case since.IsZero():
		*since = time.Now()
	case time.Since(*since) > patience:
		return ErrRetrying
	}
	return nil
}

// patience is how long a caller waits for the next try of a job that failed.
const patience = 2 * time.Second

// await says that a caller waits for a job, until the returned function is called.
func (r *Runner) await(at key) (done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.awaited[at]++
	r.wakeUp()
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.awaited[at]--; r.awaited[at] == 0 {
			delete(r.awaited, at)
		}
	}
}

// waiting returns a channel that is closed when the next run ends, and the reason why no run of the job will begin
// soon, if there is one.
func (r *Runner) waiting(at key) (ended <-chan struct{}, unable error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		return r.ended, ErrStopping
	}
	for _, b := range r.backoffs {
		if b.key == at && time.Until(b.until) > patience {
			return r.ended, ErrRetrying
		}
	}
	return r.ended, r.paused
}

// announce wakes every Wait. The caller holds r.mu.
func (r *Runner) announce() {
	close(r.ended)
	r.ended = make(chan struct{})
}
