package engines

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
)

// shunTime is how long a replica that has failed is asked only if there is no other.
const shunTime = 5 * time.Second

// A Group is the replicas of one deployment, and the requests that wait for one. It is safe for concurrent use.
type Group struct {
	Name string

	now func() time.Time

	mu       sync.Mutex
	config   GroupConfig
	closed   bool
	failure  error      // why there is no replica; nil if there may be one soon
	woken    bool       // Wake was called for those that wait
	replicas []*replica // that get requests
	leaving  []*replica // that get none, and still answer some
	waiting  list.List  // of *waiter, the first to come in front
	picks    uint64
	lastUsed clock.Time
}

// A replica is one engine with its outstanding requests.
type replica struct {
	Replica
	sender      sender
	outstanding int
	picked      uint64    // when it was last chosen, in picks of the group
	shunned     time.Time // until when others are preferred
	gone        bool      // the control plane has left it out
}

// A waiter is a request without a replica. The code that removes it from the list sets its result and closes ready.
type waiter struct {
	ready   chan struct{}
	replica *replica
	err     error
}

func newGroup(name string) *Group { return &Group{Name: name, now: time.Now} }

func (g *Group) configure(c GroupConfig) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.config = c
}

// Set says which replicas there are. One that is left out gets no new request; its running ones go on. With a replica,
// waiting requests are sent, in the order in which they came.
func (g *Group) Set(replicas []Replica) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	before := slices.Concat(g.replicas, g.leaving)
	g.replicas = nil
	for _, r := range replicas {
		g.replicas = append(g.replicas, take(&before, r))
	}
	g.leave(before)
	if len(g.replicas) == 0 {
		return
	}
	g.woken, g.failure = false, nil
	for e := g.waiting.Front(); e != nil; e = g.waiting.Front() {
		w := g.waiting.Remove(e).(*waiter)
		w.replica = g.pick()
		close(w.ready)
	}
}

// take removes the replica from a list, or makes it.
func take(from *[]*replica, want Replica) *replica {
	for i, r := range *from {
		if r.Replica == want {
			*from = slices.Delete(*from, i, i+1)
			r.gone = false
			return r
		}
	}
	return &replica{Replica: want, sender: newSender(want)}
}

// leave keeps the replicas that still answer, and closes the others.
func (g *Group) leave(all []*replica) {
	g.leaving = nil
	for _, r := range all {
		if r.gone = true; r.outstanding > 0 {
			g.leaving = append(g.leaving, r)
		} else {
			r.sender.Close()
		}
	}
}

// Busy returns how many requests a replica answers, also one that was left out.
func (g *Group) Busy(id string) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, some := range [][]*replica{g.replicas, g.leaving} {
		for _, r := range some {
			if r.ID == id {
				n += r.outstanding
			}
		}
	}
	return n
}

// BusyAll returns how many requests each replica answers that answers any, also those that were left out.
func (g *Group) BusyAll() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := map[string]int{}
	for _, some := range [][]*replica{g.replicas, g.leaving} {
		for _, r := range some {
			if r.outstanding > 0 {
				all[r.ID] += r.outstanding
			}
		}
	}
	return all
}

// Use returns how the group is used.
func (g *Group) Use() Use {
	g.mu.Lock()
	defer g.mu.Unlock()
	u := Use{Waiting: g.waiting.Len(), LastUsed: g.lastUsed}
	for _, some := range [][]*replica{g.replicas, g.leaving} {
		for _, r := range some {
			u.Outstanding += r.outstanding
		}
	}
	return u
}

// Fail refuses waiting requests with a reason, and those that come until there is a replica. The first of those calls
// Wake again. A *fault.Fault is passed to callers as it is; the text of another error follows "no engine could be
// started". Fail(nil) lets requests wait again.
func (g *Group) Fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failure, g.woken = err, false
	if err != nil {
		g.refuseWaiting(func() error { return Refusal(err) })
	}
}

func (g *Group) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.refuseWaiting(notServed)
	g.leave(slices.Concat(g.replicas, g.leaving))
	g.replicas = nil
}

// refuseWaiting refuses every waiting request. Each gets an error of its own: the gateway changes it.
func (g *Group) refuseWaiting(why func() error) {
	for e := g.waiting.Front(); e != nil; e = g.waiting.Front() {
		w := g.waiting.Remove(e).(*waiter)
		w.err = why()
		close(w.ready)
	}
}

// Refusal returns what a caller is told of a failure.
func Refusal(err error) error {
	var f *fault.Fault
	if errors.As(err, &f) {
		own := *f
		return &own
	}
	return fault.Unavailable.New("no engine could be started: %v", err).In(retryAfter)
}

// Acquire is Registry.Acquire of this group.
func (g *Group) Acquire(ctx context.Context, model string) (*Lease, error) {
	began := g.now()
	r, config, err := g.await(ctx)
	if err != nil {
		return nil, err
	}
	l := &Lease{group: g, replica: r}
	if config.Prepare == nil {
		return l, nil
	}
	within, cancel := context.WithTimeout(ctx, config.Wait-g.now().Sub(began))
	defer cancel()
	l.done, err = config.Prepare(within, r.Replica, model)
	if err == nil {
		return l, nil
	}
	l.Release(within.Err() == nil && fault.From(err).Kind == fault.Internal)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("prepare %s: %w", model, ctx.Err())
	case within.Err() != nil:
		return nil, late(config.Wait)
	default:
		return nil, fmt.Errorf("prepare %s: %w", model, err)
	}
}

// await chooses a replica, and waits for one if there is none.
func (g *Group) await(ctx context.Context) (*replica, GroupConfig, error) {
	g.mu.Lock()
	config := g.config
	if g.closed || len(g.replicas) > 0 {
		defer g.mu.Unlock()
		if g.closed {
			return nil, config, notServed()
		}
		return g.pick(), config, nil
	}
	var w *waiter
	var place *list.Element
	failure := g.failure
	if failure == nil {
		w = &waiter{ready: make(chan struct{})}
		place = g.waiting.PushBack(w)
	}
	wake := config.Wake != nil && !g.woken
	g.woken = g.woken || wake
	g.mu.Unlock()
	if wake {
		config.Wake()
	}
	if failure != nil {
		return nil, config, Refusal(failure)
	}
	r, err := g.wait(ctx, w, place, config.Wait)
	return r, config, err
}

// wait waits until a replica is there, the request is refused or has ended, or the bound has passed.
func (g *Group) wait(ctx context.Context, w *waiter, place *list.Element, bound time.Duration) (*replica, error) {
	timer := time.NewTimer(bound)
	defer timer.Stop()
	var err error
	select {
	case <-w.ready:
		return w.replica, w.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = late(bound)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-w.ready: // in the same moment
		if w.replica != nil && ctx.Err() != nil {
			g.release(w.replica, false)
			return nil, err
		}
		return w.replica, w.err
	default:
		g.waiting.Remove(place)
		// what was started for nobody may be stopped again: the next one wakes it
		g.woken = g.woken && g.waiting.Len() > 0
		return nil, err
	}
}

func late(bound time.Duration) error {
	return fault.Unavailable.New(
		"the engine of this model is starting, and was not ready within %s: try again", bound,
	).In(retryAfter)
}

// pick chooses the replica with the fewest outstanding requests, of several the one that was chosen longest ago. One
// that has failed of late is chosen if there is no other.
func (g *Group) pick() *replica {
	now := g.now()
	var best *replica
	for _, r := range g.replicas {
		if best == nil || r.before(best, now) {
			best = r
		}
	}
	g.picks++
	best.picked = g.picks
	best.outstanding++
	return best
}

// before reports whether r is to be chosen rather than other.
func (r *replica) before(other *replica, now time.Time) bool {
	shunned, others := now.Before(r.shunned), now.Before(other.shunned)
	switch {
	case shunned != others:
		return others
	case r.outstanding != other.outstanding:
		return r.outstanding < other.outstanding
	default:
		return r.picked < other.picked
	}
}

// release ends a request of a replica. The caller holds the lock.
func (g *Group) release(r *replica, failed bool) {
	now := g.now()
	r.shunned = time.Time{}
	if failed {
		r.shunned = now.Add(shunTime)
	}
	g.lastUsed = clock.Of(now)
	if r.outstanding--; r.gone && r.outstanding == 0 {
		g.leave(g.leaving)
	}
}
