package app

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"sovereign/internal/domain/logbook"
)

const (
	// roleLoops is the role of the node that runs the loops that run once. Loops that look after engines and training
	// ask for roles of their own.
	roleLoops = "loops"
	leadEvery = time.Second
)

// A leader runs loops while this node leads. Without ask, it always does.
type leader struct {
	ask   func(ctx context.Context) (bool, error) // nil where there is no other node
	every time.Duration
	log   *slog.Logger

	mu      sync.Mutex
	term    context.Context //nolint:containedctx // it ends when this node no longer leads; nil while it does not
	end     context.CancelFunc
	changed chan struct{} // closed when a term begins
}

func newLeader(ask func(context.Context) (bool, error), log *slog.Logger) *leader {
	return &leader{ask: ask, every: leadEvery, log: log, changed: make(chan struct{})}
}

// watch reads again and again which node leads, until ctx ends.
func (l *leader) watch(ctx context.Context) {
	if l.ask == nil {
		return
	}
	tick := time.NewTicker(l.every)
	defer tick.Stop()
	defer l.set(ctx, false)
	for {
		bounded, cancel := context.WithTimeout(ctx, l.every)
		leads, err := l.ask(bounded)
		cancel()
		if err != nil && ctx.Err() == nil {
			l.log.Warn("it is not known which server does the work of all; it is asked again", "err", err)
		}
		l.set(ctx, leads && err == nil)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// set begins or ends a term.
func (l *leader) set(ctx context.Context, leads bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case leads && l.term == nil:
		l.term, l.end = context.WithCancel(ctx)
		close(l.changed)
		l.changed = make(chan struct{})
		l.log.Info("this server does the work of all: sweeps, gates, monitors, notices")
	case !leads && l.term != nil:
		l.end()
		l.term = nil
		if ctx.Err() == nil {
			l.log.Info("another server does the work of all")
		}
	}
}

// await returns the present term, or the next one. It returns nil when ctx ends.
func (l *leader) await(ctx context.Context) context.Context {
	for ctx.Err() == nil {
		l.mu.Lock()
		term, changed := l.term, l.changed
		l.mu.Unlock()
		if term != nil && term.Err() == nil {
			return term
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return nil
}

// run calls a loop whenever this node comes to lead, until ctx ends or the loop returns by itself.
func (l *leader) run(ctx context.Context, loop func(context.Context)) {
	if l.ask == nil {
		loop(ctx)
		return
	}
	for {
		term := l.await(ctx)
		if term == nil {
			return
		}
		both, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(term, cancel)
		func() {
			defer cancel()
			defer stop()
			loop(both)
		}()
		if term.Err() == nil {
			return
		}
	}
}

// newLeader returns what runs loops while this node has the role of the loops that run once.
func (i *instance) newLeader() *leader {
	if i.member.Single() {
		return newLeader(nil, i.log)
	}
	return newLeader(func(ctx context.Context) (bool, error) { return i.member.Lead(ctx, roleLoops) }, i.log)
}

// life names this node's present life in the sources of draws.
func (i *instance) life() string { return logbook.NameLife(i.member.Life()) }
