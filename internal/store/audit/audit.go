// Package audit records who changed what, when, and what it was before. An entry is written in the transaction of the
// change, so that neither exists without the other.
package audit

import (
	"bytes"
	"context"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/chain"
	"sovereign/internal/store/db"
)

// An Entry is one change. Before is null for a creation, After for a deletion.
type Entry struct {
	ID        string         `json:"id"`
	Object    string         `json:"object" db:"-" enum:"audit_entry"`
	At        clock.Time     `json:"at"`
	Actor     tenant.Actor   `json:"actor" db:"-"`
	RequestID string         `json:"request_id"`
	Action    string         `json:"action" example:"key.revoke"`
	Subject   string         `json:"subject"`
	Before    jsontext.Value `json:"before"`
	After     jsontext.Value `json:"after"`
}

type request struct{}

// WithRequest makes the entries that are recorded with ctx name the request that caused them.
func WithRequest(ctx context.Context, requestID string) context.Context {
	return context.WithValue(ctx, request{}, requestID)
}

// Request returns the request id of WithRequest, or nothing. A job stores it, so that what the job records names the
// request that queued it.
func Request(ctx context.Context) string {
	requestID, _ := ctx.Value(request{}).(string)
	return requestID
}

// Record writes one change, and links it to the audit chain. before and after are stored as JSON; nil is null.
func Record(
	ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, action, subject string, before, after any,
) error {
	was, err := encode(before)
	if err != nil {
		return fmt.Errorf("audit %s: %w", action, err)
	}
	is, err := encode(after)
	if err != nil {
		return fmt.Errorf("audit %s: %w", action, err)
	}
	entry := id.New("aud")
	row := []any{
		string(ws), entry, int64(clock.Now()), string(by.Kind), string(by.User), credential(by), Request(ctx), action,
		subject, was, is,
	}
	if _, err := db.Exec(ctx, tx.In(ws), `
		INSERT INTO audit_entries (workspace_id, id, at, actor_kind, actor_user, actor_key, request_id, action, subject, before_json, after_json)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`, row[1:]...); err != nil {
		return fmt.Errorf("audit %s: %w", action, err)
	}
	hash, err := layout.Hash(row)
	if err != nil {
		return fmt.Errorf("audit %s: %w", action, err)
	}
	return chain.Add(ctx, tx, chain.Audit, chain.NewLink(entry, hash))
}

// layout is the order of a row's values in Record.
var layout = chain.NewLayout("audit_entries", []string{
	"workspace_id", "id", "at", "actor_kind", "actor_user", "actor_key", "request_id", "action", "subject",
	"before_json", "after_json",
})

// credential is the id of the actor's key or session: one column has either, and the actor's kind tells which.
func credential(by tenant.Actor) string {
	if by.Kind == tenant.ActorSession {
		return string(by.Session)
	}
	return string(by.Key)
}

// actor is the reverse of credential.
func actor(kind tenant.ActorKind, user tenant.UserID, credential string) tenant.Actor {
	by := tenant.Actor{Kind: kind, User: user}
	if kind == tenant.ActorSession {
		by.Session = tenant.SessionID(credential)
	} else {
		by.Key = tenant.KeyID(credential)
	}
	return by
}

func encode(v any) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	text, err := json.Marshal(v, json.Deterministic(true))
	if bytes.Equal(text, []byte("null")) {
		return nil, err
	}
	return text, err
}

// List reads a workspace's entries, newest first. An empty action means all.
func List(ctx context.Context, d *db.DB, ws tenant.ID, action string, limit, offset int) ([]Entry, error) {
	return read(ctx, d.In(ws), `WHERE workspace_id = $1 AND ($2 = '' OR action = $2)
		ORDER BY at DESC, id DESC LIMIT $3 OFFSET $4`, action, limit, offset)
}

// History reads the entries of one subject, newest first. kind is the prefix of the subject's actions, such as alias
// for alias.put: a name that people choose may look like the id of something else.
func History(ctx context.Context, d *db.DB, ws tenant.ID, kind, subject string, limit, offset int) ([]Entry, error) {
	return read(ctx, d.In(ws), `WHERE workspace_id = $1 AND subject = $2 AND action LIKE $3
		ORDER BY at DESC, id DESC LIMIT $4 OFFSET $5`, subject, kind+".%", limit, offset)
}

func read(ctx context.Context, s db.Scoped, which string, args ...any) ([]Entry, error) {
	type row struct {
		ID, RequestID, Action, Subject string
		At                             clock.Time
		ActorKind                      tenant.ActorKind
		ActorUser                      tenant.UserID
		ActorKey                       string
		BeforeJSON, AfterJSON          []byte
	}
	rows, err := db.Query[row](ctx, s, `
		SELECT id, at, actor_kind, actor_user, actor_key, request_id, action, subject, before_json, after_json
		FROM audit_entries `+which, args...)
	if err != nil {
		return nil, fmt.Errorf("read audit: %w", err)
	}
	entries := make([]Entry, len(rows))
	for i, r := range rows {
		entries[i] = Entry{
			ID: r.ID, Object: "audit_entry", At: r.At, RequestID: r.RequestID, Action: r.Action, Subject: r.Subject,
			Actor:  actor(r.ActorKind, r.ActorUser, r.ActorKey),
			Before: shown(r.BeforeJSON), After: shown(r.AfterJSON),
		}
	}
	return entries, nil
}

func shown(text []byte) jsontext.Value {
	if text == nil {
		return jsontext.Value("null")
	}
	return text
}
