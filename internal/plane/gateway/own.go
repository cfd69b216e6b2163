package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/infer"
)

var _ infer.Completer = (*Gateway)(nil)

// own is Chat as the product asks it: of one model, and in one piece. It is never logged, and never given from memory.
var own = func() *Endpoint {
	e := *Chat
	e.reads, e.check, e.longest = maps.Clone(e.reads), (*Ask).agrees, maxOwn
	for _, name := range []string{"models", "stream", "stream_options"} {
		e.reads[name] = never
	}
	return &e
}()

// maxOwn bounds an answer that the product asks for: nothing of it is sent on before it is whole.
const maxOwn = 4 << 20

// never refuses a member that the product has no use for.
func never(*Ask, []byte) error {
	return errors.New("must not be there: the product asks one model, for a whole answer")
}

// An errand is a request of the product's own, and what becomes of it.
type errand struct {
	*infer.Request
	left   func() error // nil while who asked is there
	room   account      // for its bytes, and the answer's
	body   []byte       // of the whole answer
	answer *infer.Answer
	err    error // why an answer that came was not kept
}

// most is how much output it may have at most; 0 when it does not say, or is no errand.
func (e *errand) most() int64 {
	if e == nil {
		return 0
	}
	return e.MaxTokens
}

// errand is the road's view of a request of the product's own. No body is longer than a caller's may be.
func (g *Gateway) errand(q *infer.Request) (*Ask, error) {
	if limit := g.Bounds.Body.Load(); int64(len(q.Body)) > limit {
		return nil, fault.BodyTooLarge.New("the body is over the limit of %d bytes", limit)
	}
	return &Ask{
		Endpoint: own, Caller: tenant.Caller{Workspace: q.Workspace, Key: tenant.KeyID(q.Origin)}, ID: id.New("req"), Body: q.Body, Cache: "off",
		own: &errand{Request: q, room: account{budget: g.Bounds.Buffered}},
	}, nil
}

// agrees refuses an errand whose body says something else than itself.
func (a *Ask) agrees() error {
	switch e := a.own; {
	case e.Workspace == "" || e.Origin == "":
		return errors.New("a completion of the product's own has no workspace or no origin")
	case a.model != e.Model:
		return fault.Invalid("model", fmt.Sprintf("must be %q", e.Model))
	case e.MaxTokens < 0:
		return fault.Invalid("max_tokens", "must not be negative")
	case a.limit > 0:
		return fault.Invalid("max_tokens", "must not be there: the maximum is named for the model's provider")
	default:
		return nil
	}
}

// Complete implements infer.Completer on the road of every request, with its holds, tries, keys and charges. It knows no
// alias, no fallback and no log.
func (g *Gateway) Complete(ctx context.Context, q *infer.Request) (*infer.Answer, error) {
	ask, err := g.errand(q)
	if err != nil {
		return nil, err
	}
	e := ask.own
	e.left = ctx.Err
	if !e.room.take(int64(len(q.Body))) {
		return nil, errNoRoom
	}
	defer e.room.back()
	err = g.Serve(ctx, ask, nil)
	switch gone := e.left(); {
	case e.err != nil:
		return nil, e.err
	case err != nil && gone != nil:
		return nil, gone
	case err != nil:
		return nil, err
	default:
		return e.answer, nil
	}
}

// Estimate implements infer.Completer. The prompt is counted with a tokenizer, which need not be the model's own.
func (g *Gateway) Estimate(q *infer.Request, output int64) (money.Nano, error) {
	ask, err := g.errand(q)
	if err != nil {
		return 0, err
	}
	if err := ask.read(); err != nil {
		return 0, err
	}
	plan, err := g.resolve(ask, g.Fleet().Catalog, nil)
	if err != nil {
		return 0, err
	}
	c, r := plan.order[0], run{gateway: g, ask: ask, model: plan.order[0]}
	used := r.count()
	used.Output = ask.n * min(max(output, 0), c.MaxOutput)
	return c.price.At(used.Input).Of(used), nil
}

// bring takes a whole answer out of the provider's hands: its connection serves another while the answer is kept.
func (r *run) bring(body []byte) *failure {
	e := r.ask.own
	if !e.room.take(int64(len(body))) {
		return &failure{class: over, err: errNoRoom, fault: errNoRoom}
	}
	r.clock.ours()
	r.gateway.Metrics.first(r)
	r.judge(nil)
	e.body = bytes.Clone(body)
	return nil
}

// keep gives a whole answer to who asked for it, and charges for it once it is kept. Until then the journal knows nothing
// of it; what it cannot take then is owed.
func (r *run) keep() {
	e := r.ask.own
	used, counted := r.spent()
	answer := &infer.Answer{RequestID: r.ask.ID, Model: r.model.ID, Body: e.body, Usage: used, Cost: r.cost(used), Latency: r.begins}
	r.clock.ours()
	if e.err = e.left(); e.err == nil && e.Keep != nil {
		e.err = e.Keep(answer)
		r.clock.theirs()
	}
	if e.err == nil {
		r.charge(Finished, used, counted)
		e.answer = answer
	}
}

// spent is what a finished answer used: as the provider reports, or else as we count.
func (r *run) spent() (used live.Usage, counted bool) {
	if r.reported != nil {
		return *r.reported, false
	}
	return r.count(), true
}
