package judging

import (
	"context"

	"sovereign/internal/store/module"
)

// Module deletes stored answers that have expired.
func Module(c *Client) module.Module {
	return module.Module{Name: "judging", Sweep: func(ctx context.Context) error {
		return DeleteExpired(ctx, c.store.db, "judge_answers", "workspace_id, question")
	}}
}
