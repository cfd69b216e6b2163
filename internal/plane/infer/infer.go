// Package infer is what a completion is to the rest of the house. What asks a model for the product's own ends, such as a
// judge, knows neither the road that its question takes nor the money that the answer moves.
package infer

import (
	"context"
	"time"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
)

// A Request is a chat completion that the product asks for, in a workspace's name and at its cost.
type Request struct {
	Workspace tenant.ID
	Origin    string // the id of what asks, such as cal_…: the usage shows it where a caller's key would stand
	Model     string // a catalog id, never an alias
	Body      []byte // a chat completion request that names the same model and no maximum; not to be changed afterwards
	MaxTokens int64  // of output; 0 for the workspace's default

	// Keep is given the whole answer before it is charged, or is nil. When it fails, nothing is charged. When it does not, the
	// answer is: so one that was paid for is never lost, and a process that dies in between has given one away.
	Keep func(*Answer) error
}

// An Answer is a whole chat completion. Whoever asked for it owns it.
type Answer struct {
	RequestID string
	Model     string        // that answered
	Body      []byte        // the chat completion, as a caller would get it
	Usage     live.Usage    // as the provider reports it, or as it was counted
	Cost      money.Nano    // of the usage, which is what is charged for
	Latency   time.Duration // until the answer was whole, all tries included
}

// A Completer asks models. Its refusals are the faults that a caller would get.
type Completer interface {
	// Complete returns a whole answer that is charged for, or owed; or an error, and nothing is charged: that of Keep where
	// Keep failed, and of ctx where that ended before the answer could be kept.
	Complete(ctx context.Context, r *Request) (*Answer, error)
	// Estimate is what a request costs, about, if each of its choices has so many tokens of output.
	Estimate(r *Request, output int64) (money.Nano, error)
}
