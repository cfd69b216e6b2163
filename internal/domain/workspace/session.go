package workspace

import (
	"context"
	"fmt"
	"net/netip"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/edge"
	"sovereign/internal/store/api"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/quota"
)

// A Team serves what people do on the dashboard with their workspace: its members, keys, settings, limits and audit
// trail.
type Team struct {
	db    *db.DB
	store *Store
}

// NewTeam manages the workspaces of s.
func NewTeam(d *db.DB, s *Store) *Team { return &Team{db: d, store: s} }

// Routes are the operations for sessions.
func (h *Team) Routes() []api.Route {
	return []api.Route{
		api.Get("/members", api.SessionMember, h.members, "List the members of the workspace"),
		api.Patch("/members/{user_id}", api.SessionAdmin, h.setRole,
			"Change the role of a member; an owner's alone can change owners"),
		api.Delete("/members/{user_id}", api.SessionMember, h.remove,
			"Remove a member, or leave; the keys of the member are refused from then on"),
		api.Get("/keys", api.SessionMember, h.keys, "List API keys: one's own, and for owners and admins all"),
		api.Post("/keys", api.SessionMember, h.mint,
			"Mint an API key that acts as oneself", api.Creates, api.ShowsSecret),
		api.Patch("/keys/{id}", api.SessionAdmin, h.updateKey, "Change the limits of an API key", api.Long),
		api.Post("/keys/{id}/revocation", api.SessionMember, h.revoke,
			"Revoke an API key: one's own, and for owners and admins any"),
		api.Get("/settings", api.SessionMember, h.settings, "Read what the workspace has set"),
		api.Patch("/settings", api.SessionAdmin, h.set,
			"Change what the workspace has set, such as the consent to logging"),
		api.Get("/limits", api.SessionMember, h.limits, "Read the limits of all keys of the workspace together"),
		api.Patch("/limits", api.SessionOwner, h.setLimits,
			"Change the limits of all keys of the workspace together", api.Long),
		api.Get("/quotas", api.SessionMember, h.quotas,
			"Read how many things of each kind the workspace may store, and stores"),
		api.Get("/audit", api.SessionAdmin, h.audit, "Read who changed what, newest first"),
	}
}

func (h *Team) members(ctx context.Context, caller tenant.Caller, in api.Page) (api.List[Member], error) {
	all, err := h.store.Members(ctx, caller.Workspace, in.More(), in.Offset)
	return api.NewList(in, all), err
}

type roleChange struct {
	UserID tenant.UserID `path:"user_id"`
	Body   NewRole
}

// NewRole is what a member may do from now on.
type NewRole struct {
	Role tenant.Role `json:"role" enum:"owner,admin,member"`
}

// mayTouch refuses an admin who would change an owner, or make one.
func mayTouch(caller tenant.Caller, roles ...tenant.Role) error {
	for _, role := range roles {
		if role == tenant.Owner && caller.Role != tenant.Owner {
			return fault.Forbidden.New("this needs an owner of the workspace")
		}
	}
	return nil
}

// change finds a member, checks that the caller may change them, and changes them, in one transaction.
func (h *Team) change(
	ctx context.Context, caller tenant.Caller, user tenant.UserID, to tenant.Role,
	fn func(context.Context, Member) error,
) error {
	return h.store.feed.Change(ctx, func(tx *db.Tx) error {
		found, err := h.store.memberOf(ctx, tx.In(caller.Workspace), user)
		if err != nil {
			return err
		}
		if user != caller.User && !caller.Role.Manages() {
			return fault.Forbidden.New("this needs an owner or admin of the workspace")
		}
		if err := mayTouch(caller, found.Role, to); err != nil {
			return err
		}
		return fn(tx.Bind(ctx), found)
	})
}

func (h *Team) setRole(ctx context.Context, caller tenant.Caller, in roleChange) (after Member, err error) {
	err = h.change(ctx, caller, in.UserID, in.Body.Role, func(ctx context.Context, m Member) error {
		after, err = h.store.SetRole(ctx, caller.Workspace, caller.Actor(), m.Email, in.Body.Role)
		return err
	})
	return after, err
}

type oneMember struct {
	UserID tenant.UserID `path:"user_id"`
}

func (h *Team) remove(ctx context.Context, caller tenant.Caller, in oneMember) (api.Deleted, error) {
	err := h.change(ctx, caller, in.UserID, "", func(ctx context.Context, m Member) error {
		_, err := h.store.RemoveMember(ctx, caller.Workspace, caller.Actor(), m.Email, "")
		return err
	})
	return api.Deleted{ID: string(in.UserID), Object: "member", Deleted: err == nil}, err
}

// memberOf finds a member by the user's id.
func (s *Store) memberOf(ctx context.Context, scope db.Scoped, user tenant.UserID) (Member, error) {
	m, err := db.Maybe[Member](ctx, scope,
		`SELECT `+memberColumns+` WHERE m.workspace_id = $1 AND m.user_id = $2`, user)
	if err != nil {
		return Member{}, fmt.Errorf("find member: %w", err)
	}
	if m == nil {
		return Member{}, fault.NotFound("member", string(user))
	}
	return *m, nil
}

func (h *Team) keys(ctx context.Context, caller tenant.Caller, in api.Page) (api.List[Key], error) {
	email := ""
	if !caller.Role.Manages() {
		self, err := h.store.memberOf(ctx, h.db.In(caller.Workspace), caller.User)
		if err != nil {
			return api.List[Key]{}, err
		}
		email = self.Email
	}
	all, err := h.store.Keys(ctx, caller.Workspace, email, in.More(), in.Offset)
	return api.NewList(in, all), err
}

// NewOwnKey asks for a key that acts as the person who asks.
type NewOwnKey struct {
	Name string `json:"name" doc:"What the key is for"`
	LimitsChange
}

func (h *Team) mint(ctx context.Context, caller tenant.Caller, in NewOwnKey) (MintedKey, error) {
	self, err := h.store.memberOf(ctx, h.db.In(caller.Workspace), caller.User)
	if err != nil {
		return MintedKey{}, err
	}
	key, text, err := h.store.MintKey(ctx, caller.Workspace, caller.Actor(), self.Email, in.Name, &in.LimitsChange)
	return MintedKey{Key: key, APIKey: text.Reveal()}, err
}

type ownKeyUpdate struct {
	ID   tenant.KeyID `path:"id"`
	Body LimitsChange
}

func (h *Team) updateKey(ctx context.Context, caller tenant.Caller, in ownKeyUpdate) (Key, error) {
	return h.store.UpdateKey(ctx, caller.Workspace, caller.Actor(), in.ID, &in.Body)
}

type oneKey struct {
	ID tenant.KeyID `path:"id"`
}

// revoke ends a key. Another's key does not exist for a member.
func (h *Team) revoke(ctx context.Context, caller tenant.Caller, in oneKey) (Key, error) {
	email := ""
	if !caller.Role.Manages() {
		self, err := h.store.memberOf(ctx, h.db.In(caller.Workspace), caller.User)
		if err != nil {
			return Key{}, err
		}
		email = self.Email
	}
	key, err := h.store.RevokeKey(ctx, caller.Workspace, caller.Actor(), in.ID, email)
	if f := fault.From(err); f != nil && f.Code == fault.Missing.Code {
		err = fault.NotFound("key", string(in.ID)) // whoever's it may be
	}
	return key, err
}

func (h *Team) settings(ctx context.Context, caller tenant.Caller, _ api.None) (Settings, error) {
	return h.store.Settings(ctx, caller.Workspace)
}

func (h *Team) set(ctx context.Context, caller tenant.Caller, in SettingsChange) (Settings, error) {
	return h.store.Set(ctx, caller.Workspace, caller.Actor(), in)
}

func (h *Team) limits(ctx context.Context, caller tenant.Caller, _ api.None) (TotalLimits, error) {
	return h.store.Limits(ctx, caller.Workspace)
}

// setLimits changes the workspace's limits. Its addresses bind sessions too, so that they must include the owner's own.
func (h *Team) setLimits(ctx context.Context, caller tenant.Caller, in LimitsChange) (TotalLimits, error) {
	if in.Models != nil {
		if err := mayChooseModels(ctx, h.db.In(caller.Workspace)); err != nil {
			return TotalLimits{}, err
		}
	}
	if in.AllowedAddresses != nil && len(*in.AllowedAddresses) > 0 {
		allowed, err := parseAddresses(*in.AllowedAddresses)
		if err != nil {
			return TotalLimits{}, err
		}
		if from, err := netip.ParseAddr(edge.VisitOf(ctx).Address); err == nil && !allowed.Allow(from) {
			return TotalLimits{}, fault.Invalid(
				"allowed_addresses", "must include "+from.String()+", or you could not undo it",
			)
		}
	}
	return h.store.SetLimits(ctx, caller.Workspace, caller.Actor(), &in)
}

func (h *Team) quotas(ctx context.Context, caller tenant.Caller, _ api.None) (StoredQuotas, error) {
	all, err := quota.List(ctx, h.db.In(caller.Workspace))
	return StoredQuotas{"workspace_quotas", all}, err
}

type auditPage struct {
	Action string `query:"action" maxLength:"100" doc:"Only this action, such as key.revoke; with a dot at its end all of a kind, such as key."`
	Actor  string `query:"actor" maxLength:"100" doc:"Only what this user did"`
	Before string `query:"before" maxLength:"100" doc:"The id of an entry: those before it"`
	After  string `query:"after" maxLength:"100" doc:"The id of an entry: those after it"`
	Limit  int    `query:"limit" default:"50" minimum:"1" maximum:"1000" doc:"How many, at most"`
}

func (h *Team) audit(ctx context.Context, caller tenant.Caller, in auditPage) (api.List[audit.Entry], error) {
	if in.Before != "" && in.After != "" {
		return api.List[audit.Entry]{}, fault.Invalid("after", "and before exclude each other")
	}
	all, more, err := audit.Search(ctx, h.db, caller.Workspace,
		audit.Filter{Action: in.Action, Actor: in.Actor, Before: in.Before, After: in.After}, in.Limit)
	return api.List[audit.Entry]{Object: "list", Data: all, HasMore: more}, err
}
