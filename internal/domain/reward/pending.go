package reward

import (
	"context"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
	"sovereign/internal/store/db"
)

// checkAnchor pins an anchor in a session that is about to be made, whose judges are pinned: anchor_criterion_id, anchor,
// sample_size, every and process. It refuses every anchor: the server cannot check samples yet.
func (s *Store) checkAnchor(context.Context, db.Scoped, tenant.ID, *session, *NewAnchor) error {
	return fault.UnsupportedParameter.New("anchor is not supported by this release")
}

func (s *Store) history(context.Context, db.Scoped, string) ([]Check, error) { return []Check{}, nil }

func (s *Store) checkIfDue(context.Context, tenant.ID, string, string) error { return nil }

func (s *Store) anchorRoutes() []api.Route { return nil }
