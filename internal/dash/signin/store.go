package signin

import (
	"context"
	"fmt"
	"net/mail"
	"strings"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/workspace"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
)

// A Store keeps sessions and links. Every change is audited in its own transaction, and in force when its method
// returns.
type Store struct {
	db         *db.DB
	feed       *feed.Feed
	workspaces *workspace.Store

	// Queues returns the queues that a person reviews; nil for none. It reads in the transaction that ctx is bound to.
	Queues func(ctx context.Context, user tenant.UserID) ([]SessionQueue, error)

	// ReviewsElsewhere reports whether a person reviews in another workspace than ws, in a closed queue too; nil asks
	// Queues. It reads in the transaction that ctx is bound to.
	ReviewsElsewhere func(ctx context.Context, user tenant.UserID, ws tenant.ID) (bool, error)

	// Granted reports whether a person may review once a link was opened; nil for nobody. It reads in the transaction
	// that ctx is bound to.
	Granted func(ctx context.Context, user tenant.UserID) (bool, error)

	// AcceptGrants puts the grants of a person who was let in in force, in one workspace or, for tenant.Server, in all,
	// and returns how many were not before; nil for none.
	AcceptGrants func(ctx context.Context, tx *db.Tx, by tenant.Actor, ws tenant.ID, user tenant.UserID) (int, error)
}

// NewStore keeps sessions in d and publishes them through f. A person who leaves the last workspace loses them.
func NewStore(d *db.DB, f *feed.Feed, w *workspace.Store) *Store {
	s := &Store{db: d, feed: f, workspaces: w}
	w.Left = s.EndOutside
	return s
}

// people is why a statement is not of one workspace.
const people = "a person may belong to several workspaces"

// changedSession is the kind of change that is published.
const changedSession = "session"

// A person is a row of users.
type person struct {
	ID    tenant.UserID
	Email string
}

// find returns the person of an address, or nil.
func find(ctx context.Context, in db.Scoped, email string) (*person, error) {
	found, err := db.Maybe[person](ctx, in, `SELECT id, email FROM users WHERE email = $1`, normal(email))
	if err != nil {
		return nil, fmt.Errorf("find a person: %w", err)
	}
	return found, nil
}

// normal is how addresses are kept and compared.
func normal(email string) string { return strings.ToLower(strings.TrimSpace(email)) }

// checkEmail refuses what is not an address.
func checkEmail(email string) error {
	if parsed, err := mail.ParseAddress(email); err != nil || parsed.Address != email || len(email) > 254 {
		return fault.Invalid("email", "must be an email address")
	}
	return nil
}

// Places returns the workspaces that a person belongs to, by their names.
func (s *Store) Places(ctx context.Context, user tenant.UserID) ([]SessionWorkspace, error) {
	all, err := db.Query[SessionWorkspace](ctx, s.db.Across(people), `
		SELECT m.workspace_id, w.name, m.role, w.demo FROM members m JOIN workspaces w ON w.workspace_id = m.workspace_id
		WHERE m.user_id = $1 ORDER BY w.name, m.workspace_id`, user)
	if err != nil {
		return nil, fmt.Errorf("read workspaces of a person: %w", err)
	}
	return all, nil
}

// queues returns the queues that a person reviews.
func (s *Store) queues(ctx context.Context, user tenant.UserID) ([]SessionQueue, error) {
	if s.Queues == nil {
		return nil, nil
	}
	return s.Queues(ctx, user)
}

// belongs reports whether a person may sign in: as a member of a workspace, or as a reviewer.
func (s *Store) belongs(ctx context.Context, tx *db.Tx, user tenant.UserID) (bool, error) {
	n, err := db.One[int](ctx, tx.Across(people), `SELECT COUNT(*) FROM members WHERE user_id = $1`, user)
	if err != nil {
		return false, fmt.Errorf("count memberships: %w", err)
	}
	if n > 0 {
		return true, nil
	}
	queues, err := s.queues(tx.Bind(ctx), user)
	return len(queues) > 0, err
}

// An entry is what is known of a sign-in.
type entry struct {
	id      tenant.SessionID // of the session that begins
	user    tenant.UserID
	method  Method
	address string
	agent   string
	old     tenant.SessionID // the session that the browser had, of oldUser; it ends
	oldUser tenant.UserID
}

// oldOf returns the session that the browser had, if it was that person's.
func (e *entry) oldOf(user tenant.UserID) tenant.SessionID {
	if e.oldUser != user {
		return ""
	}
	return e.old
}

// begin starts a session and returns its secret. A session never survives a sign-in: the browser gets a new one.
func (s *Store) begin(ctx context.Context, tx *db.Tx, e entry) (begun Session, secret string, err error) {
	now := clock.Now()
	secret, digest := newSecret()
	begun = Session{
		ID: e.id, Object: "session", Method: e.method, Address: e.address, Agent: e.agent,
		CreatedAt: now, LastSeenAt: now, ExpiresAt: now.Add(absolute), Current: true,
	}
	if _, err := db.Exec(ctx, tx.Across(people), `
		INSERT INTO sessions (id, user_id, digest, method, address, agent, created_at, last_seen_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8)`,
		begun.ID, e.user, digest[:], e.method, e.address, e.agent, now, begun.ExpiresAt); err != nil {
		return Session{}, "", fmt.Errorf("begin a session: %w", err)
	}
	by := actor(begun.ID, e.user)
	tx.Touch(changedSession, tenant.Server, string(begun.ID))
	if err := audit.Record(ctx, tx, tenant.Server, by, "session.begin", string(begun.ID), nil, begun); err != nil {
		return Session{}, "", err
	}
	if e.old != "" {
		if _, err := s.end(ctx, tx, by, e.oldUser, e.old); err != nil {
			return Session{}, "", err
		}
	}
	return begun, secret, s.endOldest(ctx, tx, by, e.user)
}

// endOldest ends the sessions of a person that are too many.
func (s *Store) endOldest(ctx context.Context, tx *db.Tx, by tenant.Actor, user tenant.UserID) error {
	surplus, err := db.Query[tenant.SessionID](ctx, tx.Across(people), `
		SELECT id FROM sessions WHERE user_id = $1 AND ended_at = 0 AND expires_at > $2 AND last_seen_at > $3
		ORDER BY last_seen_at DESC, id DESC LIMIT 1000 OFFSET $4`,
		user, clock.Now(), clock.Now().Add(-idle), mostSessions)
	if err != nil {
		return fmt.Errorf("read sessions: %w", err)
	}
	for _, session := range surplus {
		if _, err := s.end(ctx, tx, by, user, session); err != nil {
			return err
		}
	}
	return nil
}

const sessionColumns = `'session' AS object, id, method, address, agent, created_at, last_seen_at, expires_at FROM sessions`

// end ends one session of a person. It reports whether there was one; ending it twice is a no-op.
func (s *Store) end(
	ctx context.Context, tx *db.Tx, by tenant.Actor, user tenant.UserID, session tenant.SessionID,
) (bool, error) {
	before, err := db.Maybe[Session](ctx, tx.Across(people), `
		SELECT `+sessionColumns+` WHERE user_id = $1 AND id = $2 AND ended_at = 0`, user, session)
	if err != nil || before == nil {
		return false, err
	}
	if _, err := db.Exec(ctx, tx.Across(people),
		`UPDATE sessions SET ended_at = $2 WHERE id = $1`, session, clock.Now()); err != nil {
		return false, fmt.Errorf("end session %s: %w", session, err)
	}
	tx.Touch(changedSession, tenant.Server, string(session))
	return true, audit.Record(ctx, tx, tenant.Server, by, "session.end", string(session), before, nil)
}

// endAll ends the sessions of a person but one, and returns how many.
func (s *Store) endAll(
	ctx context.Context, tx *db.Tx, by tenant.Actor, user tenant.UserID, but tenant.SessionID,
) (int, error) {
	all, err := db.Query[tenant.SessionID](ctx, tx.Across(people),
		`SELECT id FROM sessions WHERE user_id = $1 AND ended_at = 0 AND id <> $2 ORDER BY id`, user, but)
	if err != nil {
		return 0, fmt.Errorf("read sessions: %w", err)
	}
	for _, session := range all {
		if _, err := s.end(ctx, tx, by, user, session); err != nil {
			return 0, err
		}
	}
	return len(all), nil
}

// EndOutside ends the sessions of a person who belongs to nothing any more, in the transaction that took the last
// membership or grant away. The password goes too: whoever had set it does not come along when the person is invited
// by somebody else.
func (s *Store) EndOutside(ctx context.Context, tx *db.Tx, by tenant.Actor, user tenant.UserID) error {
	inside, err := s.belongs(ctx, tx, user)
	if err != nil || inside {
		return err
	}
	if err := s.forgetPassword(ctx, tx, by, user, ""); err != nil {
		return err
	}
	_, err = s.endAll(ctx, tx, by, user, "")
	return err
}

// Sessions reads the sessions of a person that are in force, newest first.
func (s *Store) Sessions(ctx context.Context, user tenant.UserID, limit, offset int) ([]Session, error) {
	return db.Query[Session](ctx, s.db.Across(people), `
		SELECT `+sessionColumns+` WHERE user_id = $1 AND ended_at = 0 AND expires_at > $2 AND last_seen_at > $3
		ORDER BY created_at DESC, id DESC LIMIT $4 OFFSET $5`, user, clock.Now(), clock.Now().Add(-idle), limit, offset)
}

// A known session, with its person.
type known struct {
	Email       string
	LastSeenAt  clock.Time
	ExpiresAt   clock.Time
	CreatedAt   clock.Time
	Method      Method
	HasPassword bool
}

// one reads a session of a person.
func (s *Store) one(ctx context.Context, user tenant.UserID, session tenant.SessionID) (known, error) {
	row, err := db.Maybe[known](ctx, s.db.Across(people), `
		SELECT u.email, s.last_seen_at, s.expires_at, s.created_at, s.method, p.user_id IS NOT NULL AS has_password
		FROM sessions s JOIN users u ON u.id = s.user_id LEFT JOIN passwords p ON p.user_id = s.user_id
		WHERE s.user_id = $1 AND s.id = $2`, user, session)
	if err == nil && row == nil {
		err = fault.NotSignedIn.New("sign in at /dashboard")
	}
	if err != nil {
		return known{}, err
	}
	return *row, nil
}

// End ends a session of the actor's own.
func (s *Store) End(ctx context.Context, by tenant.Actor, session tenant.SessionID) error {
	return s.feed.Change(ctx, func(tx *db.Tx) error {
		ended, err := s.end(ctx, tx, by, by.User, session)
		if err == nil && !ended {
			err = fault.Missing.New("no session %q of yours", session)
		}
		return err
	})
}

// EndOthers ends all sessions of the actor but the one that asks, and returns how many.
func (s *Store) EndOthers(ctx context.Context, by tenant.Actor) (n int, err error) {
	err = s.feed.Change(ctx, func(tx *db.Tx) error {
		n, err = s.endAll(ctx, tx, by, by.User, by.Session)
		return err
	})
	return n, err
}

// DeleteOld deletes what has ended: sessions and links of yesterday, and sign-ins that were begun and not finished.
func (s *Store) DeleteOld(ctx context.Context) error {
	now := clock.Now()
	yesterday := now.Add(-24 * 3600 * 1e9)
	for _, statement := range []struct {
		text string
		args []any
	}{
		{
			`DELETE FROM sessions WHERE ended_at > 0 AND ended_at < $1 OR expires_at < $1 OR last_seen_at < $2`,
			[]any{yesterday, yesterday.Add(-idle)},
		},
		{`DELETE FROM invitations WHERE expires_at < $1`, []any{yesterday}},
		{`DELETE FROM signin_links WHERE expires_at < $1`, []any{yesterday}},
		{`DELETE FROM oidc_states WHERE expires_at < $1`, []any{now}},
	} {
		if _, err := db.Exec(
			ctx, s.db.Across("what has ended, of all people"), statement.text, statement.args...,
		); err != nil {
			return fmt.Errorf("delete ended sessions and links: %w", err)
		}
	}
	return nil
}
