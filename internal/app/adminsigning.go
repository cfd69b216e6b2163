package app

import (
	"fmt"
	"io"

	"sovereign/internal/store/vault"
)

type signingKeyCommand struct {
	List   signingKeyList   `cmd:"" help:"List the keys, retired ones too, the one in force first."`
	Rotate signingKeyRotate `cmd:"" help:"Put a new key in force. The one before it never signs again, and what it signed still verifies."`
}

type signingKeyList struct {
	asJSON `embed:""`
	page   `embed:""`
}

func (c *signingKeyList) Run(a *admin) error {
	return list(a, c.JSON, "/admin/signing-keys", c.query(), "ID\tMADE\tRETIRED", func(k vault.SigningKey) string {
		return fmt.Sprintf("%s\t%s\t%s", k.ID, k.CreatedAt, when(k.RetiredAt))
	})
}

type signingKeyRotate struct {
	asJSON `embed:""`
}

func (c *signingKeyRotate) Run(a *admin) error {
	var r vault.Rotated
	if err := a.post("/admin/signing-keys/rotation", nil, &r); err != nil {
		return err
	}
	return a.show(c.JSON, r, func(w io.Writer) {
		_, _ = fmt.Fprintf(
			w, "signing key\t%s → %s\nold key\tretired: it verifies, and never signs again\n", r.From, r.To,
		)
	})
}
