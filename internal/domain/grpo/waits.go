package grpo

import (
	"context"
	"fmt"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/store/module"
)

// waiting counts the candidates without a verdict.
func waiting(ctx context.Context, in db.Scoped) (int64, error) {
	n, err := db.One[int64](ctx, in, `SELECT COUNT(*) FROM grpo_candidates WHERE workspace_id = $1 AND gate = ''`)
	if err != nil {
		return 0, fmt.Errorf("count candidates: %w", err)
	}
	return n, nil
}

// Waits returns the candidates that wait for an eval, to those who may read them.
func (s *Store) Waits(ctx context.Context, caller tenant.Caller) ([]module.Notice, error) {
	if !caller.Role.Manages() {
		return nil, nil
	}
	n, err := waiting(ctx, s.DB.In(caller.Workspace))
	if err != nil || n == 0 {
		return nil, err
	}
	return []module.Notice{{
		Kind: "grpo.candidates", Title: "Candidates of training", Count: n,
		Detail: "Trained models that wait for an eval against their base",
		Link:   module.Link{Page: "training", Query: "show=candidates"},
	}}, nil
}
