// Package workspace manages identity: workspaces, their members, their API keys and their settings.
package workspace

import (
	"net/mail"
	"strings"
	"unicode"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
)

// A Workspace owns everything a customer has.
type Workspace struct {
	ID        tenant.ID  `json:"id" db:"workspace_id"`
	Object    string     `json:"object" enum:"workspace"`
	Name      string     `json:"name"`
	Demo      bool       `json:"demo,omitempty" doc:"Its traffic is simulated"`
	CreatedAt clock.Time `json:"created_at"`
}

// A Member is a person in a workspace, with a role that may change.
type Member struct {
	Object    string        `json:"object" enum:"member"`
	UserID    tenant.UserID `json:"user_id"`
	Email     string        `json:"email"`
	Role      tenant.Role   `json:"role" enum:"owner,admin,member"`
	CreatedAt clock.Time    `json:"created_at"`
	UpdatedAt clock.Time    `json:"updated_at"`
}

// A Key acts as the user who minted it, with that user's present role. The key itself is not stored.
type Key struct {
	ID         tenant.KeyID  `json:"id"`
	Object     string        `json:"object" enum:"api_key"`
	Name       string        `json:"name"`
	UserID     tenant.UserID `json:"user_id"`
	Email      string        `json:"email"`
	Hint       string        `json:"hint" doc:"Four characters from the middle of the key, to tell keys apart"`
	CreatedAt  clock.Time    `json:"created_at"`
	LastUsedAt *clock.Time   `json:"last_used_at"`
	RevokedAt  *clock.Time   `json:"revoked_at"`
	Limits
}

const maxName = 64

// checkName reports what is wrong with a name that people give.
func checkName(field, name string) error {
	if name == "" || len([]rune(name)) > maxName || strings.TrimSpace(name) != name {
		return fault.Invalid(field, "must be 1 to 64 characters without space at its ends")
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return fault.Invalid(field, "must not contain control characters")
		}
	}
	return nil
}

// normalEmail is how an address is kept and compared.
func normalEmail(email string) (string, error) {
	parsed, err := mail.ParseAddress(email)
	if err != nil || parsed.Address != email || len(email) > 254 {
		return "", fault.Invalid("email", "must be an email address")
	}
	return strings.ToLower(email), nil
}

func checkRole(role tenant.Role) error {
	if !role.Valid() {
		return fault.Invalid("role", "must be owner, admin or member")
	}
	return nil
}
