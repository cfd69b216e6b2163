package gateway

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"sovereign/internal/net/life"
)

// A term is the life of a request, and the time that it has: for all of it, and for each wait in the try that runs. Those that run are
// looked at together, when the first of them is due.
type term struct {
	life.Life
	total moment       // when all of it is over
	quiet atomic.Int64 // the moment when the wait is; endless when nobody waits
	runs  *runs        // those that it is one of
	mutex sync.Mutex   // of what follows; a wait begins without it, so that who looks compares and swaps
	inner *life.Life   // the try that runs

	next, before *term // of those that run, beside it
	shard        int
}

// A moment is a time by a clock that nobody sets: comparing two is comparing numbers.
type moment int64

const endless = moment(1<<63 - 1)

var dawn = time.Now()

func momentOf(t time.Time) moment { return moment(t.Sub(dawn)) }

// start gives a request its time.
func (t *term) start(now time.Time, total time.Duration) {
	t.total = momentOf(now.Add(total))
	t.quiet.Store(int64(endless))
}

// due is when something of it may be over.
func (t *term) due() moment { return min(t.total, moment(t.quiet.Load())) }

// try puts the life of a try within it, which has patience for its first wait from now on.
func (t *term) try(l *life.Life, now time.Time, patience time.Duration) {
	t.mutex.Lock()
	t.inner = l
	t.mutex.Unlock()
	t.wait(now, patience)
	t.SetChild(l)
}

// over ends a try that may have ended before.
func (t *term) over(l *life.Life) {
	t.mutex.Lock()
	t.inner = nil
	t.quiet.Store(int64(endless))
	t.mutex.Unlock()
	t.SetChild(nil)
	l.End(context.Canceled)
}

// wait begins a wait, which may last for patience from now on.
func (t *term) wait(now time.Time, patience time.Duration) {
	until := momentOf(now.Add(patience))
	t.quiet.Store(int64(until))
	t.runs.by(until)
}

// look ends what has lasted too long.
func (t *term) look(now moment) {
	if now >= t.total {
		t.End(errTooLong)
		return
	}
	t.mutex.Lock()
	silent, quiet := t.inner, t.quiet.Load()
	if now < moment(quiet) || !t.quiet.CompareAndSwap(quiet, int64(endless)) {
		silent = nil
	}
	t.mutex.Unlock()
	if silent != nil {
		silent.End(errSilent)
	}
}

// stop ends it without a cause of anybody's.
func (t *term) stop() { t.End(context.Canceled) }
