package judging

import (
	"context"
	"sync"
	"sync/atomic"

	"sovereign/internal/base/panics"
	"sovereign/internal/base/tenant"
)

// ForEach calls do for every item, limit at a time, and returns the first error. After an error no other call begins;
// those that have begun run to their end. A panic is an error.
func ForEach[T any](ctx context.Context, limit int64, items []T, do func(context.Context, T) error) error {
	var group sync.WaitGroup
	var failed atomic.Pointer[error]
	next := make(chan T)
	for range min(int(limit), len(items)) {
		group.Go(func() {
			for item := range next {
				if failed.Load() != nil {
					continue
				}
				err := panics.Call(nil, "one of several questions", func() error { return do(ctx, item) })
				if err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	for _, item := range items {
		if ctx.Err() != nil || failed.Load() != nil {
			break
		}
		next <- item
	}
	close(next)
	group.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return context.Cause(ctx)
}

// inFlight holds the questions that are being asked.
type inFlight struct {
	mu  sync.Mutex
	all map[string]chan struct{}
}

// acquire waits until a question is not being asked, and claims it until release.
func (f *inFlight) acquire(ctx context.Context, question string) (release func(), err error) {
	for {
		f.mu.Lock()
		if f.all == nil {
			f.all = map[string]chan struct{}{}
		}
		done, taken := f.all[question]
		if !taken {
			done = make(chan struct{})
			f.all[question] = done
			f.mu.Unlock()
			return func() {
				f.mu.Lock()
				delete(f.all, question)
				f.mu.Unlock()
				close(done)
			}, nil
		}
		f.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// An activeCounter counts the running requests of each workspace.
type activeCounter struct {
	mu  sync.Mutex
	all map[tenant.ID]int
}

// enter counts one more until done, which returns how many others are running.
func (c *activeCounter) enter(ws tenant.ID) (done func() (others int)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[tenant.ID]int{}
	}
	c.all[ws]++
	return func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.all[ws]--; c.all[ws] == 0 {
			delete(c.all, ws)
		}
		return c.all[ws]
	}
}
