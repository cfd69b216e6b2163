package gateway

import (
	"bytes"
	"fmt"
	"time"

	"sovereign/internal/live"
	"sovereign/internal/plane/cache"
	"sovereign/internal/text/scan"
	"sovereign/internal/wire/chat"
)

// memory is what a request has to do with the cache.
type memory struct {
	key      cache.Key
	wanted   bool            // its answer is remembered
	assembly *chat.Assembler // of a stream
}

// Cached is the outcome of an answer that was remembered: it costs nothing.
const Cached Outcome = "cached"

// recall gives an answer again that the workspace was given before, where it wants that. It holds no money and calls no
// provider.
func (r *run) recall() (hit bool) {
	a, first := r.ask, r.plan.order[0]
	on := a.Cache == "on" || a.Cache == "" && r.gateway.Workspaces.Of(a.Caller.Workspace).Cache
	if !on || a.Endpoint.stateful {
		return false
	}
	route := a.Endpoint.Name
	if a.limit == 0 { // then the answer depends on the default
		route = fmt.Sprintf("%s %d", route, r.standard)
	}
	if r.memory.key, on = cache.KeyOf(a.Caller.Workspace, route, first.ID, a.Body); !on {
		return false
	}
	r.cached, r.memory.wanted = "miss", true
	kept, ok := r.gateway.Cache.Get(r.memory.key, time.Now())
	if !ok {
		return false
	}
	body, kind, length := kept.Body, "application/json", len(kept.Body)
	if a.stream {
		events, err := chat.Replay(kept.Body, a.usage)
		if err != nil { // then it is asked for again
			return false
		}
		body, kind, length = events, eventStream, -1
	}
	r.cached, r.model, r.served, r.outcome = "hit", first, kept.Model, Cached
	r.head(kind, length)
	err := r.out.Send(body) // a caller who is gone has lost nothing
	if r.clock.ours(); err == nil && r.logs {
		r.begins = r.clock.now.Sub(r.clock.started)
		r.log(kept.Body, usageIn(kept.Body), 0)
	}
	return true
}

// usageIn is what a whole answer says was used.
func usageIn(body []byte) live.Usage {
	members, err := scan.Object(body, nil)
	if err != nil {
		return live.Usage{}
	}
	for i := range members {
		if members[i].Name == "usage" {
			if used := usageOf(members[i].Value); used != nil {
				return *used
			}
		}
	}
	return live.Usage{}
}

// remember keeps an answer, unless it is a fallback's: the same question may get the model's own the next time.
func (r *run) remember(body []byte) {
	if r.memory.wanted && r.model.Model == r.plan.order[0].Model {
		r.gateway.Cache.Put(r.memory.key, cache.Entry{Model: r.model.ID, Body: bytes.Clone(body)}, time.Now())
	}
}

// gather puts a stream's answer together, where it will be remembered.
func (r *run) gather(event []byte) {
	if !r.memory.wanted || r.model.Model != r.plan.order[0].Model {
		return
	}
	if r.memory.assembly == nil {
		r.memory.assembly = &chat.Assembler{MaxBytes: maxText}
	}
	if r.memory.assembly.Add(event) != nil {
		r.memory.wanted = false
	}
}

// gathered remembers a stream that is over.
func (r *run) gathered() {
	if r.memory.assembly == nil {
		return
	}
	if body, err := r.memory.assembly.Answer(); err == nil {
		r.remember(body)
	}
}
