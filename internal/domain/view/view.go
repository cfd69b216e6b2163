// Package view keeps the views of the dashboard's pages that people have named: a page with its query string, for the
// person who saved it or for the whole workspace.
package view

import (
	"net/url"
	"regexp"
	"strings"
	"unicode"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/text/redact"
)

const object = "view"

// A View is a named query string of a page.
type View struct {
	ID        string        `json:"id"`
	Object    string        `json:"object" enum:"view"`
	Page      string        `json:"page"`
	Name      string        `json:"name"`
	Query     string        `json:"query"`
	Shared    bool          `json:"shared"`
	Owner     tenant.UserID `json:"owner_id" db:"owner_id" doc:"Who saved it"`
	CreatedAt clock.Time    `json:"created_at"`
	UpdatedAt clock.Time    `json:"updated_at"`
}

// A NewView is a view to be saved.
type NewView struct {
	Page   string `json:"page" doc:"The page, such as logs" maxLength:"64"`
	Name   string `json:"name" doc:"1 to 100 characters" maxLength:"400"`
	Query  string `json:"query,omitempty" doc:"The page's query string, at most 2048 bytes, without the question mark" maxLength:"2048"`
	Shared bool   `json:"shared,omitempty" doc:"Every member sees it; otherwise only its owner does"`
}

// A Change is what of a view is to become different.
type Change struct {
	Name   *string `json:"name,omitempty" maxLength:"400"`
	Query  *string `json:"query,omitempty" maxLength:"2048"`
	Shared *bool   `json:"shared,omitempty"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Change) SchemaName() string { return "ViewChange" }

const (
	maxName  = 100
	maxQuery = 2 << 10
)

var pageName = regexp.MustCompile(`^[a-z][a-z0-9_/-]{0,63}$`)

// check reports the first rule that v breaks, naming the field.
func (v *View) check() error {
	switch {
	case !pageName.MatchString(v.Page):
		return fault.Invalid("page", "must be the name of a page, such as logs")
	case v.Name == "" || len([]rune(v.Name)) > maxName || strings.ContainsFunc(v.Name, unicode.IsControl):
		return fault.Invalid("name", "must be 1 to 100 characters, without control characters")
	case len(v.Query) > maxQuery || strings.ContainsFunc(v.Query, unicode.IsControl):
		return fault.Invalid("query", "must be at most 2048 bytes, without control characters")
	}
	if _, err := url.ParseQuery(v.Query); err != nil {
		return fault.Invalid("query", "must be a query string, such as model=a&tag=b")
	}
	return nil
}

// clean removes credentials from what a person has typed.
func (v *View) clean() {
	v.Name, v.Query = redact.String(strings.TrimSpace(v.Name)), redact.String(v.Query)
}

// apply changes v.
func (v *View) apply(c *Change) {
	if c.Name != nil {
		v.Name = *c.Name
	}
	if c.Query != nil {
		v.Query = *c.Query
	}
	if c.Shared != nil {
		v.Shared = *c.Shared
	}
}

// visible reports whether a caller may see v.
func (v *View) visible(by tenant.Caller) bool { return v.Shared || v.Owner == by.User }

// mayChange reports whether a caller may change v: its owner may, and of shared ones those who manage the workspace.
func (v *View) mayChange(by tenant.Caller) bool {
	return v.Owner == by.User || v.Shared && by.Role.Manages()
}
