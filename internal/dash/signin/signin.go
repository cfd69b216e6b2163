// Package signin lets people in to the dashboard: one-time links, passwords, an identity provider, and the sessions
// that they get. It publishes sessions to the data plane, whose edge finds them by their cookie.
package signin

import (
	"crypto/rand"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/edge"
)

// How long a session lasts: until it is not used for idle, and never longer than absolute.
const (
	idle     = 14 * 24 * time.Hour
	absolute = 30 * 24 * time.Hour
)

// How long a link works, once. An invitation goes through other people's mail, so it waits longer.
const (
	linkLife   = 15 * time.Minute
	inviteLife = 7 * 24 * time.Hour
)

// freshLife is how long after signing in with a link a person may set a password without knowing the old one.
const freshLife = 15 * time.Minute

// mostSessions is how many sessions a person may have at once. The one that was used longest ago ends for another.
const mostSessions = 50

// A Method is how a session began.
type Method string

// The methods.
const (
	ByLink     Method = "link"
	ByPassword Method = "password"
	ByOIDC     Method = "oidc"
)

// A Kind is what a link is for.
type Kind string

// The kinds of links.
const (
	SignIn Kind = "sign_in" // made by the operator
	Invite Kind = "invite"  // into a workspace
	Reset  Kind = "reset"   // made by an admin for a member who cannot sign in
)

// life is how long a link of the kind works.
func (k Kind) life() time.Duration {
	if k == Invite {
		return inviteLife
	}
	return linkLife
}

// A Session is one of a person's sessions, as the person sees it.
type Session struct {
	ID         tenant.SessionID `json:"id"`
	Object     string           `json:"object" enum:"session"`
	Method     Method           `json:"method" enum:"link,password,oidc" doc:"How it began"`
	Address    string           `json:"address" doc:"The address that it began at"`
	Agent      string           `json:"user_agent"`
	CreatedAt  clock.Time       `json:"created_at"`
	LastSeenAt clock.Time       `json:"last_seen_at" doc:"To the minute"`
	ExpiresAt  clock.Time       `json:"expires_at" doc:"It ends then, and earlier when it is not used for 14 days"`
	Current    bool             `json:"current" db:"-" doc:"The session that asks"`
}

// A SessionWorkspace is a workspace that a person belongs to.
type SessionWorkspace struct {
	ID   tenant.ID   `json:"id" db:"workspace_id"`
	Name string      `json:"name"`
	Role tenant.Role `json:"role" enum:"owner,admin,member"`
	Demo bool        `json:"demo" doc:"Its traffic is simulated"`
}

// A SessionQueue is a review queue that a person may grade in, without being a member of its workspace.
type SessionQueue struct {
	WorkspaceID tenant.ID `json:"workspace_id"`
	QueueID     string    `json:"queue_id"`
	Name        string    `json:"name"`
}

// An Actor of a session that is about to begin.
func actor(session tenant.SessionID, user tenant.UserID) tenant.Actor {
	return tenant.Actor{Kind: tenant.ActorSession, User: user, Session: session}
}

// newSecret returns a new secret of 256 bits, for a cookie or a link.
func newSecret() (text string, digest live.SessionDigest) {
	var random [32]byte
	_, _ = rand.Read(random[:]) // it never fails
	return edge.NewSecret(random)
}

// errPlain refuses to sign in where others could read the session's cookie.
func errPlain() error {
	return fault.Forbidden.New("signing in needs HTTPS: over plain HTTP, anyone on the way could take the session. " +
		"Serve with tls.cert, or behind a proxy in trusted_proxies that sends X-Forwarded-Proto: https, " +
		"or open the dashboard on the server itself at http://127.0.0.1")
}

// errLink refuses a link. It does not tell why, since whoever holds the link may not be the person it was for.
func errLink() error {
	return fault.Forbidden.New("this link does not work any more: a link works once, for a short time, " +
		"and a newer one replaces it. Ask for another")
}

// errOutside refuses a person who belongs to no workspace and has no queue to review.
func errOutside() error {
	return fault.Forbidden.New("this person is no member of any workspace, and reviews no queue")
}
