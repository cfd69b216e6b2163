package app

import (
	"fmt"
	"io"

	"sovereign/internal/dash/signin"
)

type dashboardCommand struct {
	Link dashboardLink `cmd:"" help:"Print a link that signs a person in, once, within 15 minutes. It replaces the person's link before it, and works whatever other ways in are closed."`
}

type dashboardLink struct {
	asJSON `embed:""`
	Email  string `required:"" placeholder:"EMAIL" help:"A member of any workspace, or a reviewer."`
}

// Run implements the command.
func (c *dashboardLink) Run(a *admin) error {
	var made signin.ShownLink
	if err := a.post("/admin/dashboard/link", signin.NewLink{Email: c.Email}, &made); err != nil {
		return err
	}
	return a.show(c.JSON, made, func(w io.Writer) {
		_, _ = fmt.Fprintf(
			w, "link\t%s\n\tworks once, until %s; it replaces the link before it\n", made.URL, made.ExpiresAt,
		)
	})
}
