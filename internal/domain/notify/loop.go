package notify

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/panics"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/notice"
)

// A Loop delivers what is in the outbox, and looks for wallets that are low: one node does that for all. Each node
// looks for the budgets that were reached there.
type Loop struct {
	store     *Store
	watch     *watch
	transport http.RoundTripper
	mail      Mail
	site      string // where people reach this server; empty for unknown
	serving   func() error
	log       *slog.Logger
	wake      chan struct{}

	mu      sync.Mutex
	running map[tenant.ID]int // attempts of a workspace
	all     int
}

const (
	interval       = time.Second
	maxAttempts    = 16 // at once
	maxOfWorkspace = 2
	dueBatch       = 64
)

func newLoop(d Deps) *Loop {
	l := &Loop{
		store: d.Store, watch: &watch{store: d.Store, budgets: d.Budgets}, transport: d.Store.guard.Transport(),
		mail: d.Mail, site: d.Site, serving: d.Serving, log: d.Log, wake: make(chan struct{}, 1),
		running: map[tenant.ID]int{},
	}
	d.Store.db.Listen(notice.Topic, func() {
		select {
		case l.wake <- struct{}{}:
		default: // a look is due already
		}
	})
	return l
}

// Run looks at the outbox when it is written, and every second, until ctx ends.
func (l *Loop) Run(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var working sync.WaitGroup
	defer working.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-l.wake:
		}
		if l.serving() == nil {
			_ = panics.Call(l.log, "delivering notices", func() error { l.Poll(ctx, &working); return nil })
		}
	}
}

// watchBudgets tells of budgets that were reached on this node, until ctx ends.
func (l *Loop) watchBudgets(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if l.serving() != nil {
			continue
		}
		err := panics.Call(l.log, "looking at budgets", func() error { return l.watch.reached(ctx) })
		if err != nil && ctx.Err() == nil {
			l.log.Warn("a reached budget cannot be told of now", "err", err)
		}
	}
}

// Poll looks once: it notices what changed, queues deliveries and begins those that are due, in goroutines of working.
func (l *Loop) Poll(ctx context.Context, working *sync.WaitGroup) {
	err := l.watch.look(ctx)
	for more := true; more && err == nil; {
		more, err = l.store.queue(ctx)
	}
	var all []due
	if err == nil {
		all, err = l.store.due(ctx, dueBatch)
	}
	if err != nil {
		if ctx.Err() == nil {
			l.log.Warn("notices cannot be delivered now", "err", err)
		}
		return
	}
	for _, d := range all {
		if !l.acquire(d.WorkspaceID) {
			continue
		}
		working.Go(func() {
			defer l.release(d.WorkspaceID)
			err := panics.Call(l.log, "delivering a notice", func() error { return l.attempt(ctx, &d) })
			if err != nil && ctx.Err() == nil {
				l.log.Warn("an attempt to deliver a notice is tried again", "delivery", d.ID, "err", err)
			}
		})
	}
}

// acquire takes one of the places for attempts, of which a workspace has few: a slow receiver delays no other.
func (l *Loop) acquire(ws tenant.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == maxAttempts || l.running[ws] == maxOfWorkspace {
		return false
	}
	l.all++
	l.running[ws]++
	return true
}

func (l *Loop) release(ws tenant.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.running[ws]--; l.running[ws] == 0 {
		delete(l.running, ws)
	}
}

// attempt tries one delivery once.
func (l *Loop) attempt(ctx context.Context, d *due) error {
	mine, err := l.store.claim(ctx, d)
	if err != nil || !mine {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	r := l.send(limited, d)
	if ctx.Err() != nil {
		return ctx.Err() // the server stops: the claim ends, and another attempt is made
	}
	return l.store.finish(ctx, d, r)
}

func (l *Loop) send(ctx context.Context, d *due) result {
	to, err := l.store.target(ctx, d.WorkspaceID, d.ChannelID)
	if err != nil {
		return result{failure: fault.From(err).Message}
	}
	n, err := l.store.read(ctx, d.WorkspaceID, d.NoticeID)
	switch {
	case err != nil:
		return result{failure: fault.From(err).Message}
	case n == nil:
		return result{failure: "the notice was deleted"}
	case to.Type == Email:
		return l.mail.send(ctx, to, n, l.page(d.WorkspaceID, n.Link))
	}
	return l.post(ctx, to, d.WorkspaceID, n)
}
