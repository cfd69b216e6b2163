package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/edge"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
)

// idempotencyWindow is how long an answer is stored.
const idempotencyWindow = 24 * time.Hour

// idempotencyKeyLength bounds a key's length; a variable only because the schema needs its address.
var idempotencyKeyLength = 255

// A storedAnswer is the answer that an Idempotency-Key got.
type storedAnswer struct {
	BodySha256 []byte
	Status     int
	Answer     []byte
}

// idempotent runs a POST at most once per Idempotency-Key. The effect and the stored answer commit in one
// transaction. The second of two concurrent calls, or a repetition after a crash or after a connection that was lost
// during COMMIT, therefore finds either both or neither. A refusal is not stored: it had no effect.
func (rt *Router) idempotent(
	ctx context.Context, r *http.Request, route *Route, ws tenant.ID, key string, body []byte, in any,
) (answer, error) {
	if route.outside {
		return answer{}, fault.UnsupportedParameter.New("Idempotency-Key cannot be honoured here: the effect is not in the database alone")
	}
	if len(key) > idempotencyKeyLength {
		return answer{}, fault.Invalid("Idempotency-Key", "must be at most 255 characters")
	}
	if ws == "" {
		ws = tenant.Server
	}
	scope := scopeOf(ctx, route)
	// The path counts as well as the body: the same key on another resource is another request.
	sum := sha256.Sum256(append([]byte(r.URL.EscapedPath()+"?"+r.URL.RawQuery+"\n"), body...))
	var made answer
	var before db.Version
	version, err := rt.DB.Tx(ctx, func(tx *db.Tx) error {
		before = 0
		prior, err := findStored(ctx, tx, ws, scope, key)
		if err != nil {
			return err
		}
		if prior != nil {
			if made, err = prior.replay(sum[:]); err != nil {
				return err
			}
			before, err = feed.Head(ctx, tx.Across("versions number all workspaces together"))
			return err
		}
		bound := tx.Bind(ctx)
		out, err := route.call(bound, edge.Caller(ctx), in)
		if err != nil {
			return err
		}
		status := route.statusOf(out)
		if route.finish != nil {
			status = started
		}
		if made, err = renderJSON(status, out); err != nil {
			return fmt.Errorf("render %s: %w", route.Pattern(), err)
		}
		kept := made
		if route.secret {
			kept.body = nil
		}
		return keep(ctx, tx.In(ws), scope, key, sum[:], kept)
	})
	if err != nil {
		return answer{}, err
	}
	// A repetition makes the promise of the first answer: the change is in force.
	if err := rt.Feed.Await(ctx, max(version, before)); err != nil {
		return answer{}, err
	}
	if route.finish != nil && made.status == started {
		return rt.finishOnce(ctx, route, ws, key, made.body)
	}
	return made, nil
}

// keep stores the answer to a key and the digest of its request.
func keep(ctx context.Context, in db.Scoped, scope, key string, sum []byte, made answer) error {
	_, err := db.Exec(ctx, in, `
		INSERT INTO idempotency_keys (workspace_id, route, key, body_sha256, status, answer, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		scope, key, sum, made.status, made.body, clock.Now())
	return err
}

// scopeOf is what an Idempotency-Key belongs to beside its workspace: the route and, for a session, the person. Two
// people never get each other's answers.
func scopeOf(ctx context.Context, route *Route) string {
	if caller := edge.Caller(ctx); caller.Session != "" {
		return route.Pattern() + " " + string(caller.User)
	}
	return route.Pattern()
}

func findStored(ctx context.Context, tx *db.Tx, ws tenant.ID, route, key string) (*storedAnswer, error) {
	_, err := db.Exec(ctx, tx.In(ws),
		`DELETE FROM idempotency_keys WHERE workspace_id = $1 AND route = $2 AND key = $3 AND created_at < $4`,
		route, key, clock.Now().Add(-idempotencyWindow))
	if err != nil {
		return nil, fmt.Errorf("forget an old Idempotency-Key: %w", err)
	}
	prior, err := db.Maybe[storedAnswer](ctx, tx.In(ws), `
		SELECT body_sha256, status, answer FROM idempotency_keys
		WHERE workspace_id = $1 AND route = $2 AND key = $3`, route, key)
	if err != nil {
		return nil, fmt.Errorf("read an Idempotency-Key: %w", err)
	}
	return prior, nil
}

func (g *storedAnswer) replay(sum []byte) (answer, error) {
	if !bytes.Equal(g.BodySha256, sum) {
		return answer{}, fault.IdempotencyConflict.New("this Idempotency-Key was used with another request")
	}
	if g.Answer == nil {
		return answer{}, fault.IdempotencyConflict.New("this was done, and its answer showed a secret once; it was not kept")
	}
	return answer{status: g.Status, kind: jsonType, body: g.Answer}, nil
}

// DeleteExpiredAnswers deletes the stored answers whose time is over. It is called periodically.
func DeleteExpiredAnswers(ctx context.Context, d *db.DB) error {
	_, err := db.Exec(ctx, d.Across("old answers of all workspaces"),
		`DELETE FROM idempotency_keys WHERE created_at < $1`, clock.Now().Add(-idempotencyWindow))
	return err
}
