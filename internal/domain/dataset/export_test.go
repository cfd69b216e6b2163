package dataset

import (
	"context"

	"sovereign/internal/base/tenant"
)

// Look bounds how many exchanges s looks at, for tests that cannot have 100,000.
func (s *Store) Look(most int) { s.most = most }

// Discard is what deletions and sweeps do.
func (s *Store) Discard(ctx context.Context, ws tenant.ID, id string) error {
	return s.discard(ctx, ws, id)
}
