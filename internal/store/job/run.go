package job

import (
	"context"
	"errors"
	"fmt"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

// Work does a job, or what is left of it: earlier runs may have ended between any two of their writes. It reads from
// the database what is done, and returns when ctx ends.
//
// A refusal (fault.Fault) fails the job with its message, unless it says when to retry. Any other error, and a panic,
// fails the job after a few tries: the log gets the error, and the caller reads "internal error". Nil means that
// everything is done, unless ctx has ended: then what is left is resumed.
type Work func(ctx context.Context, run *Run) error

// A Run is one run of a job, from its claim to its end.
type Run struct {
	Workspace tenant.ID
	ID        string
	Kind      string

	runner *Runner
	claim  string
	extra  bool // it runs beside the slots, because a caller waits for it
	ctx    context.Context
	end    context.CancelCauseFunc
	// writing is a mutex that respects contexts: concurrent writes to one row would only cause serialization
	// failures.
	writing chan struct{}
}

// Tx is the only way in which a run writes. In one transaction it checks that the job's claim is still this run's and
// that the job is not cancelled, runs fn, and stores fn's changes to the tally: each unit is counted if and only if
// it is written. Otherwise it returns ErrLost or ErrCancelled, and nothing is written. fn may run more than once, so
// it must set what it returns from scratch.
//
// After any other error it is unknown whether the transaction committed; the next run reads that from the database.
// While the server stops, a run may still save what it has, with a context.WithoutCancel of its own. Tx is safe for
// concurrent use.
func (r *Run) Tx(ctx context.Context, fn func(*db.Tx, *Tally) error) error {
	return r.write(ctx, (*record).mayWrite, fn, func(*record) error { return nil })
}

// Save is like Tx, but also succeeds when the job is cancelled: what the run has paid for is stored and counted.
func (r *Run) Save(ctx context.Context, fn func(*db.Tx, *Tally) error) error {
	return r.write(ctx, (*record).hasClaim, fn, func(*record) error { return nil })
}

// Finish is like Tx, and sets the job to DONE in the same transaction.
func (r *Run) Finish(ctx context.Context, fn func(*db.Tx, *Tally) error) error {
	return r.write(ctx, (*record).mayWrite, fn, func(j *record) error { return j.move(Done, r.runner.now()) })
}

func (r *Run) write(
	ctx context.Context, may func(*record, string) error, fn func(*db.Tx, *Tally) error, then func(*record) error,
) error {
	select {
	case r.writing <- struct{}{}:
		defer func() { <-r.writing }()
	case <-ctx.Done():
		return r.withCause(ctx.Err())
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
			j.applyTally(tally)
			return then(j)
		})
	})
	if errors.Is(err, errMissing) {
		err = ErrLost
	}
	if errors.Is(err, ErrLost) || errors.Is(err, ErrCancelled) {
		r.end(err)
	}
	return r.withCause(err)
}

// cause returns what ended the run, or nil while it lasts.
func (r *Run) cause() error { return context.Cause(r.ctx) }

// withCause adds the cause to an error that only says that the context ended.
func (r *Run) withCause(err error) error {
	if cause := r.cause(); cause != nil && errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

func (r *Run) key() key { return key{r.Workspace, r.ID} }
