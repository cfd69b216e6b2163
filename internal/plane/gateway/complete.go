package gateway

import (
	"context"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/gateway/request"
	"sovereign/internal/plane/infer"
)

var _ infer.Completer = (*Gateway)(nil)

// internalRequest returns a request of the product. Its body is bounded like a caller's.
func (g *Gateway) internalRequest(i *infer.Request) (*request.Request, error) {
	if limit := g.Bounds.Body.Load(); int64(len(i.Body)) > limit {
		return nil, fault.BodyTooLarge.New("the body is over the limit of %d bytes", limit)
	}
	caller := tenant.Caller{Workspace: i.Workspace, Key: tenant.KeyID(i.Origin)}
	return &request.Request{
		Endpoint: request.Internal, Caller: caller, ID: id.New("req"), Body: i.Body, Cache: "off", Internal: i,
		Pass: g.Meter.Internal(&caller),
	}, nil
}

// Complete implements infer.Completer. The request is served like a caller's, with holds, retries, keys and charges,
// but without aliases, fallbacks, cache and log.
func (g *Gateway) Complete(ctx context.Context, i *infer.Request) (*infer.Answer, error) {
	q, err := g.internalRequest(i)
	if err != nil {
		return nil, err
	}
	c := &completion{request: i, left: ctx.Err, held: reservation{share: g.Bounds.Buffered.Of(i.Workspace)}}
	if !c.held.take(int64(len(i.Body))) {
		return nil, errBufferFull
	}
	defer c.held.release()
	err = g.serve(ctx, q, c, nil)
	switch left := c.left(); {
	case c.err != nil:
		return nil, c.err
	case err != nil && left != nil:
		return nil, left
	case err != nil:
		return nil, err
	default:
		return c.answer, nil
	}
}

// Estimate implements infer.Completer. The prompt is counted with a tokenizer, which need not be the model's own.
func (g *Gateway) Estimate(i *infer.Request, output int64) (money.Nano, error) {
	q, err := g.internalRequest(i)
	if err != nil {
		return 0, err
	}
	if err := q.Parse(); err != nil {
		return 0, err
	}
	resolver := g.resolver(g.settings.Load(), g.Fleet())
	p, err := resolver.Resolve(q, nil)
	if err != nil {
		return 0, err
	}
	b := bill{gateway: g, request: q, model: &p.Order[0]}
	used := b.count()
	used.Output = q.Choices * min(max(output, 0), b.model.MaxOutput)
	return b.cost(used), nil
}
