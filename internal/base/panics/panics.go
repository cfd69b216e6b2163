// Package panics contains the panics of background goroutines. A panic is a bug in how one thing is handled: it is
// logged with its stack and counted, and must not end the process, and with it all that others have under way.
package panics

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// An Error is a panic that was contained.
type Error struct{ Value any }

func (e *Error) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

var contained atomic.Int64

// Count returns how many panics were contained since the process started.
func Count() int64 { return contained.Load() }

// Call calls f. If f panics, Call logs and counts that, and returns an *Error. where says what f does, for the log;
// args are further attributes of the log line.
func Call(log *slog.Logger, where string, f func() error, args ...any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			Note(log, where, p, args...)
			err = &Error{Value: p}
		}
	}()
	return f()
}

// Contain is for defer: it contains the panic of the function that defers it.
func Contain(log *slog.Logger, where string) {
	if p := recover(); p != nil {
		Note(log, where, p)
	}
}

// logged counts the panics that were logged in a minute.
var logged struct {
	sync.Mutex
	since time.Time
	count int
}

// maxLogged bounds the stacks in the log per minute: what panics once may do so again and again.
const maxLogged = 60

// mayLog reports whether a panic may be logged now.
func mayLog(now time.Time) bool {
	logged.Lock()
	defer logged.Unlock()
	if now.Sub(logged.since) > time.Minute {
		logged.since, logged.count = now, 0
	}
	logged.count++
	return logged.count <= maxLogged
}

// Note counts a panic that was recovered, and logs it unless very many were logged just before. It is called by the
// deferred function that recovers, so that the stack is that of the panic. A nil log is the default one.
func Note(log *slog.Logger, where string, p any, args ...any) {
	contained.Add(1)
	if !mayLog(time.Now()) {
		return
	}
	if log == nil {
		log = slog.Default()
	}
	log.Error("panic", append([]any{"in", where, "panic", fmt.Sprint(p), "stack", string(debug.Stack())}, args...)...)
}
