package reward

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"sovereign/internal/base/tenant"
)

// errEnded is the cause of a context that ended with its session.
var errEnded = errors.New("the reward session has ended")

// A ref names a session of a workspace.
type ref struct {
	WorkspaceID tenant.ID
	ID          string
}

// running holds the scoring calls of this process, by their session. Its zero value is ready for use.
type running struct {
	mu    sync.Mutex
	calls map[ref]map[*call]bool
}

type call struct{ cancel context.CancelCauseFunc }

// enter registers a scoring call. Its context ends with the session, and the cause then is errEnded. leave must be
// called when the call has ended. A caller reads the session after it has entered, so that it does not miss the end.
func (r *running) enter(ctx context.Context, ws tenant.ID, id string) (_ context.Context, leave func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c, at := &call{cancel}, ref{ws, id}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls == nil {
		r.calls = map[ref]map[*call]bool{}
	}
	if r.calls[at] == nil {
		r.calls[at] = map[*call]bool{}
	}
	r.calls[at][c] = true
	return ctx, func() {
		cancel(nil)
		r.mu.Lock()
		defer r.mu.Unlock()
		if delete(r.calls[at], c); len(r.calls[at]) == 0 {
			delete(r.calls, at)
		}
	}
}

// end cancels the calls of a session that has ended.
func (r *running) end(ws tenant.ID, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.calls[ref{ws, id}] {
		c.cancel(errEnded)
	}
}

// sessions returns the sessions that have calls.
func (r *running) sessions() []ref {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.calls))
}
