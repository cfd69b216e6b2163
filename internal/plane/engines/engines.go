// Package engines sends requests to the engines that the server runs: the replicas of a group, the least busy first.
// The control plane says which replicas there are. A group without a replica is woken, and its requests wait for a
// while.
package engines

import (
	"context"
	"sync"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
)

// A Replica is an engine that answers.
type Replica struct {
	ID      string
	BaseURL string // of its OpenAI-compatible API, such as http://127.0.0.1:4711/v1
}

// GroupConfig is what the control plane gives a group.
type GroupConfig struct {
	Name string
	// Wait bounds how long a request waits for a replica, and for Prepare. After it, the request is refused with 503
	// and Retry-After.
	Wait time.Duration
	// Wake is called when a request finds no replica: once for all that wait at the same time, until there is a replica
	// or Fail is called. It does not block. It may call the group. Nil for a group that cannot be woken.
	Wake func()
	// Prepare is called before a request is sent to a replica, with the model's name there. It loads an adapter, for
	// example. It may block as long as ctx lasts. The function that it returns is called when the request has ended,
	// and may be nil. Nil for a group whose replicas serve one model.
	Prepare func(ctx context.Context, r Replica, model string) (done func(), err error)
}

// Use is what is known of a group's use.
type Use struct {
	Outstanding int        // requests that are being answered
	Waiting     int        // requests that wait for a replica
	LastUsed    clock.Time // the end of the last request; 0 for none
}

// A Registry holds the groups by name. It is safe for concurrent use.
type Registry struct {
	mu     sync.RWMutex
	groups map[string]*Group
}

// NewRegistry returns a registry without groups.
func NewRegistry() *Registry { return &Registry{groups: map[string]*Group{}} }

// Open returns the group of a name, with this configuration. A group that is open keeps its replicas and its requests.
func (r *Registry) Open(c GroupConfig) *Group {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.groups[c.Name]
	if g == nil {
		g = newGroup(c.Name)
		r.groups[c.Name] = g
	}
	g.configure(c)
	return g
}

// Close removes a group. Its waiting requests are refused; running ones go on. Closing a group that is not open changes
// nothing.
func (r *Registry) Close(name string) {
	r.mu.Lock()
	g := r.groups[name]
	delete(r.groups, name)
	r.mu.Unlock()
	if g != nil {
		g.close()
	}
}

// Find returns the group of a name, or nil.
func (r *Registry) Find(name string) *Group {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.groups[name]
}

// Acquire returns the use of a replica of a group, for one request to a model of that name there. It waits while the
// group has none. The error is a 503, or why ctx has ended.
func (r *Registry) Acquire(ctx context.Context, group, model string) (*Lease, error) {
	g := r.Find(group)
	if g == nil {
		return nil, notServed()
	}
	return g.Acquire(ctx, model)
}

// retryAfter is the Retry-After of a request that no engine could serve.
const retryAfter = 10 * time.Second

func notServed() error {
	return fault.Unavailable.New("no engine serves this model now").In(retryAfter)
}
