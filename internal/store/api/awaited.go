package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/edge"
	"sovereign/internal/store/db"
)

// PostAwaited declares a POST that queues a job and answers when the job has ended. start makes what is needed and
// queues the job; the ticket that it returns is JSON that names the job. finish waits for the job and reads the answer.
//
// An Idempotency-Key covers start alone, in one transaction: a repetition starts nothing, and waits for the same job.
func PostAwaited[In, Ticket, Out any](
	path string, p Permission, start Handler[In, Ticket], finish Handler[Ticket, Out], summary string,
	options ...Option,
) Route {
	r := route[In, Out](http.MethodPost, path, p, nil, summary, options)
	r.call = func(ctx context.Context, caller tenant.Caller, in any) (any, error) {
		return start(ctx, caller, in.(In))
	}
	r.finish = func(ctx context.Context, caller tenant.Caller, ticket []byte) (any, error) {
		var t Ticket
		if err := json.Unmarshal(ticket, &t); err != nil {
			return nil, fmt.Errorf("read a ticket: %w", err)
		}
		return finish(ctx, caller, t)
	}
	return r
}

// awaited is the answer of the job that a ticket names.
func (rt *Router) awaited(ctx context.Context, route *Route, ticket any) (any, error) {
	text, err := json.Marshal(ticket)
	if err != nil {
		return nil, fmt.Errorf("write a ticket: %w", err)
	}
	return route.finish(ctx, edge.Caller(ctx), text)
}

// started is the status of an answer that is a ticket: the job may not have ended.
const started = http.StatusAccepted

// finishOnce waits for the job of an Idempotency-Key, and keeps the answer in the place of the ticket. A refusal that
// does not say when to come back leaves no memory: the next request with that key starts again.
func (rt *Router) finishOnce(
	ctx context.Context, route *Route, ws tenant.ID, key string, ticket []byte,
) (answer, error) {
	out, err := route.finish(ctx, edge.Caller(ctx), ticket)
	if err != nil {
		if refusal, ok := errors.AsType[*fault.Fault](err); ok && refusal.RetryAfter == 0 {
			_, forgotten := db.Exec(ctx, rt.DB.In(ws), `
				DELETE FROM idempotency_keys WHERE workspace_id = $1 AND route = $2 AND key = $3 AND answer = $4`,
				scopeOf(ctx, route), key, ticket)
			err = errors.Join(err, forgotten)
		}
		return answer{}, err
	}
	made, err := renderJSON(route.status, out)
	if err != nil {
		return answer{}, fmt.Errorf("render %s: %w", route.Pattern(), err)
	}
	if _, err := db.Exec(ctx, rt.DB.In(ws), `
		UPDATE idempotency_keys SET status = $4, answer = $5
		WHERE workspace_id = $1 AND route = $2 AND key = $3 AND answer = $6`,
		scopeOf(ctx, route), key, made.status, made.body, ticket); err != nil {
		rt.Log.Warn("cannot keep an answer for its Idempotency-Key; a repetition reads it again",
			"route", route.Pattern(), "err", err)
	}
	return made, nil
}
