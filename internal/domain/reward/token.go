package reward

import (
	"context"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"sovereign/internal/base/apikey"
	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/text/redact"
)

// A Token may score in one session, and do nothing else. It is for trainers that cannot send headers.
type Token struct {
	ID        string     `json:"id"`
	Object    string     `json:"object" db:"-" enum:"reward_token"`
	SessionID string     `json:"session_id"`
	Name      string     `json:"name"`
	CreatedAt clock.Time `json:"created_at"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Token) SchemaName() string { return "RewardToken" }

const tokenObject = "reward_token"

// Bounds of tokens.
const (
	maxTokens    = 100 // of a session
	maxTokenName = 64
)

// CreateToken makes a token of an active session. Only its digest is stored.
func (s *Store) CreateToken(
	ctx context.Context, ws tenant.ID, by tenant.Actor, sessionID, name string,
) (made Token, text secret.Text, err error) {
	name = redact.String(name)
	if n := utf8.RuneCountInString(name); n < 1 || n > maxTokenName || strings.ContainsFunc(name, hidden) {
		return Token{}, text, fault.Invalid("name", "must be 1 to 64 characters that can be seen")
	}
	if _, err := s.current(ctx, ws, sessionID); err != nil { // ends it if its time is over
		return Token{}, text, err
	}
	text, digest := apikey.NewReward()
	made = Token{ID: id.New("rtok"), Object: tokenObject, SessionID: sessionID, Name: name, CreatedAt: s.now()}
	_, err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(ws)
		r, err := s.find(ctx, in, sessionID)
		switch {
		case err != nil:
			return err
		case r.Status != Active:
			return r.ended()
		}
		if _, err := db.Exec(ctx, in, `
			INSERT INTO reward_tokens (workspace_id, id, session_id, hash, name, created_by, created_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			made.ID, sessionID, digest[:], name, by.User, made.CreatedAt); err != nil {
			return fmt.Errorf("insert a token: %w", err)
		}
		n, err := db.One[int64](ctx, in,
			`SELECT COUNT(*) FROM reward_tokens WHERE workspace_id = $1 AND session_id = $2`, sessionID)
		switch {
		case err != nil:
			return fmt.Errorf("count tokens: %w", err)
		case n > maxTokens:
			return fault.QuotaExceeded.New("a reward session has at most %d tokens: delete one first", maxTokens)
		}
		return audit.Record(ctx, tx, ws, by, object+".token.create", sessionID, nil, made)
	})
	if err != nil {
		return Token{}, secret.Text{}, err
	}
	return made, text, nil
}

func hidden(r rune) bool { return !unicode.IsGraphic(r) }

const listed = `SELECT id, session_id, name, created_at FROM reward_tokens WHERE workspace_id = $1
	AND session_id = $2`

// Tokens lists the tokens of a session, the newest first.
func (s *Store) Tokens(ctx context.Context, ws tenant.ID, sessionID string, limit, offset int) ([]Token, error) {
	if _, err := s.find(ctx, s.DB.In(ws), sessionID); err != nil {
		return nil, err
	}
	all, err := db.Query[Token](ctx, s.DB.In(ws), listed+` ORDER BY created_at DESC, id DESC LIMIT $3 OFFSET $4`,
		sessionID, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	for i := range all {
		all[i].Object = tokenObject
	}
	return all, nil
}

// RevokeToken deletes a token. No call that begins after it has returned is accepted with it.
func (s *Store) RevokeToken(ctx context.Context, ws tenant.ID, by tenant.Actor, sessionID, tokenID string) error {
	_, err := s.DB.Tx(ctx, func(tx *db.Tx) error {
		before, err := db.Maybe[Token](ctx, tx.In(ws), listed+` AND id = $3`, sessionID, tokenID)
		switch {
		case err != nil:
			return fmt.Errorf("find a token: %w", err)
		case before == nil:
			return fault.NotFound("token of a reward session", tokenID)
		}
		if _, err := db.Exec(ctx, tx.In(ws),
			`DELETE FROM reward_tokens WHERE workspace_id = $1 AND session_id = $2 AND id = $3`, sessionID, tokenID,
		); err != nil {
			return fmt.Errorf("delete a token: %w", err)
		}
		before.Object = tokenObject
		return audit.Record(ctx, tx, ws, by, object+".token.revoke", sessionID, before, nil)
	})
	return err
}

// byToken returns the session of a token. It refuses a token that is malformed, without a query, that was revoked, or
// whose maker may no longer spend the workspace's money. A workspace that has expired, or is for inference alone, is
// refused as it is with its keys.
func (s *Store) byToken(ctx context.Context, text string) (ws tenant.ID, sessionID string, err error) {
	digest, ok := apikey.ParseReward(text)
	if !ok {
		return "", "", errToken()
	}
	type row struct {
		WorkspaceID tenant.ID
		SessionID   string
		Role        tenant.Role
	}
	r, err := db.Maybe[row](ctx, s.DB.Across("a token names its workspace"), `
		SELECT t.workspace_id, t.session_id, m.role FROM reward_tokens t
		JOIN members m ON m.workspace_id = t.workspace_id AND m.user_id = t.created_by WHERE t.hash = $1`, digest[:])
	switch {
	case err != nil:
		return "", "", fmt.Errorf("find a token: %w", err)
	case r == nil || !r.Role.Manages():
		return "", "", errToken()
	}
	_, limits := s.Limits.Of(&tenant.Caller{Workspace: r.WorkspaceID})
	switch {
	case limits == nil:
	case limits.Expired(s.now()):
		return "", "", fault.KeyExpired.New("the workspace expired at %s", limits.ExpiresAt)
	case limits.InferenceOnly:
		return "", "", fault.ScopeNotAllowed.New("the scope of the workspace is inference: it may call models and list them")
	}
	return r.WorkspaceID, r.SessionID, nil
}

func errToken() error {
	return fault.InvalidKey.New("the token of a reward session is malformed, or was revoked")
}
