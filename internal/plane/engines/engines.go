// Package engines sends requests to the engines that the server runs: the replicas of a group, the least busy first. The
// control plane says which replicas there are. A group without a replica is woken, and its requests wait for a while.
package engines

import (
	"context"
	"sync"
	"time"

	"sovereign/internal/base/clock"
)

// A Replica is an engine that answers.
type Replica struct {
	ID      string
	BaseURL string // of its OpenAI-compatible API, such as http://127.0.0.1:4711/v1
}

// A Group is the replicas of one deployment.
type Group struct {
	Name string

	mu sync.Mutex
	// … replicas with their outstanding requests, waiting callers, last use
}

// GroupConfig is what the control plane gives a group.
type GroupConfig struct {
	Name string
	// Wait bounds how long a request waits for a replica. After it, the request is refused with 503 and Retry-After.
	Wait time.Duration
	// Wake is called when a request finds no replica, at most once until there is one. It does not block.
	Wake func()
	// Prepare is called before a request is sent to a replica, with the model's name there. It loads an adapter, for
	// example. It may block as long as ctx lasts. The function that it returns is called when the request has ended. Nil for
	// a group whose replicas serve one model.
	Prepare func(ctx context.Context, r Replica, model string) (done func(), err error)
}

// Use is what is known of a group's use.
type Use struct {
	Outstanding int        // requests that are being answered
	Waiting     int        // requests that wait for a replica
	LastUsed    clock.Time // the end of the last request; 0 for none
}
