package workspace

import (
	"context"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

// Person returns the person with an address, and the address as it is stored. A new one is created, without any role.
func (s *Store) Person(ctx context.Context, tx *db.Tx, email string) (user tenant.UserID, address string, err error) {
	if address, err = normalEmail(email); err != nil {
		return "", "", err
	}
	user, err = s.user(ctx, tx, address, clock.Now())
	return user, address, err
}
