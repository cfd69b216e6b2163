package workspace

import (
	"context"
	"fmt"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
)

// SimulatedModels are the models that a demo may call. Its credit is simulated, and must buy nothing else.
var SimulatedModels = Names{"sim/*"}

// CreateDemo makes a workspace that is marked as a demo, and may call simulated models alone. A number is added to a
// name that is taken.
func (s *Store) CreateDemo(
	ctx context.Context, by tenant.Actor, name, email string,
) (ws Workspace, owner Member, err error) {
	err = s.feed.Change(ctx, func(tx *db.Tx) error {
		free, err := freeName(ctx, tx, name)
		if err != nil {
			return err
		}
		bound := tx.Bind(ctx)
		if ws, owner, err = s.Create(bound, by, free, email); err != nil {
			return err
		}
		if _, err := db.Exec(ctx, tx.In(ws.ID),
			`UPDATE workspaces SET demo = TRUE WHERE workspace_id = $1`); err != nil {
			return fmt.Errorf("mark the demo: %w", err)
		}
		ws.Demo = true
		_, err = s.SetLimits(bound, ws.ID, by, &LimitsChange{Models: &SimulatedModels})
		return err
	})
	return ws, owner, err
}

// mostNames bounds the search for a free name.
const mostNames = 10_000

// freeName returns name, or name with the first number that is free.
func freeName(ctx context.Context, tx *db.Tx, name string) (string, error) {
	for n := 1; n <= mostNames; n++ {
		free := name
		if n > 1 {
			free = fmt.Sprintf("%s %d", name, n)
		}
		taken, err := db.One[int](ctx, tx.Across("names are unique among all workspaces"),
			`SELECT COUNT(*) FROM workspaces WHERE name = $1`, free)
		if err != nil {
			return "", fmt.Errorf("look for a free name: %w", err)
		}
		if taken == 0 {
			return free, nil
		}
	}
	return "", fault.Conflict("there are too many workspaces named %q", name)
}

// mayChooseModels refuses to change the models of a demo.
func mayChooseModels(ctx context.Context, in db.Scoped) error {
	demo, err := db.One[bool](ctx, in, `SELECT demo FROM workspaces WHERE workspace_id = $1`)
	if err != nil {
		return fmt.Errorf("read whether it is a demo: %w", err)
	}
	if demo {
		return fault.Conflict("a demo calls simulated models alone: its credit is simulated")
	}
	return nil
}

// A closing is what the audit trail has about the end of a workspace.
type closing struct {
	Name    string `json:"name"`
	Members int    `json:"members"`
	Keys    int    `json:"keys"`
}

// Close ends a workspace: its members leave, its keys are refused, nothing is logged any more, and no list shows it.
// Its name is free again. What it stores is for the caller to delete. Repeating it is a no-op.
func (s *Store) Close(ctx context.Context, ws tenant.ID, by tenant.Actor) error {
	return s.feed.Change(ctx, func(tx *db.Tx) error {
		in := tx.In(ws)
		name, err := db.Maybe[string](ctx, in, `SELECT name FROM workspaces WHERE workspace_id = $1 AND deleted_at = 0`)
		if err != nil || name == nil {
			return err
		}
		keys, err := db.Query[tenant.KeyID](ctx, in,
			`SELECT id FROM api_keys WHERE workspace_id = $1 AND revoked_at IS NULL`)
		if err != nil {
			return fmt.Errorf("read keys: %w", err)
		}
		for _, key := range keys {
			if err := s.revoke(ctx, tx, ws, by, key); err != nil {
				return err
			}
		}
		none := int64(0)
		if _, err := s.Set(tx.Bind(ctx), ws, by, SettingsChange{LogRetentionDays: &none}); err != nil {
			return err
		}
		members, err := s.leaveAll(ctx, tx, ws, by)
		if err != nil {
			return err
		}
		if _, err := db.Exec(ctx, in, `UPDATE workspaces SET name = $2, deleted_at = $3 WHERE workspace_id = $1`,
			"deleted "+string(ws), clock.Now()); err != nil {
			return fmt.Errorf("close workspace: %w", err)
		}
		return audit.Record(ctx, tx, ws, by, "workspace.delete", string(ws), closing{*name, members, len(keys)}, nil)
	})
}

// leaveAll ends all memberships of a workspace, the last owner's too, and returns how many there were.
func (s *Store) leaveAll(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor) (int, error) {
	members, err := db.Query[tenant.UserID](ctx, tx.In(ws), `SELECT user_id FROM members WHERE workspace_id = $1`)
	if err != nil {
		return 0, fmt.Errorf("read members: %w", err)
	}
	if _, err := db.Exec(ctx, tx.In(ws), `DELETE FROM members WHERE workspace_id = $1`); err != nil {
		return 0, fmt.Errorf("remove members: %w", err)
	}
	for _, user := range members {
		tx.Touch(changedMember, ws, string(user))
		if s.Left == nil {
			continue
		}
		if err := s.Left(ctx, tx, by, user); err != nil {
			return 0, err
		}
	}
	return len(members), nil
}
