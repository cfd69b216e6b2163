package app

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"
)

// A loop that runs once begins when this node comes to lead, ends with its term, and begins again with the next one.
func TestALoopThatRunsOnceRunsWhileItsNodeLeads(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var leads, broken atomic.Bool
	l := newLeader(func(context.Context) (bool, error) {
		if broken.Load() {
			return true, errors.New("the database is away")
		}
		return leads.Load(), nil
	}, slog.New(slog.DiscardHandler))
	l.every = time.Millisecond
	began, ended, over := make(chan bool, 10), make(chan bool, 10), make(chan bool)
	go l.watch(ctx)
	go func() {
		defer close(over)
		l.run(ctx, func(ctx context.Context) {
			began <- true
			<-ctx.Done()
			ended <- true
		})
	}()
	await := func(what string, of <-chan bool) {
		t.Helper()
		select {
		case <-of:
		case <-time.After(time.Minute):
			t.Fatal("it has not " + what)
		}
	}
	for _, change := range []func(bool){leads.Store, func(is bool) { leads.Store(true); broken.Store(!is) }} {
		change(true)
		await("begun", began)
		if len(ended) > 0 {
			t.Fatal("it ended although its node leads")
		}
		change(false)
		await("ended", ended)
	}
	broken.Store(false)
	await("begun again", began)
	cancel()
	await("ended", ended)
	await("returned", over)
}

// On SQLite there is no other node, and nothing to ask.
func TestALoopThatRunsOnceRunsAtOnceWhereThereIsNoOtherNode(t *testing.T) {
	l := newLeader(nil, slog.New(slog.DiscardHandler))
	l.watch(t.Context())
	ran := false
	l.run(t.Context(), func(context.Context) { ran = true })
	if !ran {
		t.Error("it does not run")
	}
}
