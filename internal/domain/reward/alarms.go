package reward

import (
	"context"
	"fmt"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/store/module"
)

// mostAlarms bounds the held sessions that are listed.
const mostAlarms = 20

// Alarms returns the sessions of a workspace that are held, the last held first.
func (s *Store) Alarms(ctx context.Context, ws tenant.ID) ([]module.Notice, error) {
	type held struct {
		ID, Label, HeldReason string
		HeldAt                clock.Time
	}
	rows, err := db.Query[held](ctx, s.DB.In(ws), `
		SELECT id, label, held_reason, held_at FROM reward_sessions
		WHERE workspace_id = $1 AND held_at > 0 AND ended_at = 0 ORDER BY held_at DESC, id LIMIT $2`, mostAlarms)
	if err != nil {
		return nil, fmt.Errorf("read the held reward sessions: %w", err)
	}
	all := make([]module.Notice, len(rows))
	for i, r := range rows {
		name := r.Label
		if name == "" {
			name = r.ID
		}
		all[i] = module.Notice{
			Kind: "anchor.held", Subject: r.ID, Title: fmt.Sprintf("The reward session %s is held", name),
			Detail: r.HeldReason, At: r.HeldAt, Link: module.Link{Page: "rewards/" + r.ID},
		}
	}
	return all, nil
}
