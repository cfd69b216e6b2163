// Package job is durable background work: it is queued in the transaction that asks for it, run by whoever serves the
// database, and resumed from what it has written when that ends. A run writes through its claim alone, so that of two runs
// of one job, in one process or in two, only the one that holds the claim changes anything.
//
// Nothing here depends on the machine's clock being right: it dates jobs, and orders those that wait.
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
)

// A Status is where a job stands.
type Status string

// The statuses.
const (
	Queued    Status = "QUEUED"
	Running   Status = "RUNNING"
	Done      Status = "DONE"
	Failed    Status = "FAILED"
	Cancelled Status = "CANCELLED"
)

// next is every move there is. What runs goes back to the queue when its server stops, dies, or will try again.
var next = map[Status][]Status{
	Queued:    {Running, Cancelled},
	Running:   {Queued, Done, Failed, Cancelled},
	Done:      {},
	Failed:    {},
	Cancelled: {},
}

// Ended reports whether nothing about the job changes any more.
func (s Status) Ended() bool { return len(next[s]) == 0 }

// Progress is how many units of work are done, and of how many, as far as that is known.
type Progress struct {
	Done  int64 `json:"done"`
	Total int64 `json:"total"`
}

// A Tally is what a run keeps up to date: how far the work is, and what it has cost.
type Tally struct {
	Progress
	Cost money.Nano
}

// A Job is background work as a caller sees it. What the work is for embeds it, and reads it with Columns.
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

// Why a run ends before its work does: the cause of its context, and what its writes return from then on.
var (
	ErrStopping  = errors.New("the server is stopping")
	ErrCancelled = errors.New("the job was cancelled")
	ErrLost      = errors.New("the job is no longer this run's")
)

const (
	maxAttempts  = 5  // tries that fail one after the other without progress
	maxReturns   = 30 // or are told to come back: half an hour or more
	maxLosses    = 10 // servers that die one after the other with the job in hand, without progress: it may be what kills them
	maxFailure   = 1000
	firstPause   = time.Second
	longestPause = time.Minute      // of our own
	longestAsked = 10 * time.Minute // of what a refusal asks for
)

// A record is the part of a job's row that changes. Its methods are the rules, without the database.
type record struct {
	Kind             string
	Status           Status
	Done, Total      int64
	Cost             money.Nano
	Attempts, Losses int64
	Claim            string
	CancelRequested  bool
	Failure          string
	StartedAt        *clock.Time
	FinishedAt       *clock.Time
}

// move is the only way to another status. It ends the claim; who begins a run sets its own.
func (r *record) move(to Status, now clock.Time) error {
	if !slices.Contains(next[r.Status], to) {
		return fmt.Errorf("a job that is %s cannot become %s", r.Status, to)
	}
	r.Status, r.Claim = to, ""
	if to == Running && r.StartedAt == nil {
		r.StartedAt = &now
	}
	if to.Ended() {
		r.FinishedAt = &now
	}
	return nil
}

// claim takes a job that waits.
func (r *record) claim(token string, now clock.Time) error {
	if err := r.park(token); err != nil {
		return err
	}
	if err := r.move(Running, now); err != nil {
		return err
	}
	r.Claim = token
	return nil
}

// park takes a job that waits, and leaves it in the queue.
func (r *record) park(token string) error {
	if r.Status != Queued || r.Claim != "" {
		return ErrLost
	}
	r.Claim = token
	return nil
}

// held says why the run of that token may not write, or nil.
func (r *record) held(token string) error {
	if err := r.claimed(token); err != nil {
		return err
	}
	if r.CancelRequested {
		return ErrCancelled
	}
	return nil
}

// claimed says why the job is not that token's.
func (r *record) claimed(token string) error {
	if r.Status != Running || r.Claim != token {
		return ErrLost
	}
	return nil
}

// tell takes a run's tally over. Progress makes up for what failed before it.
func (r *record) tell(t Tally) {
	if t.Done > r.Done {
		r.Attempts, r.Losses = 0, 0
	}
	r.Done, r.Total, r.Cost = t.Done, t.Total, t.Cost
}

// cancel ends what waits, and asks what runs to end. Repeating it is a no-op.
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

// free takes a job from a claim that nobody has in hand. died says that a server may have died of it.
func (r *record) free(token string, died bool, now clock.Time) error {
	if r.Claim != token {
		return ErrLost
	}
	if r.Status != Running {
		r.Claim = ""
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

// settle is what becomes of a job whose work returned err, in a context that ended of cause, or did not. A job that is to
// be tried again rests first, for the time that is returned: it waits in the queue, and its claim stays.
func (r *record) settle(token string, err, cause error, now clock.Time) (rest time.Duration, _ error) {
	if r.Status != Running || r.Claim != token {
		return 0, ErrLost
	}
	switch {
	case r.CancelRequested:
		return 0, r.move(Cancelled, now)
	case cause != nil: // of a cancellation that was not committed after all, too
		return 0, r.move(Queued, now)
	case err == nil:
		return 0, r.move(Done, now)
	}
	refusal, _ := errors.AsType[*fault.Fault](err)
	if r.Attempts++; r.Attempts < tries(refusal) {
		moved := r.move(Queued, now)
		r.Claim = token
		return pause(r.Attempts, refusal), moved
	}
	r.Failure = "internal error"
	if refusal != nil {
		r.Failure = readable(refusal.Message)
	}
	return 0, r.move(Failed, now)
}

// tries is how often work is tried that is refused like that, or fails for another reason.
func tries(refusal *fault.Fault) int64 {
	switch {
	case refusal == nil:
		return maxAttempts
	case refusal.RetryAfter > 0:
		return maxReturns
	}
	return 1
}

// pause grows fourfold with each attempt, and is not shorter than a refusal asks for, within reason.
func pause(attempts int64, refusal *fault.Fault) time.Duration {
	wait := min(firstPause<<(2*min(attempts-1, 10)), longestPause)
	if refusal != nil {
		wait = max(wait, min(refusal.RetryAfter, longestAsked))
	}
	return wait
}

// readable is a message that both engines can keep.
func readable(message string) string {
	message = strings.ReplaceAll(strings.ToValidUTF8(message, "\uFFFD"), "\x00", "\uFFFD")
	if runes := []rune(message); len(runes) > maxFailure {
		return string(runes[:maxFailure])
	}
	return message
}
