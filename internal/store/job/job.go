// Package job runs durable background work. A job is queued in the transaction that asks for it, is run by one of the
// servers of the database, and is resumed by another from what it has written when that server ends. A run writes only
// through its claim, a fencing token: of two runs of one job, in one process or in two, only the one whose claim is
// stored in the job's row changes anything.
//
// Nothing here depends on a correct wall clock. The clock only dates jobs, and orders those that wait.
package job

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/store/cluster"
)

// A Status is the state of a job.
type Status string

// The statuses.
const (
	Queued    Status = "QUEUED"
	Running   Status = "RUNNING"
	Done      Status = "DONE"
	Failed    Status = "FAILED"
	Cancelled Status = "CANCELLED"
)

// transitions lists every permitted change of status. A running job returns to the queue when its server stops or
// dies, or when it will be tried again.
var transitions = map[Status][]Status{
	Queued:    {Running, Cancelled},
	Running:   {Queued, Done, Failed, Cancelled},
	Done:      {},
	Failed:    {},
	Cancelled: {},
}

// Ended reports whether the status is final.
func (s Status) Ended() bool { return len(transitions[s]) == 0 }

// Progress is how many units of work are done, and of how many, as far as that is known.
type Progress struct {
	Done  int64 `json:"done"`
	Total int64 `json:"total"`
}

// A Tally is what a run keeps up to date: its progress and its cost.
type Tally struct {
	Progress
	Cost money.Nano
}

// A Job is background work as a caller sees it. The record that the job is for embeds it, and selects it with
// Columns.
type Job struct {
	Status     Status `json:"status" enum:"QUEUED,RUNNING,DONE,FAILED,CANCELLED"`
	Progress   `json:"progress"`
	Estimate   money.Nano  `json:"estimated_cost_usd"`
	Cost       money.Nano  `json:"cost_usd"`
	Error      *string     `json:"error" db:"failure"`
	CreatedAt  clock.Time  `json:"created_at"`
	StartedAt  *clock.Time `json:"started_at"`
	FinishedAt *clock.Time `json:"finished_at"`
}

// Why a run ends before its work does. These are the causes of its context, and its writes return them from then on.
var (
	ErrStopping  = errors.New("the server is stopping")
	ErrCancelled = errors.New("the job was cancelled")
	ErrLost      = errors.New("the job is no longer this run's")
)

// ErrRetrying says that a run failed, and that the job will be tried again.
var ErrRetrying = errors.New("the job failed and will be tried again")

const (
	maxAttempts  = 5  // consecutive failures without progress
	maxDeferrals = 30 // consecutive refusals that say when to retry: half an hour or more
	// maxLosses bounds consecutive crashes of the server while the job ran, without progress: the job may be the
	// reason.
	maxLosses         = 10
	maxFailure        = 1000
	firstDelay        = time.Second
	maxDelay          = time.Minute      // for backoff of our own
	maxRequestedDelay = 10 * time.Minute // for what a refusal asks for
)

// A record is the part of a job's row that changes. Its methods are the rules, without the database.
type record struct {
	Kind             string
	Status           Status
	Done, Total      int64
	Cost             money.Nano
	Attempts, Losses int64
	Claim            string
	Node             string // the life that has claimed it
	Epoch            int64
	CancelRequested  bool
	Failure          string
	StartedAt        *clock.Time
	FinishedAt       *clock.Time
}

// take sets the claim and whose it is, or clears it.
func (r *record) take(token string, life cluster.Life) {
	r.Claim, r.Node, r.Epoch = token, life.Node, life.Epoch
}

func (r *record) life() cluster.Life { return cluster.Life{Node: r.Node, Epoch: r.Epoch} }

// move changes the status. Nothing else does. It clears the claim; claim sets it again.
func (r *record) move(to Status, now clock.Time) error {
	if !slices.Contains(transitions[r.Status], to) {
		return fmt.Errorf("a job that is %s cannot become %s", r.Status, to)
	}
	r.Status = to
	r.take("", cluster.Life{})
	if to == Running && r.StartedAt == nil {
		r.StartedAt = &now
	}
	if to.Ended() {
		r.FinishedAt = &now
	}
	return nil
}

// claim takes a waiting job to run it.
func (r *record) claim(token string, life cluster.Life, now clock.Time) error {
	if err := r.setAside(token, life); err != nil {
		return err
	}
	if err := r.move(Running, now); err != nil {
		return err
	}
	r.take(token, life)
	return nil
}

// setAside claims a waiting job and leaves it in the queue.
func (r *record) setAside(token string, life cluster.Life) error {
	if r.Status != Queued || r.Claim != "" {
		return ErrLost
	}
	r.take(token, life)
	return nil
}

// mayWrite returns why the run of that token may not write, or nil.
func (r *record) mayWrite(token string) error {
	if err := r.hasClaim(token); err != nil {
		return err
	}
	if r.CancelRequested {
		return ErrCancelled
	}
	return nil
}

// hasClaim returns ErrLost when that token does not hold the claim of the running job.
func (r *record) hasClaim(token string) error {
	if r.Status != Running || r.Claim != token {
		return ErrLost
	}
	return nil
}

// applyTally stores a run's tally. Progress resets the counts of failures before it.
func (r *record) applyTally(t Tally) {
	if t.Done > r.Done {
		r.Attempts, r.Losses = 0, 0
	}
	r.Done, r.Total, r.Cost = t.Done, t.Total, t.Cost
}

// cancel ends a waiting job, and asks a running one to end. Repeating it is a no-op.
func (r *record) cancel(now clock.Time) error {
	switch {
	case r.Status == Cancelled:
		return nil
	case r.Status.Ended():
		return fault.Conflict("the %s has ended already: it is %s", r.Kind, r.Status)
	}
	r.CancelRequested = true
	if r.Status == Running {
		return nil
	}
	return r.move(Cancelled, now)
}

// releaseClaim takes a job from a claim that no run holds any more. died says that the job may have crashed its
// server.
func (r *record) releaseClaim(token string, died bool, now clock.Time) error {
	if r.Claim != token {
		return ErrLost
	}
	if r.Status != Running {
		r.take("", cluster.Life{})
		return nil
	}
	if died {
		r.Losses++
	}
	switch {
	case r.CancelRequested:
		return r.move(Cancelled, now)
	case r.Losses >= maxLosses:
		r.Failure = fmt.Sprintf("the server ended %d times while this ran", r.Losses)
		return r.move(Failed, now)
	}
	return r.move(Queued, now)
}

// settle sets the status of a job whose work returned err, in a context that ended with cause, or did not end. A job
// that will be tried again returns to the queue with its claim, and waits for the returned delay.
func (r *record) settle(token string, err, cause error, now clock.Time) (wait time.Duration, _ error) {
	if r.Status != Running || r.Claim != token {
		return 0, ErrLost
	}
	switch {
	case r.CancelRequested:
		return 0, r.move(Cancelled, now)
	case cause != nil: // also of a cancellation that was rolled back
		return 0, r.move(Queued, now)
	case err == nil:
		return 0, r.move(Done, now)
	}
	refusal, _ := errors.AsType[*fault.Fault](err)
	if r.Attempts++; r.Attempts < maxTries(refusal) {
		life := r.life()
		moved := r.move(Queued, now)
		r.take(token, life)
		return retryDelay(r.Attempts, refusal), moved
	}
	r.Failure = "internal error"
	if refusal != nil {
		r.Failure = storableText(refusal.Message)
	}
	return 0, r.move(Failed, now)
}

// maxTries returns how often work is tried that fails with this refusal, or, when it is nil, with another error.
func maxTries(refusal *fault.Fault) int64 {
	switch {
	case refusal == nil:
		return maxAttempts
	case refusal.RetryAfter > 0:
		return maxDeferrals
	}
	return 1
}

// retryDelay grows fourfold with each attempt. It is at least what the refusal asks for, up to maxRequestedDelay.
func retryDelay(attempts int64, refusal *fault.Fault) time.Duration {
	wait := min(firstDelay<<(2*min(attempts-1, 10)), maxDelay)
	if refusal != nil {
		wait = max(wait, min(refusal.RetryAfter, maxRequestedDelay))
	}
	return wait
}

// storableText replaces what one of the engines cannot store, and cuts the message to maxFailure characters.
func storableText(message string) string {
	message = strings.ReplaceAll(strings.ToValidUTF8(message, "\uFFFD"), "\x00", "\uFFFD")
	if runes := []rune(message); len(runes) > maxFailure {
		return string(runes[:maxFailure])
	}
	return message
}
