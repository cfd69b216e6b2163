package signin

import (
	"context"
	"fmt"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/quota"
)

// An Invitation asks a person to join a workspace. It is gone when it is accepted, withdrawn, or a week old.
type Invitation struct {
	ID        string      `json:"id"`
	Object    string      `json:"object" enum:"invitation"`
	Email     string      `json:"email"`
	Role      tenant.Role `json:"role" enum:"owner,admin,member"`
	CreatedBy string      `json:"created_by" doc:"The user who asked"`
	CreatedAt clock.Time  `json:"created_at"`
	ExpiresAt clock.Time  `json:"expires_at"`
}

// A ShownInvitation shows the link of an invitation, once.
type ShownInvitation struct {
	Invitation
	URL string `json:"url" doc:"Works once, for a week; send it to the person. Where an identity provider is the only way in, it is the address of the dashboard"`
}

// A NewInvitation asks for an invitation.
type NewInvitation struct {
	Email string      `json:"email" maxLength:"254"`
	Role  tenant.Role `json:"role" enum:"owner,admin,member"`
}

// A Team serves invitations, and links for members who cannot sign in.
type Team struct {
	store   *Store
	options func() Options
}

// NewTeam invites people with the links of s.
func NewTeam(s *Store, options func() Options) *Team { return &Team{store: s, options: options} }

func (h *Team) routes() []api.Route {
	return []api.Route{
		api.Get("/invitations", api.SessionAdmin, h.list, "List the invitations that are open"),
		api.Post("/invitations", api.SessionAdmin, h.invite,
			"Invite a person; the answer shows the link once", api.Creates, api.ShowsSecret),
		api.Delete("/invitations/{id}", api.SessionAdmin, h.withdraw, "Withdraw an invitation: its link stops working"),
		api.Post("/members/{user_id}/link", api.SessionAdmin, h.reset,
			"Make a link for a member who cannot sign in", api.Creates, api.ShowsSecret),
	}
}

func (h *Team) list(ctx context.Context, caller tenant.Caller, in api.Page) (api.List[Invitation], error) {
	all, err := h.store.Invitations(ctx, caller.Workspace, in.More(), in.Offset)
	return api.NewList(in, all), err
}

// mayGrant refuses an admin who would make an owner, or act on one.
func mayGrant(caller tenant.Caller, role tenant.Role) error {
	if role == tenant.Owner && caller.Role != tenant.Owner {
		return fault.Forbidden.New("this needs an owner of the workspace")
	}
	return nil
}

func (h *Team) invite(ctx context.Context, caller tenant.Caller, in NewInvitation) (ShownInvitation, error) {
	if err := mayGrant(caller, in.Role); err != nil {
		return ShownInvitation{}, err
	}
	made, link, err := h.store.Invite(ctx, caller, in.Email, in.Role)
	if err != nil {
		return ShownInvitation{}, err
	}
	options := h.options()
	if options.only() {
		return ShownInvitation{made, options.URL + "/dashboard/"}, nil
	}
	return ShownInvitation{made, link.URL(options.URL)}, nil
}

type oneInvitation struct {
	ID string `path:"id"`
}

func (h *Team) withdraw(ctx context.Context, caller tenant.Caller, in oneInvitation) (api.Deleted, error) {
	err := h.store.Withdraw(ctx, caller, in.ID)
	return api.Deleted{ID: in.ID, Object: "invitation", Deleted: err == nil}, err
}

type oneMember struct {
	UserID tenant.UserID `path:"user_id"`
}

// reset makes a link for a member. One for a person who is in other workspaces too would open those: the operator makes
// it.
func (h *Team) reset(ctx context.Context, caller tenant.Caller, in oneMember) (ShownLink, error) {
	options := h.options()
	if options.only() {
		return ShownLink{}, errOnly(options.OIDC.Name)
	}
	link, err := h.store.ResetLink(ctx, caller, in.UserID)
	if err != nil {
		return ShownLink{}, err
	}
	return shown(link, options.URL), nil
}

const invitationColumns = `'invitation' AS object, i.id, u.email, i.role, i.created_by, i.created_at, i.expires_at
	FROM invitations i JOIN users u ON u.id = i.user_id`

// Invitations reads the open invitations of a workspace, newest first.
func (s *Store) Invitations(ctx context.Context, ws tenant.ID, limit, offset int) ([]Invitation, error) {
	return db.Query[Invitation](ctx, s.db.In(ws), `SELECT `+invitationColumns+`
		WHERE i.workspace_id = $1 AND i.expires_at > $2 ORDER BY i.created_at DESC, i.id DESC LIMIT $3 OFFSET $4`,
		clock.Now(), limit, offset)
}

// Invite asks a person to join a workspace. An invitation that the person has from it already is replaced.
func (s *Store) Invite(
	ctx context.Context, caller tenant.Caller, email string, role tenant.Role,
) (made Invitation, link Link, err error) {
	ws, by := caller.Workspace, caller.Actor()
	if err := checkEmail(email); err != nil {
		return Invitation{}, Link{}, err
	}
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		user, err := s.workspaces.Person(tx.Bind(ctx), email)
		if err != nil {
			return err
		}
		member, err := roleIn(ctx, tx, ws, user)
		if err != nil {
			return err
		}
		if member != "" {
			return fault.Conflict("%s is a member already", normal(email))
		}
		if before, err := db.Maybe[tenant.Role](ctx, tx.In(ws),
			`SELECT role FROM invitations WHERE workspace_id = $1 AND user_id = $2`, user); err != nil {
			return fmt.Errorf("find invitation: %w", err)
		} else if before != nil {
			if err := mayGrant(caller, *before); err != nil {
				return err
			}
		}
		if err := s.replaceInvitation(ctx, tx, ws, user); err != nil {
			return err
		}
		if link, err = s.link(ctx, tx, ws, by, Invite, person{ID: user, Email: normal(email)}); err != nil {
			return err
		}
		made = Invitation{
			ID: id.New("inv"), Object: "invitation", Email: normal(email), Role: role, CreatedBy: string(by.User),
			CreatedAt: clock.Now(), ExpiresAt: link.ExpiresAt,
		}
		if _, err := db.Exec(ctx, tx.In(ws), `
			INSERT INTO invitations (workspace_id, id, user_id, role, link_id, created_by, created_at, expires_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
			made.ID, user, role, link.ID, by.User, made.CreatedAt, made.ExpiresAt); err != nil {
			return fmt.Errorf("invite: %w", err)
		}
		if err := quota.Check(ctx, tx.In(ws), quota.Invitations, 1); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, "invitation.create", made.ID, nil, made)
	})
	return made, link, err
}

// replaceInvitation deletes the invitation that a person has from a workspace, and its link.
func (s *Store) replaceInvitation(ctx context.Context, tx *db.Tx, ws tenant.ID, user tenant.UserID) error {
	link, err := db.Maybe[string](ctx, tx.In(ws),
		`DELETE FROM invitations WHERE workspace_id = $1 AND user_id = $2 RETURNING link_id`, user)
	if err != nil || link == nil {
		return err
	}
	_, err = db.Exec(ctx, tx.Across(people), `DELETE FROM signin_links WHERE id = $1`, *link)
	return err
}

// Withdraw deletes an invitation: its link stops working.
func (s *Store) Withdraw(ctx context.Context, caller tenant.Caller, invitation string) error {
	ws := caller.Workspace
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		before, err := db.Maybe[Invitation](ctx, tx.In(ws),
			`SELECT `+invitationColumns+` WHERE i.workspace_id = $1 AND i.id = $2`, invitation)
		if err != nil {
			return fmt.Errorf("find invitation: %w", err)
		}
		if before == nil {
			return fault.NotFound("invitation", invitation)
		}
		if err := mayGrant(caller, before.Role); err != nil {
			return err
		}
		user, err := db.One[tenant.UserID](ctx, tx.In(ws),
			`SELECT user_id FROM invitations WHERE workspace_id = $1 AND id = $2`, invitation)
		if err != nil {
			return fmt.Errorf("find invitation: %w", err)
		}
		if err := s.replaceInvitation(ctx, tx, ws, user); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, caller.Actor(), "invitation.withdraw", invitation, before, nil)
	})
	return err
}

// ResetLink makes a link that signs a member of the caller's workspace in. It is refused for a person who has a role
// elsewhere: an admin of one workspace must not get into another, and for an owner to all but owners.
func (s *Store) ResetLink(ctx context.Context, caller tenant.Caller, user tenant.UserID) (link Link, err error) {
	ws := caller.Workspace
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		type row struct {
			ID    tenant.UserID
			Email string
			Role  tenant.Role
		}
		who, err := db.Maybe[row](ctx, tx.In(ws), `
			SELECT u.id, u.email, m.role FROM members m JOIN users u ON u.id = m.user_id
			WHERE m.workspace_id = $1 AND m.user_id = $2`, user)
		if err != nil {
			return fmt.Errorf("find member: %w", err)
		}
		if who == nil {
			return fault.NotFound("member", string(user))
		}
		if err := mayGrant(caller, who.Role); err != nil {
			return err
		}
		elsewhere, err := s.elsewhere(ctx, tx, user, ws)
		if err != nil {
			return err
		}
		if elsewhere {
			return fault.Forbidden.New("this person belongs to another workspace too: " +
				"the operator makes the link, with admin dashboard link")
		}
		link, err = s.link(ctx, tx, ws, caller.Actor(), Reset, person{ID: who.ID, Email: who.Email})
		return err
	})
	return link, err
}

// acceptAll accepts the open invitations of a person whom an identity provider has confirmed.
func (s *Store) acceptAll(ctx context.Context, tx *db.Tx, by tenant.Actor, old tenant.SessionID) error {
	type open struct {
		Ws   tenant.ID
		ID   string
		Role tenant.Role
	}
	all, err := db.Query[open](ctx, tx.Across(people),
		openInvitations+` WHERE i.user_id = $1 AND i.expires_at > $2 ORDER BY i.workspace_id`, by.User, clock.Now())
	if err != nil {
		return fmt.Errorf("read invitations: %w", err)
	}
	for _, each := range all {
		if err := s.join(ctx, tx, each.Ws, by, old, each.ID, each.Role); err != nil {
			return err
		}
	}
	return nil
}

// Invite returns a link for a reviewer of a queue, in the transaction of the grant. A person who belongs to another
// workspace opens it where they are signed in. Where an identity provider is the only way in, it proves who the person
// is, and the link is the address of the dashboard.
func (h *Team) Invite(
	ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, user tenant.UserID,
) (address string, proven bool, err error) {
	options := h.options()
	if options.only() {
		return options.URL + "/dashboard/", true, nil
	}
	email, err := db.One[string](ctx, tx.Across(people), `SELECT email FROM users WHERE id = $1`, user)
	if err != nil {
		return "", false, fmt.Errorf("read a person: %w", err)
	}
	link, err := h.store.link(ctx, tx, ws, by, Invite, person{ID: user, Email: email})
	return link.URL(options.URL), false, err
}
