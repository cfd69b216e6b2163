// Package panics contains the panics of background goroutines. A panic is a bug in how one thing is handled: it is
// logged with its stack and counted, and must not end the process, and with it all that others have under way.
package panics

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
)

// An Error is a panic that was contained.
type Error struct{ Value any }

func (e *Error) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

var contained atomic.Int64

// Count returns how many panics were contained since the process started.
func Count() int64 { return contained.Load() }

// Call calls f. If f panics, Call logs and counts that, and returns an *Error. where says what f does, for the log; args
// are further attributes of the log line.
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

// Note logs and counts a panic that was recovered. It is called by the deferred function that recovers, so that the
// stack is that of the panic. A nil log is the default one.
func Note(log *slog.Logger, where string, p any, args ...any) {
	contained.Add(1)
	if log == nil {
		log = slog.Default()
	}
	log.Error("panic", append([]any{"in", where, "panic", fmt.Sprint(p), "stack", string(debug.Stack())}, args...)...)
}
