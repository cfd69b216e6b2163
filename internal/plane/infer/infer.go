// Package infer defines completions that the product itself asks for, such as a judge's. Its users know neither the
// gateway that serves them nor how they are charged.
package infer

import (
	"context"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
)

// A Request is a chat completion that the product asks for, in a workspace's name and at its cost.
type Request struct {
	Workspace tenant.ID
	Origin    string // the id of the asking object, such as cal_…: usage rows show it in place of a caller's key
	Model     string // a catalog id, never an alias
	Body      []byte // a chat completion request that names the same model and no maximum; not to be changed afterwards
	MaxTokens int64  // of output; 0 for the workspace's default
	Hold      string // the id of the named hold that pays; "" for the workspace's wallet

	// Keep stores the whole answer before it is charged; it may be nil. If Keep fails, nothing is charged. If it
	// succeeds, the answer is charged. So an answer that was paid for is never lost; a process that dies in between has
	// charged nothing for an answer that was stored.
	Keep func(*Answer) error
}

// An Answer is a whole chat completion. It belongs to the caller of Complete.
type Answer struct {
	RequestID string
	Model     string        // that answered
	Body      []byte        // the chat completion, as a caller would get it
	Usage     live.Usage    // as the provider reports it, or as it was counted
	Cost      money.Nano    // of the usage: what is charged
	Latency   time.Duration // until the answer was whole, all attempts included
}

// HoldSpent reports that the named hold of a request cannot cover what the request may cost. Nothing is charged. Money
// of the hold may become free when its other requests have ended, but never when Ended is true.
type HoldSpent struct {
	Hold  string
	Free  money.Nano // in the named hold
	Ended bool       // the named hold has ended, or there is none
	Busy  bool       // requests of other servers hold money of it, and may not spend all of that
}

func (h *HoldSpent) Error() string {
	if h.Ended {
		return "the hold " + h.Hold + " has ended"
	}
	return "the hold " + h.Hold + " has only $" + h.Free.String() + " free"
}

// Unwrap returns the fault that a caller gets who knows nothing of named holds.
func (h *HoldSpent) Unwrap() error { return fault.InsufficientBalance.New("%s", h.Error()) }

// A Completer completes requests. It returns the same faults that a caller of the API would get.
type Completer interface {
	// Complete returns a whole answer, which is charged, or recorded as owed if the journal fails. Or it returns an
	// error and charges nothing: the error of Keep if Keep failed, that of ctx if ctx ended before the answer could be
	// kept, and a *HoldSpent if the named hold cannot cover the request.
	Complete(ctx context.Context, r *Request) (*Answer, error)
	// Estimate returns about what a request costs if each of its choices has output tokens.
	Estimate(r *Request, output int64) (money.Nano, error)
}
