package home

import (
	"context"
	"fmt"
	"strings"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

// A Subject is what a job works for: a judge, an eval, a dataset or a review queue.
type Subject struct {
	JobID, ID, Name string
}

// Subjects reads what jobs work for. A job whose subject was deleted has none.
func Subjects(ctx context.Context, d *db.DB, ws tenant.ID, jobs []string) ([]Subject, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	places, args := make([]string, len(jobs)), make([]any, len(jobs))
	for n, id := range jobs {
		places[n], args[n] = fmt.Sprintf("$%d", n+2), id
	}
	these := strings.Join(places, ", ")
	all, err := db.Query[Subject](ctx, d.In(ws), `
		SELECT r.id AS job_id, c.id AS id, c.name AS name FROM calibrations r
		JOIN criteria c ON c.workspace_id = r.workspace_id AND c.id = r.criterion_id
		WHERE r.workspace_id = $1 AND r.id IN (`+these+`)
		UNION ALL
		SELECT r.id, c.id, c.name FROM inquiries r
		JOIN criteria c ON c.workspace_id = r.workspace_id AND c.id = r.criterion_id
		WHERE r.workspace_id = $1 AND r.id IN (`+these+`)
		UNION ALL
		SELECT id, id, name FROM evals WHERE workspace_id = $1 AND id IN (`+these+`)
		UNION ALL
		SELECT id, id, name FROM datasets WHERE workspace_id = $1 AND id IN (`+these+`)
		UNION ALL
		SELECT f.id, q.id, q.name FROM review_fills f
		JOIN review_queues q ON q.workspace_id = f.workspace_id AND q.id = f.queue_id
		WHERE f.workspace_id = $1 AND f.id IN (`+these+`)`, args...)
	if err != nil {
		return nil, fmt.Errorf("read what jobs work for: %w", err)
	}
	return all, nil
}
