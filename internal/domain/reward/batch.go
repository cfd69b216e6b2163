package reward

import (
	"context"
	"errors"
	"sync"
	"time"

	"sovereign/internal/base/panics"
	"sovereign/internal/base/tenant"
)

// batchTime is how long an item of an adapter waits for others.
const batchTime = 5 * time.Millisecond

// batches collects the calls of trainers that send one item at a time: those that come within batchTime are scored as
// one call. Its zero value is ready for use.
type batches struct {
	mu   sync.Mutex
	open map[batchName]*batch
}

// A batchName says which items can be scored together.
type batchName struct {
	ws            tenant.ID
	session, step string
}

// A batch is a call of score for several members.
type batch struct {
	name    batchName
	items   []item
	release []func()
	members int // that have not left; guarded by batches.mu
	ctx     context.Context
	leave   context.CancelFunc
	done    chan struct{}
	scores  Scores
	err     error
}

// score scores the items of one member, which were checked, with those of others.
func (b *batches) score(
	ctx context.Context, s *Store, name batchName, items []item, release func(),
) ([]ItemScore, error) {
	joined, from := b.join(ctx, s, name, items, release)
	select {
	case <-joined.done:
	case <-ctx.Done():
		b.mu.Lock()
		if joined.members--; joined.members == 0 { // nobody waits for it
			b.close(joined)
			joined.leave()
		}
		b.mu.Unlock()
		return nil, ctx.Err()
	}
	if joined.err != nil {
		return nil, joined.err
	}
	return joined.scores.Data[from : from+len(items)], nil
}

// join adds items to the open batch, and returns it with the place of the first one.
func (b *batches) join(ctx context.Context, s *Store, name batchName, items []item, release func()) (*batch, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	joined := b.open[name]
	if joined != nil && len(joined.items)+len(items) > MaxItems {
		b.close(joined) // its timer starts it
		joined = nil
	}
	if joined == nil {
		joined = &batch{name: name, done: make(chan struct{})}
		joined.ctx, joined.leave = context.WithCancel(context.WithoutCancel(ctx))
		if b.open == nil {
			b.open = map[batchName]*batch{}
		}
		b.open[name] = joined
		time.AfterFunc(batchTime, func() { b.start(s, joined) })
	}
	from := len(joined.items)
	joined.items, joined.release = append(joined.items, items...), append(joined.release, release)
	joined.members++
	return joined, from
}

// close keeps others from joining a batch. b.mu is held.
func (b *batches) close(closed *batch) {
	if b.open[closed.name] == closed {
		delete(b.open, closed.name)
	}
}

// start scores a batch, which nobody joins from now on.
func (b *batches) start(s *Store, started *batch) {
	b.mu.Lock()
	b.close(started)
	b.mu.Unlock()
	defer close(started.done)
	defer started.leave()
	release := sync.OnceFunc(func() {
		for _, one := range started.release {
			one()
		}
	})
	items := func(*session) ([]item, error) { return started.items, nil } //nolint:unparam // as a call of score has them
	started.err = panics.Call(s.Log, "scoring a batch", func() (err error) {
		started.scores, err = s.score(
			started.ctx, started.name.ws, started.name.session, started.name.step, items, release,
		)
		return err
	})
	if errors.As(started.err, new(*panics.Error)) {
		release()
	}
}
