package signin

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
)

// A Link signs a person in, once. Its token is in the fragment of the URL, which a browser sends to nobody: the page
// takes it out and posts it.
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
		inside, err := s.belongs(ctx, tx, who.ID)
		if err == nil && !inside && s.Granted != nil {
			inside, err = s.Granted(tx.Bind(ctx), who.ID)
		}
		if err != nil {
			return err
		}
		if !inside {
			return errOutside()
		}
		link, err = s.link(ctx, tx, tenant.Server, by, kind, *who)
		return err
	})
	return link, err
}

// link stores a new link for a person, made in a workspace or, by the operator, in none (tenant.Server). It is audited
// there. The link of its kind that the person had from there stops working.
func (s *Store) link(
	ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, kind Kind, who person,
) (Link, error) {
	// The link of an invitation is withdrawn with it. Others of its kind are a reviewer's.
	if _, err := db.Exec(ctx, tx.Across(people), `
		DELETE FROM signin_links WHERE user_id = $1 AND kind = $2 AND made_in = $3 AND used_at = 0
			AND NOT EXISTS (SELECT 1 FROM invitations i WHERE i.link_id = signin_links.id)`, who.ID, kind, ws); err != nil {
		return Link{}, fmt.Errorf("withdraw the earlier link: %w", err)
	}
	now := clock.Now()
	text, digest := newSecret()
	link := Link{
		ID: id.New("lnk"), Kind: kind, Email: who.Email, ExpiresAt: now.Add(kind.life()), token: secret.New(text),
	}
	if _, err := db.Exec(ctx, tx.Across(people), `
		INSERT INTO signin_links (id, digest, kind, made_in, made_by, user_id, created_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		link.ID, digest[:], kind, ws, by.User, who.ID, now, link.ExpiresAt); err != nil {
		return Link{}, fmt.Errorf("make a link: %w", err)
	}
	return link, audit.Record(ctx, tx, ws, by, "signin.link", string(who.ID), nil, link)
}

// spend takes a link that was not used and is in time, and returns whose it is. A second use finds it used:
// transactions are serializable.
func (s *Store) spend(ctx context.Context, tx *db.Tx, token string) (spent spentLink, err error) {
	digest := live.SessionDigest(sha256.Sum256([]byte(token)))
	found, err := db.Maybe[spentLink](ctx, tx.Across(people), `
		SELECT id, kind, made_in, made_by, user_id FROM signin_links
		WHERE digest = $1 AND used_at = 0 AND expires_at > $2`, digest[:], clock.Now())
	if err != nil {
		return spentLink{}, fmt.Errorf("find a link: %w", err)
	}
	if found == nil {
		return spentLink{}, errLink()
	}
	if _, err := db.Exec(ctx, tx.Across(people),
		`UPDATE signin_links SET used_at = $2 WHERE id = $1`, found.ID, clock.Now()); err != nil {
		return spentLink{}, fmt.Errorf("spend a link: %w", err)
	}
	return *found, nil
}

type spentLink struct {
	ID     string
	Kind   Kind
	MadeIn tenant.ID
	MadeBy tenant.UserID
	UserID tenant.UserID
}

// EnterByLink begins a session with a one-time link. only says that an identity provider is the only way in: then
// nothing but the operator's links work.
func (s *Store) EnterByLink(
	ctx context.Context, e entry, token string, only bool,
) (begun Session, text string, err error) {
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
		if err := s.checkHolder(ctx, tx, e, spent); err != nil {
			return err
		}
		e.user, e.method = spent.UserID, ByLink
		if spent.Kind == Invite {
			if err := s.accept(ctx, tx, e, spent); err != nil {
				return err
			}
		}
		if spent.Kind != Reset { // which an admin made for a member
			if err := s.acceptGrants(ctx, tx, actor(e.id, e.user), spent.MadeIn, e.oldOf(e.user)); err != nil {
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

// checkHolder refuses a link that was made in a workspace, and that its maker could not make now, unless the person is
// signed in already. Whoever makes a link can open it: without this, an admin of one workspace could get into another,
// and one who is no admin any more would be back.
func (s *Store) checkHolder(ctx context.Context, tx *db.Tx, e entry, spent spentLink) error {
	if spent.MadeIn == tenant.Server || e.oldUser == spent.UserID {
		return nil
	}
	maker, err := roleIn(ctx, tx, spent.MadeIn, spent.MadeBy)
	if err != nil {
		return err
	}
	holder, err := roleIn(ctx, tx, spent.MadeIn, spent.UserID)
	if err != nil {
		return err
	}
	if !maker.Manages() || holder == tenant.Owner && maker != tenant.Owner {
		return errLink()
	}
	elsewhere, err := s.elsewhere(ctx, tx, spent.UserID, spent.MadeIn)
	if err != nil || !elsewhere {
		return err
	}
	return fault.Forbidden.New("sign in first, and then open this link again: you belong to another workspace already")
}

// roleIn returns the role of a person in a workspace; it is empty for one who is no member.
func roleIn(ctx context.Context, tx *db.Tx, ws tenant.ID, user tenant.UserID) (tenant.Role, error) {
	role, err := db.Maybe[tenant.Role](ctx, tx.In(ws),
		`SELECT role FROM members WHERE workspace_id = $1 AND user_id = $2`, user)
	if err != nil {
		return "", fmt.Errorf("find member: %w", err)
	}
	if role == nil {
		return "", nil
	}
	return *role, nil
}

// elsewhere reports whether a person is a member or a reviewer in another workspace.
func (s *Store) elsewhere(ctx context.Context, tx *db.Tx, user tenant.UserID, ws tenant.ID) (bool, error) {
	n, err := db.One[int](ctx, tx.Across(people),
		`SELECT COUNT(*) FROM members WHERE user_id = $1 AND workspace_id <> $2`, user, ws)
	if err != nil {
		return false, fmt.Errorf("count memberships: %w", err)
	}
	if n > 0 {
		return true, nil
	}
	if s.ReviewsElsewhere != nil {
		return s.ReviewsElsewhere(tx.Bind(ctx), user, ws)
	}
	queues, err := s.queues(tx.Bind(ctx), user)
	return slices.ContainsFunc(queues, func(q SessionQueue) bool { return q.WorkspaceID != ws }), err
}

// openInvitations are invitations whose makers could still make them: they fall with the role of their maker.
const openInvitations = `SELECT i.workspace_id AS ws, i.id, i.role FROM invitations i
	JOIN members m ON m.workspace_id = i.workspace_id AND m.user_id = i.created_by
		AND (m.role = 'owner' OR m.role = 'admin' AND i.role <> 'owner')`

// accept is what an invitation's link does: the person becomes a member. For one who is a member already it opens
// nothing but that person's own session: who made the link may be less than the person is by now.
func (s *Store) accept(ctx context.Context, tx *db.Tx, e entry, spent spentLink) error {
	by := actor(e.id, e.user)
	member, err := roleIn(ctx, tx, spent.MadeIn, e.user)
	if err != nil {
		return err
	}
	if member != "" && e.oldUser != e.user {
		return errLink()
	}
	type open struct {
		Ws   tenant.ID
		ID   string
		Role tenant.Role
	}
	found, err := db.Maybe[open](ctx, tx.Across("an invitation is found by its link"),
		openInvitations+` WHERE i.link_id = $1 AND i.expires_at > $2`, spent.ID, clock.Now())
	if err != nil {
		return fmt.Errorf("find an invitation: %w", err)
	}
	if found == nil {
		return nil // it was made for a reviewer, or withdrawn with the invitation: then the person belongs to nothing
	}
	return s.join(ctx, tx, found.Ws, by, e.oldOf(e.user), found.ID, found.Role)
}

// join makes a person a member by an invitation, which is gone then. One who is a member already stays what they are.
// The browser had the session old.
func (s *Store) join(
	ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, old tenant.SessionID, invitation string,
	role tenant.Role,
) error {
	if _, err := db.Exec(ctx, tx.In(ws),
		`DELETE FROM invitations WHERE workspace_id = $1 AND id = $2`, invitation); err != nil {
		return fmt.Errorf("accept an invitation: %w", err)
	}
	member, err := roleIn(ctx, tx, ws, by.User)
	if err != nil || member != "" {
		return err
	}
	email, err := db.One[string](ctx, tx.Across(people), `SELECT email FROM users WHERE id = $1`, by.User)
	if err != nil {
		return fmt.Errorf("read a person: %w", err)
	}
	if _, err = s.workspaces.AddMember(tx.Bind(ctx), ws, by, email, role); err != nil {
		return err
	}
	return s.leaveOthers(ctx, tx, by, old)
}

// acceptGrants puts the grants of a person who is let in in force: those of the workspace whose link it was, or all
// where the operator or an identity provider knows the person (tenant.Server).
func (s *Store) acceptGrants(
	ctx context.Context, tx *db.Tx, by tenant.Actor, ws tenant.ID, old tenant.SessionID,
) error {
	if s.AcceptGrants == nil {
		return nil
	}
	n, err := s.AcceptGrants(ctx, tx, by, ws, by.User)
	if err != nil || n == 0 {
		return err
	}
	return s.leaveOthers(ctx, tx, by, old)
}

// leaveOthers lets nobody come along into a workspace: sessions that others got with links from elsewhere end, and a
// password that they may have set is forgotten. It is the person's own if the browser's session old began with it.
func (s *Store) leaveOthers(ctx context.Context, tx *db.Tx, by tenant.Actor, old tenant.SessionID) error {
	if err := s.forgetPassword(ctx, tx, by, by.User, old); err != nil {
		return err
	}
	_, err := s.endAll(ctx, tx, by, by.User, by.Session)
	return err
}
