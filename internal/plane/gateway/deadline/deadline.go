// Package deadline bounds the time of running requests: the whole request, and each wait for the provider. All requests
// share one timer, because a timer for each would be set and stopped with every request and would hardly ever fire.
package deadline

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"sovereign/internal/net/life"
)

// The causes with which a deadline ends a request or an attempt.
var (
	ErrSilent  = errors.New("the provider is silent")
	ErrTooLong = errors.New("the request took too long")
)

// A Deadline is the life of one request. It ends with ErrTooLong when the request's total time is over. Within it runs
// one attempt at a time, whose own life ends with ErrSilent when a wait takes longer than its timeout.
type Deadline struct {
	life.Life
	total    atomic.Int64 // the instant at which the whole request must have ended
	wait     atomic.Int64 // the instant at which the current wait is over; never while nothing is awaited
	registry *Registry    // the registry that checks it
	mutex    sync.Mutex   // guards attempt. Wait does not take it, so check must compare and swap wait
	attempt  *life.Life   // the attempt that runs, or nil
	Owner    any          // the request, for EndIf; set before Registry.Add

	next, previous *Deadline // neighbours in the registry's list
	shard          int
}

// An instant is a monotonic time, in nanoseconds since the process started.
type instant int64

const never = instant(1<<63 - 1)

var processStart = time.Now()

func instantOf(t time.Time) instant { return instant(t.Sub(processStart)) }

// Start sets the time for the whole request. It is called once, before Registry.Add.
func (d *Deadline) Start(now time.Time, total time.Duration) {
	d.total.Store(int64(instantOf(now.Add(total))))
	d.wait.Store(int64(never))
}

// Shorten leaves the request at most timeout from now on. Any goroutine may call it, after Registry.Add.
func (d *Deadline) Shorten(now time.Time, timeout time.Duration) {
	until := instantOf(now.Add(timeout))
	for {
		total := d.total.Load()
		if int64(until) >= total {
			return
		}
		if d.total.CompareAndSwap(total, int64(until)) {
			d.registry.checkBy(until)
			return
		}
	}
}

// due returns the earliest instant at which something may have timed out.
func (d *Deadline) due() instant { return min(instant(d.total.Load()), instant(d.wait.Load())) }

// BeginAttempt puts the life of an attempt within the request's. timeout bounds its first wait.
func (d *Deadline) BeginAttempt(attempt *life.Life, now time.Time, timeout time.Duration) {
	d.mutex.Lock()
	d.attempt = attempt
	d.mutex.Unlock()
	d.LimitWait(now, timeout)
	d.SetChild(attempt)
}

// EndAttempt ends an attempt, which may have ended before.
func (d *Deadline) EndAttempt(attempt *life.Life) {
	d.mutex.Lock()
	d.attempt = nil
	d.wait.Store(int64(never))
	d.mutex.Unlock()
	d.SetChild(nil)
	attempt.End(context.Canceled)
}

// LimitWait bounds the wait for the provider: it may take timeout from now on. It replaces the limit before.
func (d *Deadline) LimitWait(now time.Time, timeout time.Duration) {
	until := instantOf(now.Add(timeout))
	d.wait.Store(int64(until))
	d.registry.checkBy(until)
}

// check ends the request or its attempt if it has timed out.
func (d *Deadline) check(now instant) {
	if now >= instant(d.total.Load()) {
		d.End(ErrTooLong)
		return
	}
	d.mutex.Lock()
	silent, wait := d.attempt, d.wait.Load()
	if now < instant(wait) || !d.wait.CompareAndSwap(wait, int64(never)) {
		silent = nil
	}
	d.mutex.Unlock()
	if silent != nil {
		silent.End(ErrSilent)
	}
}

// Finish ends the request's life when the request is served.
func (d *Deadline) Finish() { d.End(context.Canceled) }
