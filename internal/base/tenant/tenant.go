// Package tenant identifies callers, workspaces and actors.
package tenant

// An ID is a workspace id. Every row that a customer owns has one.
type ID string

// Server takes the place of a workspace id for what belongs to none: the root key, an operator's idempotency keys.
const Server ID = "server"

// A UserID is a person's id. A person may belong to several workspaces.
type UserID string

// A KeyID is an API key's id; it is not secret.
type KeyID string

// A SessionID is the id of a person's session on the dashboard; it is not secret.
type SessionID string

// A Role is what a member may do in a workspace.
type Role string

// The roles, highest first. Each has the permissions of the roles after it.
const (
	Owner  Role = "owner"
	Admin  Role = "admin"
	Member Role = "member"
)

// Roles lists every role, highest first.
var Roles = []Role{Owner, Admin, Member}

// Valid reports whether r is a role.
func (r Role) Valid() bool { return r == Owner || r == Admin || r == Member }

// Manages reports whether r may spend the workspace's money and change its routing.
func (r Role) Manages() bool { return r == Owner || r == Admin }

// A Caller is a request's identity: the key, the user who minted it, and that user's role now. On the dashboard it is
// the session and its user; Role is empty for a person who is no member of the workspace. An operator has neither key
// nor session and no workspace, and is named by the account of the machine, such as unix:root.
type Caller struct {
	Workspace ID
	User      UserID
	Key       KeyID
	Session   SessionID
	Role      Role

	InferenceOnly bool // the key or its workspace is limited to inference

	Worker *Worker // a training worker calls, for no workspace of its own
}

// A Worker is a process that trains models for workspaces.
type Worker struct {
	ID, Name  string
	Workspace ID // the only one that it trains for; empty for all
}

// Actor returns the caller as it is recorded in the audit log.
func (c Caller) Actor() Actor {
	switch {
	case c.Key != "":
		return Actor{Kind: ActorKey, User: c.User, Key: c.Key}
	case c.Worker != nil:
		return Actor{Kind: ActorWorker, Key: KeyID(c.Worker.ID)}
	case c.Session != "":
		return Actor{Kind: ActorSession, User: c.User, Session: c.Session}
	default:
		return Actor{Kind: ActorOperator, User: c.User}
	}
}

// An ActorKind is the kind of credential behind a change.
type ActorKind string

// The kinds of actors.
const (
	ActorKey      ActorKind = "key"      // a workspace API key
	ActorSession  ActorKind = "session"  // a person's session on the dashboard
	ActorOperator ActorKind = "operator" // a user of the server's Unix socket
	ActorWorker   ActorKind = "worker"   // a training worker
	ActorGate     ActorKind = "gate"     // the gate of an alias, which decides about its canary
)

// An Actor is the author of a change.
type Actor struct {
	Kind ActorKind `json:"kind"`
	User UserID    `json:"user_id,omitempty"`
	Key  KeyID     `json:"key_id,omitempty"`

	Session SessionID `json:"session_id,omitempty"`
}

// Operator is the actor of changes that the server makes by itself: the first start, a recovery.
var Operator = Actor{Kind: ActorOperator}

// Gate is the actor of the repoints that gates make.
var Gate = Actor{Kind: ActorGate}
