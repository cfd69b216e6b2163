package signin

import (
	"context"
	"crypto/sha256"
	"fmt"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/id"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
)

// A Link signs a person in, once. Its token is in the fragment of the URL, which a browser sends to nobody: the page takes
// it out and posts it.
type Link struct {
	ID        string      `json:"id"`
	Kind      Kind        `json:"kind"`
	Email     string      `json:"email"`
	ExpiresAt clock.Time  `json:"expires_at"`
	token     secret.Text // shown once
}

// URL returns the link below the dashboard's address, such as https://models.example.com.
func (l Link) URL(base string) string { return base + "/dashboard/#link=" + l.token.Reveal() }

// MakeLink makes a link for a person who may sign in. Earlier ones of its kind stop working.
func (s *Store) MakeLink(ctx context.Context, by tenant.Actor, kind Kind, email string) (link Link, err error) {
	if err := checkEmail(email); err != nil {
		return Link{}, err
	}
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		who, err := find(ctx, tx.Across(people), email)
		if err != nil {
			return err
		}
		if who == nil {
			return errOutside()
		}
		if inside, err := s.belongs(ctx, tx, who.ID); err != nil {
			return err
		} else if !inside {
			return errOutside()
		}
		link, err = s.link(ctx, tx, tenant.Server, by, kind, *who)
		return err
	})
	return link, err
}

// link stores a new link for a person. It is audited in ws.
func (s *Store) link(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, kind Kind, who person) (Link, error) {
	if kind != Invite { // which a person may have from several workspaces
		if _, err := db.Exec(ctx, tx.Across(people),
			`DELETE FROM signin_links WHERE user_id = $1 AND kind = $2 AND used_at = 0`, who.ID, kind); err != nil {
			return Link{}, fmt.Errorf("withdraw earlier links: %w", err)
		}
	}
	now := clock.Now()
	text, digest := newSecret()
	link := Link{ID: id.New("lnk"), Kind: kind, Email: who.Email, ExpiresAt: now.Add(kind.life()), token: secret.New(text)}
	if _, err := db.Exec(ctx, tx.Across(people), `
		INSERT INTO signin_links (id, digest, kind, user_id, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6)`,
		link.ID, digest[:], kind, who.ID, now, link.ExpiresAt); err != nil {
		return Link{}, fmt.Errorf("make a link: %w", err)
	}
	return link, audit.Record(ctx, tx, ws, by, "signin.link", string(who.ID), nil, link)
}

// spend takes a link that was not used and is in time, and returns whose it is. A second use finds it used: transactions
// are serializable.
func (s *Store) spend(ctx context.Context, tx *db.Tx, token string) (spent spentLink, err error) {
	digest := live.SessionDigest(sha256.Sum256([]byte(token)))
	found, err := db.Maybe[spentLink](ctx, tx.Across(people), `
		SELECT id, kind, user_id, created_at FROM signin_links WHERE digest = $1 AND used_at = 0 AND expires_at > $2`,
		digest[:], clock.Now())
	if err != nil {
		return spentLink{}, fmt.Errorf("find a link: %w", err)
	}
	if found == nil {
		return spentLink{}, errLink()
	}
	if _, err := db.Exec(ctx, tx.Across(people), `UPDATE signin_links SET used_at = $2 WHERE id = $1`, found.ID, clock.Now()); err != nil {
		return spentLink{}, fmt.Errorf("spend a link: %w", err)
	}
	return *found, nil
}

type spentLink struct {
	ID        string
	Kind      Kind
	UserID    tenant.UserID
	CreatedAt clock.Time
}

// EnterByLink begins a session with a one-time link. only says that an identity provider is the only way in: then nothing
// but the operator's links work.
func (s *Store) EnterByLink(ctx context.Context, e entry, token string, only bool) (begun Session, text string, err error) {
	if len(token) > 200 {
		return Session{}, "", errLink()
	}
	err = s.feed.Change(ctx, func(tx *db.Tx) error {
		spent, err := s.spend(ctx, tx, token)
		if err != nil {
			return err
		}
		if only && spent.Kind != SignIn {
			return errLink()
		}
		e.user, e.method = spent.UserID, ByLink
		if spent.Kind == Invite {
			if err := s.accept(ctx, tx, actor(e.id, e.user), spent); err != nil {
				return err
			}
		}
		if inside, err := s.belongs(ctx, tx, e.user); err != nil {
			return err
		} else if !inside {
			return errLink()
		}
		begun, text, err = s.begin(ctx, tx, e)
		return err
	})
	return begun, text, err
}

// accept is what an invitation's link does: the person becomes a member.
func (s *Store) accept(ctx context.Context, tx *db.Tx, by tenant.Actor, spent spentLink) error {
	type open struct {
		Ws   tenant.ID
		ID   string
		Role tenant.Role
	}
	found, err := db.Maybe[open](ctx, tx.Across("an invitation is found by its link"), `
		SELECT workspace_id AS ws, id, role FROM invitations WHERE link_id = $1 AND expires_at > $2`, spent.ID, clock.Now())
	if err != nil {
		return fmt.Errorf("find an invitation: %w", err)
	}
	if found == nil {
		return errLink()
	}
	return s.join(ctx, tx, found.Ws, by, found.ID, found.Role)
}

// join makes a person a member by an invitation, which is gone then. One who is a member already stays what they are.
func (s *Store) join(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, invitation string, role tenant.Role) error {
	if _, err := db.Exec(ctx, tx.In(ws), `DELETE FROM invitations WHERE workspace_id = $1 AND id = $2`, invitation); err != nil {
		return fmt.Errorf("accept an invitation: %w", err)
	}
	member, err := db.Maybe[tenant.Role](ctx, tx.In(ws), `SELECT role FROM members WHERE workspace_id = $1 AND user_id = $2`, by.User)
	if err != nil || member != nil {
		return err
	}
	email, err := db.One[string](ctx, tx.Across(people), `SELECT email FROM users WHERE id = $1`, by.User)
	if err != nil {
		return fmt.Errorf("read a person: %w", err)
	}
	_, err = s.workspaces.AddMember(tx.Bind(ctx), ws, by, email, role)
	return err
}
