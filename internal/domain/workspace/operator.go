package workspace

import (
	"context"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/quota"
)

// An Operator serves the operations of the server's operator on any workspace.
type Operator struct {
	db    *db.DB
	store *Store
}

// NewOperator manages the workspaces of s.
func NewOperator(d *db.DB, s *Store) *Operator { return &Operator{db: d, store: s} }

// Routes are the operations of the server's own socket.
func (o *Operator) Routes() []api.Route {
	return []api.Route{
		api.Get("/workspaces", api.Operator, o.list, "List workspaces"),
		api.Get("/keys", api.Operator, o.keys, "List a workspace's keys"),
		api.Post("/keys", api.Operator, o.createKey, "Mint a key", api.Creates, api.ShowsSecret),
		api.Patch("/keys/{id}", api.Operator, o.updateKey, "Change the limits of a key", api.Long),
		api.Post("/keys/{id}/revocation", api.Operator, o.revokeKey, "Revoke a key"),
		api.Get("/members", api.Operator, o.members, "List a workspace's members"),
		api.Post("/members", api.Operator, o.addMember, "Add a member", api.Creates),
		api.Put("/members", api.Operator, o.setRole, "Change a member's role"),
		api.Delete("/members", api.Operator, o.removeMember, "Remove a member"),
		api.Get("/settings", api.Operator, o.settings, "Read what a workspace has set"),
		api.Put("/settings", api.Operator, o.set, "Set a workspace's defaults"),
		api.Get("/limits", api.Operator, o.limits, "Read the limits of a workspace"),
		api.Patch("/limits", api.Operator, o.setLimits, "Change the limits of a workspace", api.Long),
		api.Get("/quotas", api.Operator, o.quotas,
			"Read how many things of each kind a workspace may store, and stores"),
		api.Patch("/quotas", api.Operator, o.setQuotas, "Change how many things a workspace may store"),
		api.Get("/audit", api.Operator, o.audit, "Read a workspace's audit trail"),
	}
}

func (o *Operator) list(ctx context.Context, _ tenant.Caller, in api.Page) (api.List[Workspace], error) {
	all, err := o.store.List(ctx, in.More(), in.Offset)
	return api.NewList(in, all), err
}

type ofWorkspace struct {
	Workspace string `query:"workspace" required:"true" doc:"The workspace's id or name"`
	api.Page
}

type keyQuery struct {
	Workspace string `query:"workspace" required:"true" doc:"The workspace's id or name"`
	Email     string `query:"email" doc:"Only the keys that act as this user"`
	api.Page
}

func (o *Operator) keys(ctx context.Context, _ tenant.Caller, in keyQuery) (api.List[Key], error) {
	ws, err := o.store.Find(ctx, in.Workspace)
	if err != nil {
		return api.List[Key]{}, err
	}
	all, err := o.store.Keys(ctx, ws.ID, in.Email, in.More(), in.Offset)
	return api.NewList(in.Page, all), err
}

// NewKey asks for a key.
type NewKey struct {
	Workspace string `json:"workspace"`
	Email     string `json:"email"`
	Name      string `json:"name,omitempty" doc:"What the key is for"`
	LimitsChange
}

// A MintedKey shows a key, once.
type MintedKey struct {
	Key
	APIKey string `json:"api_key" doc:"Shown now and never again"`
}

func (o *Operator) createKey(ctx context.Context, caller tenant.Caller, in NewKey) (MintedKey, error) {
	ws, err := o.store.Find(ctx, in.Workspace)
	if err != nil {
		return MintedKey{}, err
	}
	if in.Name == "" {
		in.Name = "default"
	}
	key, text, err := o.store.MintKey(ctx, ws.ID, caller.Actor(), in.Email, in.Name, &in.LimitsChange)
	return MintedKey{Key: key, APIKey: text.Reveal()}, err
}

type keyUpdate struct {
	ID        tenant.KeyID `path:"id"`
	Workspace string       `query:"workspace" required:"true" doc:"The workspace's id or name"`
	Body      LimitsChange
}

func (o *Operator) updateKey(ctx context.Context, caller tenant.Caller, in keyUpdate) (Key, error) {
	ws, err := o.store.Find(ctx, in.Workspace)
	if err != nil {
		return Key{}, err
	}
	return o.store.UpdateKey(ctx, ws.ID, caller.Actor(), in.ID, &in.Body)
}

func (o *Operator) limits(ctx context.Context, _ tenant.Caller, in oneWorkspace) (TotalLimits, error) {
	ws, err := o.store.Find(ctx, in.Workspace)
	if err != nil {
		return TotalLimits{}, err
	}
	return o.store.Limits(ctx, ws.ID)
}

type limitsUpdate struct {
	oneWorkspace
	Body LimitsChange
}

func (o *Operator) setLimits(ctx context.Context, caller tenant.Caller, in limitsUpdate) (TotalLimits, error) {
	ws, err := o.store.Find(ctx, in.Workspace)
	if err != nil {
		return TotalLimits{}, err
	}
	return o.store.SetLimits(ctx, ws.ID, caller.Actor(), &in.Body)
}

// StoredQuotas are the quotas of a workspace, and what it stores.
type StoredQuotas struct {
	Object string        `json:"object" enum:"workspace_quotas"`
	Quotas []quota.State `json:"quotas" nullable:"false"`
}

func (o *Operator) quotas(ctx context.Context, _ tenant.Caller, in oneWorkspace) (StoredQuotas, error) {
	ws, err := o.store.Find(ctx, in.Workspace)
	if err != nil {
		return StoredQuotas{}, err
	}
	all, err := quota.List(ctx, o.db.In(ws.ID))
	return StoredQuotas{"workspace_quotas", all}, err
}

type quotasUpdate struct {
	oneWorkspace
	Body QuotasChange
}

// A QuotasChange is what shall be set; the other quotas stay as they are.
type QuotasChange struct {
	Quotas map[string]int64 `json:"quotas" doc:"The most things of a kind, by the kind's name"`
}

func (o *Operator) setQuotas(ctx context.Context, caller tenant.Caller, in quotasUpdate) (StoredQuotas, error) {
	ws, err := o.store.Find(ctx, in.Workspace)
	if err != nil {
		return StoredQuotas{}, err
	}
	all, err := quota.Set(ctx, o.db, ws.ID, caller.Actor(), in.Body.Quotas)
	return StoredQuotas{"workspace_quotas", all}, err
}

type revocation struct {
	ID        tenant.KeyID `path:"id"`
	Workspace string       `query:"workspace" required:"true"`
	Email     string       `query:"email" doc:"Only if the key acts as this user"`
}

func (o *Operator) revokeKey(ctx context.Context, caller tenant.Caller, in revocation) (Key, error) {
	ws, err := o.store.Find(ctx, in.Workspace)
	if err != nil {
		return Key{}, err
	}
	return o.store.RevokeKey(ctx, ws.ID, caller.Actor(), in.ID, in.Email)
}

func (o *Operator) members(ctx context.Context, _ tenant.Caller, in ofWorkspace) (api.List[Member], error) {
	ws, err := o.store.Find(ctx, in.Workspace)
	if err != nil {
		return api.List[Member]{}, err
	}
	all, err := o.store.Members(ctx, ws.ID, in.More(), in.Offset)
	return api.NewList(in.Page, all), err
}

// A Membership names a person's place in a workspace.
type Membership struct {
	Workspace string      `json:"workspace"`
	Email     string      `json:"email"`
	Role      tenant.Role `json:"role" enum:"owner,admin,member"`
}

func (o *Operator) addMember(ctx context.Context, caller tenant.Caller, in Membership) (Member, error) {
	ws, err := o.store.Find(ctx, in.Workspace)
	if err != nil {
		return Member{}, err
	}
	return o.store.AddMember(ctx, ws.ID, caller.Actor(), in.Email, in.Role)
}

func (o *Operator) setRole(ctx context.Context, caller tenant.Caller, in Membership) (Member, error) {
	ws, err := o.store.Find(ctx, in.Workspace)
	if err != nil {
		return Member{}, err
	}
	return o.store.SetRole(ctx, ws.ID, caller.Actor(), in.Email, in.Role)
}

type departure struct {
	Workspace string      `query:"workspace" required:"true"`
	Email     string      `query:"email" required:"true"`
	Role      tenant.Role `query:"role" enum:"owner,admin,member" doc:"Only if the member has this role"`
}

func (o *Operator) removeMember(ctx context.Context, caller tenant.Caller, in departure) (api.Deleted, error) {
	ws, err := o.store.Find(ctx, in.Workspace)
	if err != nil {
		return api.Deleted{}, err
	}
	gone, err := o.store.RemoveMember(ctx, ws.ID, caller.Actor(), in.Email, in.Role)
	return api.Deleted{ID: string(gone.UserID), Object: "member", Deleted: err == nil}, err
}

type auditQuery struct {
	Workspace string `query:"workspace" doc:"The workspace's id or name; without one, what concerns the whole server"`
	Action    string `query:"action" doc:"Only this action, such as key.revoke"`
	api.Page
}

func (o *Operator) audit(ctx context.Context, _ tenant.Caller, in auditQuery) (api.List[audit.Entry], error) {
	of := tenant.Server
	if in.Workspace != "" {
		ws, err := o.store.Find(ctx, in.Workspace)
		if err != nil {
			return api.List[audit.Entry]{}, err
		}
		of = ws.ID
	}
	all, err := audit.List(ctx, o.db, of, in.Action, in.More(), in.Offset)
	return api.NewList(in.Page, all), err
}

type oneWorkspace struct {
	Workspace string `query:"workspace" required:"true" doc:"The workspace's id or name"`
}

func (o *Operator) settings(ctx context.Context, _ tenant.Caller, in oneWorkspace) (Settings, error) {
	ws, err := o.store.Find(ctx, in.Workspace)
	if err != nil {
		return Settings{}, err
	}
	return o.store.Settings(ctx, ws.ID)
}

// NewSettings asks for a change of settings.
type NewSettings struct {
	Workspace string `json:"workspace"`
	SettingsChange
}

func (o *Operator) set(ctx context.Context, caller tenant.Caller, in NewSettings) (Settings, error) {
	ws, err := o.store.Find(ctx, in.Workspace)
	if err != nil {
		return Settings{}, err
	}
	return o.store.Set(ctx, ws.ID, caller.Actor(), in.SettingsChange)
}
