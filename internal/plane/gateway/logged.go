package gateway

import (
	"cmp"

	"sovereign/internal/base/money"
	"sovereign/internal/base/outcome"
	"sovereign/internal/live"
	"sovereign/internal/plane/capture"
	"sovereign/internal/plane/gateway/request"
)

// wantsLog reports whether the exchange is to be logged if it finishes. Turning logging on applies to requests that
// begin afterwards. Turning it off applies at once: the recorder checks it again at the end.
func (r *run) wantsLog() bool {
	q, recorder := r.request, r.gateway.Recorder
	return recorder != nil && q.Annotations != nil && !q.Annotations.NoLog && q.Endpoint == request.Chat &&
		recorder.Enabled(q.Caller.Workspace)
}

// log hands a finished exchange to the recorder, if it is to be logged: those of dedicated endpoints never are. answer
// is the whole answer.
func (r *run) log(answer []byte, used live.Usage, cost money.Nano) {
	served := cmp.Or(r.cache.servedBy, r.bill.model.ID)
	if !r.progress.logged || !r.bill.outcome.Logged() || live.IsDedicated(served) {
		return
	}
	q, cached := r.request, r.bill.outcome == outcome.Cached
	e := capture.Exchange{
		Workspace: q.Caller.Workspace, Key: q.Caller.Key, Request: q.ID, Model: served, Requested: q.Model,
		Alias: r.plan.Alias, Provider: r.bill.model.Provider.Name, Tag: q.Annotations.Tag, Trace: q.Annotations.Trace,
		Stream: q.Stream, Cached: cached, Answer: answer, Usage: used, Cost: cost, Latency: r.clock.elapsed(),
		First: r.progress.firstContent,
	}
	if !cached {
		e.FallbackFrom = r.fallbackFrom()
	}
	e.Messages, e.Tools = r.texts()
	e.Draw = r.record(nil)
	r.gateway.Recorder.Record(&e)
	r.drawn.place.Seq = 0 // it is recorded, unless Record has panicked
}

// texts returns what is logged of the body.
func (r *run) texts() (messages, tools []byte) {
	for i := range r.request.Members {
		switch m := &r.request.Members[i]; m.Name {
		case "messages":
			messages = m.Value
		case "tools":
			tools = m.Value
		}
	}
	return messages, tools
}
