package gateway

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/outcome"
	"sovereign/internal/live"
	"sovereign/internal/net/life"
	"sovereign/internal/plane/gateway/plan"
	"sovereign/internal/plane/gateway/request"
	"sovereign/internal/plane/infer"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/till"
	"sovereign/internal/wire/upstream"
)

// Serve answers one request. It returns a refusal if nothing of an answer was written; everything else is in the answer
// itself. When Serve returns, the request's money is settled, or owed.
func (g *Gateway) Serve(caller context.Context, q *request.Request, out Writer) error {
	return g.serve(caller, q, nil, out)
}

// serve is Serve for a caller's request, or for a completion of the product, which has no writer.
func (g *Gateway) serve(caller context.Context, q *request.Request, c *completion, out Writer) (err error) {
	g.running.Add(1)
	defer g.running.Add(-1)
	r := &run{
		gateway: g, request: q, completion: c, settings: g.settings.Load(), fleet: g.Fleet(), clock: startStopwatch(),
	}
	r.share = g.Bounds.Buffered.Of(q.Caller.Workspace)
	r.init()
	r.response.out = out
	span := trace.SpanFromContext(caller)
	r.progress.traced = span.IsRecording()
	defer func() {
		r.recordDraw(err)
		r.ended(span, err)
	}()
	defer r.settleLimits()
	if err := q.Parse(); err != nil {
		return err
	}
	err = r.resolve()
	r.progress.logged = r.wantsLog()
	if err != nil {
		if len(r.plan.Order) == 0 { // the arm's model is not asked this, and the other's may be
			r.draw()
		}
		return err
	}
	if r.serveCached() {
		return nil
	}
	r.draw()
	if err := r.hold(caller); err != nil {
		return err
	}
	defer r.bill.tab.Drop() //nolint:contextcheck // a settlement outlives its request

	r.deadline.Start(r.clock.now, r.settings.RequestTimeout)
	defer r.deadline.Finish()
	r.deadline.Owner = r
	g.requests.Add(&r.deadline)
	defer g.requests.Remove(&r.deadline)
	defer life.AfterFunc(caller, r.callerLeft).Stop()
	if cause := r.denied(r.clock.now); cause != nil { // since the key was accepted
		r.deadline.End(cause)
	}
	defer func() { r.circuit.report(nil, r.clock.now) }()
	if err = r.attemptAll(); err == nil && c != nil { //nolint:contextcheck // a run has its own life, which ends with a cause
		r.keepAnswer() //nolint:contextcheck // a settlement outlives its request
	}
	return err
}

// callerLeft notes that the caller has disconnected. Any goroutine may call it. The request ends then, unless the
// provider has worked for it at a cost that is not known yet: while it waits for an engine, nothing has. A stream that
// has delivered content is read on for a short time, because most providers report usage at its end. A whole answer
// that has been awaited for longer than freeWait is awaited to its end.
func (r *run) callerLeft() {
	if r.response.left.Swap(true) {
		return
	}
	switch now := time.Now(); {
	case r.response.waiting.Load():
		r.deadline.End(errLeft)
	case r.response.delivered.Load():
		r.deadline.Shorten(now, r.settings.LeaveTimeout)
	case r.completion == nil && !r.request.Stream && now.Sub(r.clock.started) > r.gateway.freeWait:
	default:
		r.deadline.End(errLeft)
	}
}

// resolver returns the resolver for requests to a fleet.
func (g *Gateway) resolver(c *Settings, f *upstream.Fleet) plan.Resolver {
	return plan.Resolver{Models: g.models(f), Aliases: g.Aliases, Random: g.Random, OwnKeyFee: c.OwnKeyFee}
}

func (g *Gateway) models(f *upstream.Fleet) live.Models {
	return live.Models{Catalog: f.Catalog, Own: g.Own, Keys: g.Keys}
}

// resolve finds the models that may run.
func (r *run) resolve() (err error) {
	var own int64
	if r.request.Internal != nil {
		own = r.request.Internal.MaxTokens
	}
	r.maxTokens = cmp.Or(
		own, r.gateway.Workspaces.Of(r.request.Caller.Workspace).DefaultMaxTokens, r.settings.DefaultMaxTokens,
	)
	resolver := r.gateway.resolver(r.settings, r.fleet)
	if r.plan, err = resolver.Resolve(r.request, r.planArray[:0]); err != nil {
		return err
	}
	return r.checkModels()
}

// hold holds the worst case of what the request may cost.
func (r *run) hold(caller context.Context) error {
	q, named, tag := r.request, "", ""
	if q.Internal != nil {
		named = q.Internal.Hold
	}
	if q.Annotations != nil {
		tag = chargedTag(q.Annotations.Tag)
	}
	worst := r.plan.Hold(q, r.maxTokens, func() money.Nano {
		return min(r.gateway.Till.Free(q.Caller.Workspace, named), q.Pass.Free(r.clock.now))
	})
	if err := r.reserve(worst); err != nil {
		return err
	}
	tab, err := r.gateway.Till.Open(caller, journal.Charge{
		Request: q.ID, Workspace: q.Caller.Workspace, Key: q.Caller.Key, Route: q.Endpoint.Name, Requested: q.Model,
		Alias: r.plan.Alias, Hold: named, Tag: tag,
	}, worst)
	if err == nil {
		r.bill.tab = tab
		return nil
	}
	var short *till.InsufficientFunds // declared here, since errors.As makes it escape
	switch {
	case !errors.As(err, &short):
		return err
	case named != "":
		return &infer.HoldSpent{Hold: named, Free: short.Free, Ended: short.Ended, Busy: short.Busy}
	default:
		return r.plan.Insufficient(q, worst, short.Free)
	}
}

// ended notes how a request ended, in the metrics and on its span.
func (r *run) ended(span trace.Span, err error) {
	ended := string(r.bill.outcome)
	switch {
	case ended != "":
	case err != nil:
		ended = refusalCode(err)
	default:
		ended = string(outcome.Nothing)
	}
	q, used := r.request, &r.bill.used
	r.clock.worked()
	r.gateway.Metrics.ended(q.Endpoint.Name, ended, r.clock.elapsed()-r.clock.waited)
	if !r.progress.traced {
		return
	}
	span.SetAttributes(
		attribute.String("gen_ai.operation.name", q.Endpoint.Name), attribute.String("sovereign.outcome", ended),
	)
	if r.bill.model == nil {
		return
	}
	span.SetAttributes(
		attribute.String("gen_ai.provider.name", r.bill.model.Provider.Name),
		attribute.String("gen_ai.request.model", q.Model), attribute.String("gen_ai.response.model", r.bill.model.ID),
		attribute.Bool("gen_ai.request.stream", q.Stream), attribute.Int64("gen_ai.usage.input_tokens", used.Input),
		attribute.Int64("gen_ai.usage.output_tokens", used.Output),
		attribute.Int64("gen_ai.usage.cache_read.input_tokens", used.Cached),
	)
	if q.MaxTokens > 0 {
		span.SetAttributes(attribute.Int64("gen_ai.request.max_tokens", q.MaxTokens))
	}
	if reasons := r.progress.finishReasons; len(reasons) > 0 {
		span.SetAttributes(attribute.StringSlice("gen_ai.response.finish_reasons", reasons))
	}
	if broken := r.progress.broken; broken != nil { // a refusal is noted by the edge
		span.SetAttributes(attribute.String("error.type", broken.Name()))
		span.SetStatus(codes.Error, "")
	}
}

// refusalCode returns the code of a refusal, for metrics.
func refusalCode(err error) string {
	var f *fault.Fault
	if errors.As(err, &f) && f.Code != "" {
		return f.Code
	}
	return "upstream_error"
}
