// Package tenant names who is asking and whose things they are asking for.
package tenant

// An ID is a workspace's id. Everything a customer owns is found through one.
type ID string

// Server stands where a workspace would for what belongs to none: the root key, an operator's idempotency keys.
const Server ID = "server"

// A UserID is a person's id. A person may belong to several workspaces.
type UserID string

// A KeyID is an API key's id; it is not secret.
type KeyID string

// A Role is what a member may do in a workspace.
type Role string

// The roles. Each may do what the ones below it may.
const (
	Owner  Role = "owner"
	Admin  Role = "admin"
	Member Role = "member"
)

// Roles lists every role, highest first.
var Roles = []Role{Owner, Admin, Member}

// Valid reports whether r is a role.
func (r Role) Valid() bool { return r == Owner || r == Admin || r == Member }

// Manages reports whether r may spend the workspace's money and redirect its traffic.
func (r Role) Manages() bool { return r == Owner || r == Admin }

// A Caller is a request's identity: the key, the user who minted it, and that user's role now. An operator has no key and
// no workspace, and is named by the account of the machine, such as unix:root.
type Caller struct {
	Workspace ID
	User      UserID
	Key       KeyID
	Role      Role
}

// Actor is the caller as the audit trail names it.
func (c Caller) Actor() Actor {
	if c.Key == "" {
		return Actor{Kind: ActorOperator, User: c.User}
	}
	return Actor{Kind: ActorKey, User: c.User, Key: c.Key}
}

// An ActorKind says by which door a change came in.
type ActorKind string

// The doors.
const (
	ActorKey      ActorKind = "key"      // a workspace API key
	ActorOperator ActorKind = "operator" // whoever may use the server's own socket
)

// An Actor is who made a change.
type Actor struct {
	Kind ActorKind `json:"kind"`
	User UserID    `json:"user_id,omitempty"`
	Key  KeyID     `json:"key_id,omitempty"`
}

// Operator acts for whoever runs the server, where nobody in particular asked: a first start, a recovery.
var Operator = Actor{Kind: ActorOperator}
