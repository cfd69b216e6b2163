package signin

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/edge"
	"sovereign/internal/store/api"
)

// A Handler serves what people do with their own sessions.
type Handler struct {
	store    *Store
	sessions *live.Sessions
	options  func() Options
	log      *slog.Logger

	passwords *passwords
}

// Options are what the configuration says about signing in.
type Options struct {
	URL     string // the dashboard's address, without /dashboard
	Release string
	OIDC    *Provider // nil without an identity provider
}

// only reports whether the identity provider is the only way in.
func (o Options) only() bool { return o.OIDC != nil && o.OIDC.Only }

// routes are the operations of visitors and of any session.
func (h *Handler) routes() []api.Route {
	return []api.Route{
		api.Get("/session", api.Visitor, h.state, "Who is signed in, and what can be opened"),
		api.Post("/session/link", api.Visitor, h.byLink, "Sign in with a one-time link", api.Outside),
		api.Post("/session/password", api.Visitor, h.byPassword, "Sign in with a password", api.Outside),
		api.Post("/session/oidc", api.Visitor, h.depart, "Begin to sign in at the identity provider", api.Outside),
		api.Get("/session/oidc/callback", api.Visitor, h.arrive,
			"Where the identity provider sends the browser back to", api.Redirects,
			api.AnyQuery, api.Produces("text/plain")),
		api.Put("/password", api.SignedIn, h.setPassword, "Set or change your password; your other sessions end"),
		api.Delete("/session", api.SignedIn, h.signOut, "Sign out"),
		api.Get("/sessions", api.SignedIn, h.list, "List your sessions"),
		api.Delete("/sessions", api.SignedIn, h.endOthers, "End all your sessions but this one"),
		api.Delete("/sessions/{id}", api.SignedIn, h.end, "End one of your sessions"),
	}
}

// A SessionState is what the page needs to know first.
type SessionState struct {
	Object      string             `json:"object" enum:"dashboard_session"`
	SignedIn    bool               `json:"signed_in"`
	SessionID   tenant.SessionID   `json:"session_id" doc:"Empty when nobody is signed in, like the next two"`
	UserID      tenant.UserID      `json:"user_id"`
	Email       string             `json:"email"`
	HasPassword bool               `json:"has_password"`
	ExpiresAt   *clock.Time        `json:"expires_at" doc:"When the session ends if it is not used again"`
	Workspaces  []SessionWorkspace `json:"workspaces" nullable:"false"`
	Queues      []SessionQueue     `json:"queues" nullable:"false" doc:"What the person may grade"`
	SignIn      SignInWays         `json:"sign_in"`
	Release     string             `json:"release"`

	cookie string
}

// SignInWays are the ways to sign in.
type SignInWays struct { //nolint:revive // its name in the OpenAPI document
	Secure   bool          `json:"secure" doc:"False over plain HTTP from another machine: then nobody can sign in"`
	Link     bool          `json:"link" doc:"Links of admins work; those of the operator always do"`
	Password bool          `json:"password"`
	OIDC     *ProviderName `json:"oidc"`
}

// A ProviderName is an identity provider as people know it.
type ProviderName struct {
	Name string `json:"name"`
}

// Headers gives the browser its cookie, where the answer begins or ends a session.
func (s SessionState) Headers() map[string]string {
	if s.cookie == "" {
		return nil
	}
	return map[string]string{"Set-Cookie": s.cookie}
}

func (h *Handler) state(ctx context.Context, caller tenant.Caller, _ api.None) (SessionState, error) {
	return h.stateOf(ctx, caller.User, caller.Session)
}

// stateOf is the state of a session; an empty one is a visitor's.
func (h *Handler) stateOf(ctx context.Context, user tenant.UserID, session tenant.SessionID) (SessionState, error) {
	options := h.options()
	state := SessionState{
		Object: "dashboard_session", Workspaces: []SessionWorkspace{}, Queues: []SessionQueue{},
		Release: options.Release,
		SignIn:  SignInWays{Secure: edge.VisitOf(ctx).Secure, Link: !options.only(), Password: !options.only()},
	}
	if options.OIDC != nil {
		state.SignIn.OIDC = &ProviderName{options.OIDC.Name}
	}
	if session == "" {
		return state, nil
	}
	state.SignedIn, state.SessionID, state.UserID = true, session, user
	row, err := h.store.one(ctx, user, session)
	if err != nil {
		return SessionState{}, err
	}
	ends := min(row.ExpiresAt, max(row.LastSeenAt, clock.Now()).Add(idle))
	state.Email, state.HasPassword, state.ExpiresAt = row.Email, row.HasPassword, &ends
	places, err := h.store.Places(ctx, user)
	if err != nil {
		return SessionState{}, err
	}
	queues, err := h.store.queues(ctx, user)
	if err != nil {
		return SessionState{}, err
	}
	state.Workspaces, state.Queues = append(state.Workspaces, places...), append(state.Queues, queues...)
	return state, nil
}

// A LinkToken is the fragment of a one-time link.
type LinkToken struct {
	Token string `json:"token" maxLength:"200"`
}

func (h *Handler) byLink(ctx context.Context, caller tenant.Caller, in LinkToken) (SessionState, error) {
	e, err := visitor(ctx, caller)
	if err != nil {
		return SessionState{}, err
	}
	begun, secret, err := h.store.EnterByLink(ctx, e, in.Token, h.options().only())
	if err != nil {
		return SessionState{}, err
	}
	return h.entered(ctx, begun, secret)
}

// visitor returns what is known of a visitor who signs in. Plain HTTP is refused.
func visitor(ctx context.Context, caller tenant.Caller) (entry, error) {
	visit := edge.VisitOf(ctx)
	if !visit.Secure {
		return entry{}, errPlain()
	}
	return entry{
		id: tenant.SessionID(id.New("ses")), address: visit.Address, agent: visit.Agent, old: caller.Session,
		oldUser: caller.User,
	}, nil
}

// entered answers a sign-in with the state of the new session, and its cookie.
func (h *Handler) entered(ctx context.Context, begun Session, secret string) (SessionState, error) {
	digest := live.SessionDigest(sha256.Sum256([]byte(secret)))
	session, ok := h.sessions.Of(digest, clock.Now())
	if !ok {
		return SessionState{}, fault.Unavailable.New("the session has not begun here yet").In(time.Second)
	}
	state, err := h.stateOf(ctx, session.User, begun.ID)
	state.cookie = edge.SessionCookie(secret, absolute)
	return state, err
}

func (h *Handler) signOut(ctx context.Context, caller tenant.Caller, _ api.None) (SessionState, error) {
	if err := h.store.End(ctx, caller.Actor(), caller.Session); err != nil {
		return SessionState{}, err
	}
	state, err := h.stateOf(ctx, "", "")
	state.cookie = edge.SessionCookie("", 0)
	return state, err
}

func (h *Handler) list(ctx context.Context, caller tenant.Caller, in api.Page) (api.List[Session], error) {
	all, err := h.store.Sessions(ctx, caller.User, in.More(), in.Offset)
	for i := range all {
		all[i].Current = all[i].ID == caller.Session
	}
	return api.NewList(in, all), err
}

// SessionsEnded is how many sessions were ended.
type SessionsEnded struct {
	Object string `json:"object" enum:"sessions_ended"`
	Ended  int    `json:"ended"`
}

func (h *Handler) endOthers(ctx context.Context, caller tenant.Caller, _ api.None) (SessionsEnded, error) {
	n, err := h.store.EndOthers(ctx, caller.Actor())
	return SessionsEnded{"sessions_ended", n}, err
}

type oneSession struct {
	ID tenant.SessionID `path:"id"`
}

func (h *Handler) end(ctx context.Context, caller tenant.Caller, in oneSession) (api.Deleted, error) {
	err := h.store.End(ctx, caller.Actor(), in.ID)
	return api.Deleted{ID: string(in.ID), Object: "session", Deleted: err == nil}, err
}
