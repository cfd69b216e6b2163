package workspace

import (
	"context"
	"fmt"
	"strings"

	"sovereign/internal/base/apikey"
	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/quota"
	"sovereign/internal/text/redact"
)

// A Store keeps identity. Every change is audited in its own transaction, and in force when its method returns.
type Store struct {
	db   *db.DB
	feed *feed.Feed

	Counter *Counter // of money, for budgets

	// Left is called in the transaction that ends a membership, whatever other memberships the person has; nil does
	// nothing.
	Left func(ctx context.Context, tx *db.Tx, by tenant.Actor, user tenant.UserID) error
}

// NewStore keeps identity in d and publishes changes through f.
func NewStore(d *db.DB, f *feed.Feed) *Store { return &Store{db: d, feed: f} }

// Create makes a workspace with its first owner.
func (s *Store) Create(ctx context.Context, by tenant.Actor, name, email string) (Workspace, Member, error) {
	var none Member
	if err := checkName("workspace", name); err != nil {
		return Workspace{}, none, err
	}
	if id.Has("ws", name) {
		return Workspace{}, none, fault.Invalid("workspace", "must not look like an id")
	}
	email, err := normalEmail(email)
	if err != nil {
		return Workspace{}, none, err
	}
	ws := Workspace{ID: tenant.ID(id.New("ws")), Object: "workspace", Name: name, CreatedAt: clock.Now()}
	var owner Member
	err = s.feed.Change(ctx, func(tx *db.Tx) error {
		_, err := db.Exec(ctx, tx.In(ws.ID),
			`INSERT INTO workspaces (workspace_id, name, created_at) VALUES ($1, $2, $3)`, name, ws.CreatedAt)
		if db.Duplicate(err) {
			return fault.Conflict("a workspace named %q exists already", name)
		}
		if err != nil {
			return fmt.Errorf("create workspace: %w", err)
		}
		if err := audit.Record(ctx, tx, ws.ID, by, "workspace.create", string(ws.ID), nil, ws); err != nil {
			return err
		}
		owner, err = s.join(ctx, tx, ws.ID, by, email, tenant.Owner)
		return err
	})
	return ws, owner, err
}

const workspaceColumns = `'workspace' AS object, workspace_id, name, demo, created_at FROM workspaces`

// Find is the workspace of that id or name. One that was deleted is found by its id alone, for its ledger.
func (s *Store) Find(ctx context.Context, name string) (Workspace, error) {
	ws, err := db.Maybe[Workspace](ctx, s.db.Across("an operator names any workspace"),
		`SELECT `+workspaceColumns+` WHERE workspace_id = $1 OR name = $1`, name)
	if err != nil {
		return Workspace{}, fmt.Errorf("find workspace: %w", err)
	}
	if ws == nil {
		return Workspace{}, fault.Missing.New("no workspace %q", name)
	}
	return *ws, nil
}

// List reads workspaces that were not deleted, newest first.
func (s *Store) List(ctx context.Context, limit, offset int) ([]Workspace, error) {
	return db.Query[Workspace](ctx, s.db.Across("an operator sees all workspaces"),
		`SELECT `+workspaceColumns+
			` WHERE deleted_at = 0 ORDER BY created_at DESC, workspace_id DESC LIMIT $1 OFFSET $2`, limit, offset)
}

// AddMember lets a person in. Keys that the person had from an earlier membership are revoked: coming back does not
// bring back what was lost with leaving.
func (s *Store) AddMember(
	ctx context.Context, ws tenant.ID, by tenant.Actor, email string, role tenant.Role,
) (Member, error) {
	email, err := normalEmail(email)
	if err != nil {
		return Member{}, err
	}
	if err := checkRole(role); err != nil {
		return Member{}, err
	}
	var added Member
	err = s.feed.Change(ctx, func(tx *db.Tx) error {
		added, err = s.join(ctx, tx, ws, by, email, role)
		return err
	})
	return added, err
}

// join adds a member to a workspace that was not closed.
func (s *Store) join(
	ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, email string, role tenant.Role,
) (Member, error) {
	open, err := db.One[int](ctx, tx.In(ws),
		`SELECT COUNT(*) FROM workspaces WHERE workspace_id = $1 AND deleted_at = 0`)
	if err != nil {
		return Member{}, fmt.Errorf("find workspace: %w", err)
	}
	if open == 0 {
		return Member{}, fault.Missing.New("no workspace %q: it was deleted", ws)
	}
	now := clock.Now()
	user, err := s.user(ctx, tx, email, now)
	if err != nil {
		return Member{}, err
	}
	m := Member{Object: "member", UserID: user, Email: email, Role: role, CreatedAt: now, UpdatedAt: now}
	_, err = db.Exec(ctx, tx.In(ws), `
		INSERT INTO members (workspace_id, user_id, role, created_at, updated_at) VALUES ($1, $2, $3, $4, $4)`,
		user, role, now)
	if db.Duplicate(err) {
		return Member{}, fault.Conflict("%s is a member already", email)
	}
	if err != nil {
		return Member{}, fmt.Errorf("add member: %w", err)
	}
	if err := quota.Check(ctx, tx.In(ws), quota.Members, 1); err != nil {
		return Member{}, err
	}
	stale, err := db.Query[tenant.KeyID](ctx, tx.In(ws),
		`SELECT id FROM api_keys WHERE workspace_id = $1 AND user_id = $2 AND revoked_at IS NULL`, user)
	if err != nil {
		return Member{}, fmt.Errorf("read keys of an earlier membership: %w", err)
	}
	for _, key := range stale {
		if err := s.revoke(ctx, tx, ws, by, key); err != nil {
			return Member{}, err
		}
	}
	tx.Touch(changedMember, ws, string(user))
	return m, audit.Record(ctx, tx, ws, by, "member.add", string(user), nil, m)
}

// user returns the id of the person with that address, and creates a new one. A person may be in many workspaces.
func (s *Store) user(ctx context.Context, tx *db.Tx, email string, now clock.Time) (tenant.UserID, error) {
	people := tx.Across("a person may belong to several workspaces")
	found, err := db.Maybe[tenant.UserID](ctx, people, `SELECT id FROM users WHERE email = $1`, email)
	if err != nil {
		return "", fmt.Errorf("find user: %w", err)
	}
	if found != nil {
		return *found, nil
	}
	user := tenant.UserID(id.New("usr"))
	if _, err := db.Exec(ctx, people,
		`INSERT INTO users (id, email, created_at) VALUES ($1, $2, $3)`, user, email, now); err != nil {
		return "", fmt.Errorf("create user: %w", err)
	}
	return user, nil
}

// Person returns the id of the person with that address, and creates a new one. It grants nothing.
func (s *Store) Person(ctx context.Context, email string) (user tenant.UserID, err error) {
	if email, err = normalEmail(email); err != nil {
		return "", err
	}
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		user, err = s.user(ctx, tx, email, clock.Now())
		return err
	})
	return user, err
}

// SetRole changes what a member, and every key the member has minted, may do.
func (s *Store) SetRole(
	ctx context.Context, ws tenant.ID, by tenant.Actor, email string, role tenant.Role,
) (Member, error) {
	if err := checkRole(role); err != nil {
		return Member{}, err
	}
	var after Member
	err := s.feed.Change(ctx, func(tx *db.Tx) error {
		before, err := s.member(ctx, tx.In(ws), email)
		if err != nil {
			return err
		}
		after = before
		tx.Touch(changedMember, ws, string(before.UserID)) // a repetition too waits until the role is in force
		if before.Role == role {
			return nil
		}
		after.Role, after.UpdatedAt = role, clock.Now()
		if _, err := db.Exec(ctx, tx.In(ws),
			`UPDATE members SET role = $3, updated_at = $4 WHERE workspace_id = $1 AND user_id = $2`,
			before.UserID, role, after.UpdatedAt); err != nil {
			return fmt.Errorf("set role: %w", err)
		}
		if err := keepsOwner(ctx, tx.In(ws)); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, "member.role", string(before.UserID), before, after)
	})
	return after, err
}

// RemoveMember ends a membership, only of that role when one is given. The member's keys are refused from then on.
func (s *Store) RemoveMember(
	ctx context.Context, ws tenant.ID, by tenant.Actor, email string, role tenant.Role,
) (Member, error) {
	var gone Member
	err := s.feed.Change(ctx, func(tx *db.Tx) error {
		var err error
		if gone, err = s.member(ctx, tx.In(ws), email); err != nil {
			return err
		}
		if role != "" && gone.Role != role {
			return fault.Conflict("%s is %s, not %s", gone.Email, gone.Role, role)
		}
		if _, err := db.Exec(ctx, tx.In(ws),
			`DELETE FROM members WHERE workspace_id = $1 AND user_id = $2`, gone.UserID); err != nil {
			return fmt.Errorf("remove member: %w", err)
		}
		if err := keepsOwner(ctx, tx.In(ws)); err != nil {
			return err
		}
		tx.Touch(changedMember, ws, string(gone.UserID))
		if s.Left != nil {
			if err := s.Left(ctx, tx, by, gone.UserID); err != nil {
				return err
			}
		}
		return audit.Record(ctx, tx, ws, by, "member.remove", string(gone.UserID), gone, nil)
	})
	return gone, err
}

// keepsOwner refuses a change that would leave the workspace without an owner.
func keepsOwner(ctx context.Context, s db.Scoped) error {
	owners, err := db.One[int](ctx, s, `SELECT COUNT(*) FROM members WHERE workspace_id = $1 AND role = 'owner'`)
	if err != nil {
		return fmt.Errorf("count owners: %w", err)
	}
	if owners == 0 {
		return fault.Conflict("a workspace keeps at least one owner")
	}
	return nil
}

const memberColumns = `'member' AS object, m.user_id, u.email, m.role, m.created_at, m.updated_at
	FROM members m JOIN users u ON u.id = m.user_id`

func (s *Store) member(ctx context.Context, scope db.Scoped, email string) (Member, error) {
	email, err := normalEmail(email)
	if err != nil {
		return Member{}, err
	}
	m, err := db.Maybe[Member](ctx, scope, `SELECT `+memberColumns+` WHERE m.workspace_id = $1 AND u.email = $2`, email)
	if err != nil {
		return Member{}, fmt.Errorf("find member: %w", err)
	}
	if m == nil {
		return Member{}, fault.NotFound("member", email)
	}
	return *m, nil
}

// Members reads a workspace's members, newest first.
func (s *Store) Members(ctx context.Context, ws tenant.ID, limit, offset int) ([]Member, error) {
	return db.Query[Member](ctx, s.db.In(ws), `SELECT `+memberColumns+`
		WHERE m.workspace_id = $1 ORDER BY m.created_at DESC, m.user_id DESC LIMIT $2 OFFSET $3`, limit, offset)
}

// CreateKey mints a key without limits.
func (s *Store) CreateKey(
	ctx context.Context, ws tenant.ID, by tenant.Actor, email, name string,
) (Key, secret.Text, error) {
	return s.MintKey(ctx, ws, by, email, name, &LimitsChange{})
}

// MintKey mints a key that acts as the member with that address. The key is in the answer and nowhere else.
func (s *Store) MintKey(
	ctx context.Context, ws tenant.ID, by tenant.Actor, email, name string, limits *LimitsChange,
) (Key, secret.Text, error) {
	name = redact.String(name)
	if err := checkName("name", name); err != nil {
		return Key{}, secret.Text{}, err
	}
	limited, err := noLimits.with(limits)
	if err != nil {
		return Key{}, secret.Text{}, err
	}
	text, digest, hint := apikey.New()
	keyID := tenant.KeyID(id.New("key"))
	s.Counter.beginNew(ws, keyID, &limited)
	var key Key
	err = s.feed.Change(ctx, func(tx *db.Tx) error {
		m, err := s.member(ctx, tx.In(ws), email)
		if err != nil {
			return err
		}
		key = Key{
			ID: keyID, Object: "api_key", Name: name, UserID: m.UserID, Email: m.Email, Hint: hint,
			CreatedAt: clock.Now(), Limits: limited,
		}
		_, err = db.Exec(ctx, tx.In(ws), `
			INSERT INTO api_keys (workspace_id, id, user_id, name, digest, hint, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			key.ID, key.UserID, name, digest[:], hint, key.CreatedAt)
		if err != nil {
			return fmt.Errorf("create key: %w", err)
		}
		if err := saveLimits(ctx, tx.In(ws), key.ID, &limited); err != nil {
			return err
		}
		if err := quota.Check(ctx, tx.In(ws), quota.Keys, 1); err != nil {
			return err
		}
		tx.Touch(changedKey, ws, string(key.ID))
		return audit.Record(ctx, tx, ws, by, "key.create", string(key.ID), nil, key)
	})
	if err != nil {
		s.Counter.forget(ws, keyID)
		return Key{}, secret.Text{}, err
	}
	return key, text, nil
}

// RevokeKey ends a key, only of that user when an address is given: no request that starts after it returns is
// accepted. Repeating it is a no-op.
func (s *Store) RevokeKey(
	ctx context.Context, ws tenant.ID, by tenant.Actor, key tenant.KeyID, email string,
) (Key, error) {
	var after Key
	err := s.feed.Change(ctx, func(tx *db.Tx) error {
		if before, err := s.key(ctx, tx.In(ws), key); err != nil {
			return err
		} else if email != "" && !strings.EqualFold(before.Email, email) {
			return fault.NotFound("key of "+email, string(key))
		}
		if err := s.revoke(ctx, tx, ws, by, key); err != nil {
			return err
		}
		var err error
		after, err = s.key(ctx, tx.In(ws), key)
		return err
	})
	return after, err
}

func (s *Store) revoke(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, key tenant.KeyID) error {
	before, err := s.key(ctx, tx.In(ws), key)
	if err != nil {
		return err
	}
	// Touched even when it was revoked before: a repeated revocation returns only when it is in force.
	tx.Touch(changedKey, ws, string(key))
	if before.RevokedAt != nil {
		return nil
	}
	now := clock.Now()
	if _, err := db.Exec(ctx, tx.In(ws),
		`UPDATE api_keys SET revoked_at = $3 WHERE workspace_id = $1 AND id = $2`, key, now); err != nil {
		return fmt.Errorf("revoke key %s: %w", key, err)
	}
	after := before
	after.RevokedAt = &now
	return audit.Record(ctx, tx, ws, by, "key.revoke", string(key), before, after)
}

const keyColumns = `'api_key' AS object, k.id, k.name, k.user_id, u.email, k.hint, k.created_at, k.last_used_at, k.revoked_at,` +
	limitColumns + `
	FROM api_keys k JOIN users u ON u.id = k.user_id
	LEFT JOIN traffic_limits l ON l.workspace_id = k.workspace_id AND l.subject = k.id`

func (s *Store) key(ctx context.Context, scope db.Scoped, key tenant.KeyID) (Key, error) {
	found, err := db.Maybe[Key](ctx, scope, `SELECT `+keyColumns+` WHERE k.workspace_id = $1 AND k.id = $2`, key)
	if err != nil {
		return Key{}, fmt.Errorf("find key: %w", err)
	}
	if found == nil {
		return Key{}, fault.NotFound("key", string(key))
	}
	return *found, nil
}

// Keys reads a workspace's keys, revoked ones too, newest first; only those of one user when an address is given.
func (s *Store) Keys(ctx context.Context, ws tenant.ID, email string, limit, offset int) ([]Key, error) {
	return db.Query[Key](ctx, s.db.In(ws), `SELECT `+keyColumns+`
		WHERE k.workspace_id = $1 AND ($2 = '' OR u.email = $2)
		ORDER BY k.created_at DESC, k.id DESC LIMIT $3 OFFSET $4`, strings.ToLower(email), limit, offset)
}
