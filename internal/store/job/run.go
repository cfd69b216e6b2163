package job

import (
	"context"
	"errors"
	"fmt"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

// Work does a job, or what is left of it: a run may come after others that ended anywhere between two of their writes.
// It reads from the database what is done, and returns when ctx ends.
//
// A refusal (fault.Fault) fails the job with its message, unless it says when to come back. So does any other error, a panic
// among them, after a few tries: they are told to the log, and the caller reads that there was one. Nil means
// that everything is done, unless ctx has ended: then what is left is resumed.
type Work func(ctx context.Context, run *Run) error

// A Run is one run of a job, from its claim to its end.
type Run struct {
	Workspace tenant.ID
	ID        string
	Kind      string

	runner *Runner
	claim  string
	ctx    context.Context
	end    context.CancelCauseFunc
	turn   chan struct{} // one write at a time: on one row they would only get in each other's way
}

// Tx is the only way in which a run writes. In one transaction it makes sure that the job is still this run's and not cancelled,
// runs fn, and keeps what fn makes of the tally: each unit is counted if and only if it is written. Else it
// returns ErrLost or ErrCancelled, and nothing is written. fn may run more than once, so it must set what it returns from scratch.
//
// After another error it is unknown whether it took place; the next run reads it from the database.
// While the server stops, a run may still save what it has, in a context.WithoutCancel of its own. For concurrent use.
func (r *Run) Tx(ctx context.Context, fn func(*db.Tx, *Tally) error) error {
	return r.write(ctx, (*record).held, fn, func(*record) error { return nil })
}

// Save is like Tx, for what a run has in hand that is cancelled: what it paid for is kept, and told.
func (r *Run) Save(ctx context.Context, fn func(*db.Tx, *Tally) error) error {
	return r.write(ctx, (*record).claimed, fn, func(*record) error { return nil })
}

// Finish is like Tx, and the job is DONE in the same transaction: neither exists without the other.
func (r *Run) Finish(ctx context.Context, fn func(*db.Tx, *Tally) error) error {
	return r.write(ctx, (*record).held, fn, func(j *record) error { return j.move(Done, r.runner.now()) })
}

func (r *Run) write(ctx context.Context, may func(*record, string) error, fn func(*db.Tx, *Tally) error, then func(*record) error) error {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return r.why(ctx.Err())
	}
	if cause := r.cause(); errors.Is(cause, ErrLost) {
		return cause
	}
	_, err := r.runner.tx(ctx, func(tx *db.Tx) error {
		return change(ctx, tx, r.Workspace, r.ID, func(j *record) error {
			if err := may(j, r.claim); err != nil {
				return err
			}
			tally := Tally{Progress: Progress{Done: j.Done, Total: j.Total}, Cost: j.Cost}
			if err := fn(tx, &tally); err != nil {
				return err
			}
			j.tell(tally)
			return then(j)
		})
	})
	if errors.Is(err, errMissing) {
		err = ErrLost
	}
	if errors.Is(err, ErrLost) || errors.Is(err, ErrCancelled) {
		r.end(err)
	}
	return r.why(err)
}

// cause is what ended the run, or nil while it lasts.
func (r *Run) cause() error { return context.Cause(r.ctx) }

// why names what ended the run, where err is only that it ended.
func (r *Run) why(err error) error {
	if cause := r.cause(); cause != nil && errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

func (r *Run) place() place { return place{r.Workspace, r.ID} }
