package policy

import (
	"context"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/module"
)

// Module serves the policies of s. find returns the workspace of an id or a name.
func Module(s *Store, find func(ctx context.Context, workspace string) (tenant.ID, error)) module.Module {
	return module.Module{
		Name:   "evidence policies",
		Routes: append((&Operator{store: s, find: find}).Routes(), (&Handler{store: s}).Routes()...),
	}
}
