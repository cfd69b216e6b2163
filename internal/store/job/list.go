package job

import (
	"context"
	"fmt"

	"sovereign/internal/base/clock"
	"sovereign/internal/store/db"
)

// A Listed job is one of a list of all kinds.
type Listed struct {
	ID   string `json:"id" doc:"That of what the job is for, such as eval_…"`
	Kind string `json:"kind"`
	Job
}

// Latest returns the jobs that were created last, the newest first.
func Latest(ctx context.Context, in db.Scoped, most int) ([]Listed, error) {
	all, err := db.Query[Listed](ctx, in, `
		SELECT jobs.id AS id, jobs.kind AS kind, `+Columns+` FROM jobs
		WHERE workspace_id = $1 ORDER BY created_at DESC, id DESC LIMIT $2`, most)
	if err != nil {
		return nil, fmt.Errorf("read the latest jobs: %w", err)
	}
	return all, nil
}

// FailedSince returns the jobs that have failed since a time, the newest first.
func FailedSince(ctx context.Context, in db.Scoped, since clock.Time, most int) ([]Listed, error) {
	all, err := db.Query[Listed](ctx, in, `
		SELECT jobs.id AS id, jobs.kind AS kind, `+Columns+` FROM jobs
		WHERE workspace_id = $1 AND status = 'FAILED' AND finished_at >= $2 ORDER BY finished_at DESC, id DESC LIMIT $3`,
		since, most)
	if err != nil {
		return nil, fmt.Errorf("read the failed jobs: %w", err)
	}
	return all, nil
}
