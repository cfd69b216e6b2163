package gateway

import (
	"bytes"
	"fmt"
	"time"

	"sovereign/internal/base/outcome"
	"sovereign/internal/plane/cache"
	"sovereign/internal/plane/gateway/answer"
	"sovereign/internal/wire/chat"
)

// serveCached answers from the cache, if the workspace wants that and the cache has an answer. It holds no money, calls
// no provider and wakes no engine: that is why dedicated endpoints are cached too, although their requests cost
// nothing.
func (r *run) serveCached() (hit bool) {
	q, first := r.request, &r.plan.Order[0]
	on := q.Cache == "on" || q.Cache == "" && r.gateway.Workspaces.Of(q.Caller.Workspace).Cache
	if !on || q.Endpoint.Stateful {
		return false
	}
	if r.cache.key, on = r.cacheKey(first.ID); !on {
		return false
	}
	r.cache.state, r.cache.store = "miss", true
	entry, ok := r.gateway.Cache.Get(r.cache.key, time.Now())
	if !ok {
		return false
	}
	body, contentType, length := entry.Body, "application/json", len(entry.Body)
	if q.Stream {
		events, err := chat.Replay(entry.Body, q.IncludeUsage)
		if err != nil { // then the provider is asked again
			return false
		}
		body, contentType, length = events, eventStream, -1
	}
	r.cache.state, r.cache.servedBy, r.bill.model, r.bill.outcome = "hit", entry.Model, first, outcome.Cached
	r.noteFinish(entry.Body)
	r.begin(contentType, length)
	err := r.response.out.Send(body) // a caller that has left has lost nothing
	if r.clock.worked(); err == nil && r.progress.logged {
		r.progress.firstContent = r.clock.elapsed()
		r.log(entry.Body, answer.UsageIn(entry.Body), 0)
	}
	return true
}

// cacheKey returns the key of the request's answer by a model.
func (r *run) cacheKey(model string) (cache.Key, bool) {
	q := r.request
	route := q.Endpoint.Name + q.Endpoint.Form
	if q.MaxTokens == 0 { // then the answer depends on the default
		route = fmt.Sprintf("%s %d", route, r.maxTokens)
	}
	return cache.KeyOf(q.Caller.Workspace, route, model, q.Body)
}

// store puts an answer into the cache, unless a fallback gave it: the next request may be answered by the model itself.
func (r *run) store(body []byte) {
	if r.cache.store && r.servesFirstChoice() {
		r.gateway.Cache.Put(r.cache.key, cache.Entry{Model: r.bill.model.ID, Body: bytes.Clone(body)}, time.Now())
	}
}

// assemble adds an event to a stream's answer that will be stored.
func (r *run) assemble(event []byte) {
	if !r.cache.store || !r.servesFirstChoice() {
		return
	}
	if r.cache.assembly == nil {
		r.cache.assembly = &chat.Assembler{MaxBytes: maxDelivered}
	}
	if r.cache.assembly.Add(event) != nil {
		r.cache.store = false
	}
}

// storeAssembled stores the answer of a stream that has ended.
func (r *run) storeAssembled() {
	if r.cache.assembly == nil {
		return
	}
	if body, err := r.cache.assembly.Answer(); err == nil {
		r.store(body)
	}
}
